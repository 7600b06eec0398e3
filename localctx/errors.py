"""Errors a user can mend: one line that says what happened, one that says what to do."""

from typing import Any


class UserError(Exception):
    """What went wrong and its remedy, both in words for the person at the keyboard.

    ``str(error)`` is one line: ``problem; remedy``. ``exit_code`` is what the command returns.
    """

    exit_code = 1

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """From another process it comes as it was raised there."""
        return _again, (type(self), self.problem, self.remedy)


class UsageError(UserError):
    """The command line or a setting cannot mean anything."""

    exit_code = 2


class DocumentError(UserError):
    """A document cannot be read."""


class NothingFound(DocumentError):
    """Nothing in the documents is like the question."""


class ChatError(UserError):
    """A chat is not there, or its name is that of several."""


class ChatFull(UserError):
    """A chat's documents fit, but not with all that was said before."""


class TooLong(UserError):
    """The documents and the question do not fit the model's window."""


class NoRoom(UserError):
    """No tier has room for another page of KV: ``held`` bytes by tier, ``wanted`` more."""

    def __init__(self, held: dict[str, int], wanted: int, why: str = "") -> None:
        places = ", ".join(f"{size(n)} on {name}" for name, n in held.items())
        super().__init__(
            f"the KV cache has no room for {size(wanted)} more ({why or places})",
            "give it more (--memory, --ram, --disk), use a smaller --kv, or ask a shorter part",
        )


class ModelError(UserError):
    """A model is unknown, cannot be fetched, or cannot be run rightly."""


class StoreError(UserError):
    """The data folder cannot be read or written."""


class Cancelled(Exception):
    """The user said stop. Not an error: what was sealed is kept."""


def _again(kind: type[UserError], problem: str, remedy: str) -> UserError:
    error = kind.__new__(kind)
    UserError.__init__(error, problem, remedy)
    return error


def size(nbytes: float) -> str:
    """Bytes for people: ``61.3 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"
