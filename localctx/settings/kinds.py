"""Defines the kinds of settings: which values each accepts, and how it parses a value.

Values come from a flag, the environment or a file.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol

from localctx.errors import UsageError

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt]?)(i?)b?)?", re.IGNORECASE)
A_SIZE = "a size such as 512MiB, 4GiB, 1.5GB or a number of bytes"


class ValueKind(Protocol):
    """A kind of setting: says which values are accepted, and parses them. ``metavar`` stands for a value in --help."""

    metavar: ClassVar[str]

    @property
    def accepts(self) -> str:
        """The accepted values in words, such as ``a number from 1 to 8``. An error says "use" and then these words."""

    def parse(self, value: Any) -> Any:
        """Returns ``value`` in the setting's type. Raises ValueError, TypeError or OverflowError."""


@dataclass(frozen=True)
class Choice:
    """The kind of a setting whose value is one of a few words. ``labels`` maps each word to its name in the window."""

    metavar: ClassVar[str] = "HOW"
    labels: Mapping[str, str]

    @classmethod
    def of(cls, *words: str) -> "Choice":
        """Returns a choice of ``words``. In the window, each word is its own name."""
        return cls(dict(zip(words, words, strict=True)))

    @property
    def accepts(self) -> str:
        return one_of(list(self.labels))

    def parse(self, value: Any) -> str:
        if (word := str(value)) not in self.labels:
            raise ValueError
        return word


@dataclass(frozen=True)
class Switch:
    """The kind of a setting that is ``on`` or ``off``. Other words with the same meaning are accepted, such as ``yes``
    or ``0``.
    """

    metavar: ClassVar[str] = "HOW"
    words = ("on", "1", "true", "yes", "off", "0", "false", "no")

    @property
    def accepts(self) -> str:
        return "on or off"

    def parse(self, value: Any) -> str:
        if (word := str(value)).lower() not in self.words:
            raise ValueError
        return word


@dataclass(frozen=True)
class Number:
    """The kind of a setting whose value is a number from ``low`` to ``high``, whole or a float. If ``optional``, None
    is accepted, too.
    """

    metavar: ClassVar[str] = "N"
    low: float
    high: float
    whole: bool = True
    optional: bool = False

    @property
    def accepts(self) -> str:
        return f"a {'whole ' if self.whole else ''}number from {self.low:,} to {self.high:,}"

    def parse(self, value: Any) -> float | None:
        if value is None and self.optional:
            return None
        number = int(value) if self.whole else float(value)
        is_cut = isinstance(value, float) and number != value
        if isinstance(value, bool) or is_cut or not self.low <= number <= self.high:
            raise ValueError
        return number


@dataclass(frozen=True)
class Size:
    """The kind of a setting whose value is a size in bytes such as ``4GiB``, or one of ``words``."""

    metavar: ClassVar[str] = "SIZE"
    words: tuple[str, ...] = ("auto",)

    @property
    def accepts(self) -> str:
        return f"{', '.join(self.words)}, or {A_SIZE}"

    def parse(self, value: Any) -> str:
        if (text := str(value)) not in self.words and _bytes_of(text) is None:
            raise ValueError
        return text


@dataclass(frozen=True)
class Text:
    """The kind of a setting whose value is a text. ``examples`` are offered in the window. Texts for which ``is_valid``
    returns False are rejected.

    ``limit`` says in words which texts are valid; an error prints these words after the examples.
    """

    metavar: ClassVar[str] = "NAME"
    examples: Sequence[str] = ()
    is_valid: Callable[[str], object] = lambda text: True
    limit: str = ""

    @property
    def accepts(self) -> str:
        return one_of(self.examples) + self.limit if self.examples else "a text"

    def parse(self, value: Any) -> str:
        if not self.is_valid(text := str(value)):
            raise ValueError
        return text


def parse_setting(name: str, kind: ValueKind, value: Any, source: object = "") -> Any:
    """Returns ``value`` in the type of the setting ``name``. Raises UsageError, which names the ``source``, if any."""
    try:
        return kind.parse(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise invalid(name, value, kind.accepts, source) from e


def one_of(words: Sequence[str]) -> str:
    """Returns the words joined with commas and "or": ``auto, on or off``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def invalid(name: str, value: object, accepts: str, source: object = "") -> UsageError:
    """Returns the error for a ``value`` that the setting or option ``name`` does not accept.

    ``accepts`` names the accepted values in words; ``source`` is the file or variable with the value, if any.
    """
    where = f"{source}: " if source else ""
    return UsageError(f"{where}{name} = {value!r} is not valid", f"use {accepts}")


def parse_size(text: str, name: str = "size") -> int:
    """Returns the number of bytes that ``512MiB``, ``4GiB``, ``1.5GB`` or ``1048576`` names; ``4G`` means ``4GiB``.

    Raises UsageError, which names the setting ``name``, for any other text.
    """
    if (nbytes := _bytes_of(text)) is None:
        raise invalid(name, text, A_SIZE)
    return nbytes


def _bytes_of(text: str) -> int | None:
    if not (match := _SIZE.fullmatch(text.strip())):
        return None
    number, letter, binary = match.groups()
    power = " kmgt".index(letter.lower()) if letter else 0
    unit = 1000 if not binary and text.strip()[-1] in "bB" else 1024
    return int(Fraction(number) * unit**power)
