"""Keepers: which positions attention sees. Pure policy over page counts and page masses; no tensors.

The beginning of the prompt (sink pages) and its end (recent pages) are protected in every one.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from localctx.errors import UsageError
from localctx.shape import PAGE, SINKS

DENSE_LAYERS = 2  # the first layers of `select` see everything (Quest)
OBSERVED = 64  # last queries of the prompt by which `snapkv` judges; SnapKV takes 16 to 64
POOL = 7  # tokens its masses are pooled over


class Keeper(Protocol):
    """A policy. ``drops``: pages may go before reading ends, so what is read later is not exact and is never stored.

    ``weighs``: attention must report how much mass each page gets. ``compresses``: acts once, when the prompt is read.
    ``turns``: what it keeps moves to other positions.
    """

    @property
    def name(self) -> str: ...

    @property
    def drops(self) -> bool: ...

    @property
    def weighs(self) -> bool: ...

    @property
    def compresses(self) -> bool: ...

    @property
    def turns(self) -> bool: ...

    def excess(self, pages: int, mass: np.ndarray) -> list[int]:
        """The places of the sealed pages to drop now; ``mass`` [pages] is what they got per query."""

    def selected(self, pages: int) -> int:
        """How many of ``pages`` a query may see."""

    def held(self, tokens: int) -> int:
        """The most tokens that are kept at once of a prompt of ``tokens``, but for one chunk."""


@dataclass(frozen=True, kw_only=True)
class Full:
    """Everything is seen."""

    name: str = "full"
    drops: bool = False
    weighs: bool = False
    compresses: bool = False
    turns: bool = False

    def excess(self, pages: int, mass: np.ndarray) -> list[int]:
        """Nothing."""
        return []

    def selected(self, pages: int) -> int:
        """All."""
        return pages

    def held(self, tokens: int) -> int:
        """All."""
        return tokens


@dataclass(frozen=True, kw_only=True)
class SinkWindow(Full):
    """Sinks and the last ``tokens``: StreamingLLM, arXiv:2309.17453. Sinks are turned to sit beside the window, so
    positions never outgrow what the model was trained on.
    """

    tokens: int = 2048
    name: str = "sink-window"
    drops: bool = True
    turns: bool = True

    def held(self, tokens: int) -> int:
        """Sinks and window."""
        return min(tokens, self.tokens + SINKS * PAGE)

    def excess(self, pages: int, mass: np.ndarray) -> list[int]:
        """What lies between the sinks and the window."""
        return list(range(SINKS, pages - max(1, self.tokens // PAGE)))


@dataclass(frozen=True, kw_only=True)
class H2O(Full):
    """Half of ``tokens`` for the pages that got the most attention so far, half for the last: arXiv:2306.14048."""

    tokens: int = 2048
    name: str = "h2o"
    drops: bool = True
    weighs: bool = True

    def held(self, tokens: int) -> int:
        """The budget."""
        return min(tokens, self.tokens)

    def excess(self, pages: int, mass: np.ndarray) -> list[int]:
        """The lightest pages that are neither sinks nor recent."""
        over = pages - max(SINKS + 2, self.tokens // PAGE)
        if over <= 0:
            return []
        recent = max(1, self.tokens // PAGE // 2)
        order = np.argsort(mass[SINKS : pages - recent], kind="stable") + SINKS
        return sorted(order[:over].tolist())


@dataclass(frozen=True, kw_only=True)
class SnapKV(Full):
    """Once the prompt is read, each KV head keeps the ``tokens`` that the prompt's last queries looked at:
    arXiv:2404.14469. A tenth of them is reserved for the prompt's end (arXiv:2605.18053).
    """

    tokens: int = 2048
    name: str = "snapkv"
    compresses: bool = True

    def kept_pages(self, pages: int) -> tuple[int, int]:
        """Of ``pages``: how many to pack kept tokens into, and how many recent ones stay whole."""
        recent = max(1, self.tokens // PAGE // 10)
        return max(1, self.tokens // PAGE - recent - SINKS), recent


@dataclass(frozen=True, kw_only=True)
class Select(Full):
    """A query sees the pages whose keys, sketched at two bits, promise the highest scores (after Quest,
    arXiv:2406.10774). Nothing is dropped; reading a document is dense, the question and the answer select.
    """

    part: float = 0.25
    name: str = "select"

    def selected(self, pages: int) -> int:
        """``part`` of them; at least the sinks, the last and two more."""
        return min(pages, max(SINKS + 3, math.ceil(pages * self.part)))


KEEPERS = {k.name: k for k in (Full(), SinkWindow(), H2O(), SnapKV(), Select())}


def make_keeper(spec: str, tokens: int) -> Keeper:
    """The keeper ``NAME[:BUDGET]`` for a prompt of ``tokens``. BUDGET is in tokens (2048) or a part of them (1/4).

    Raises UsageError.
    """
    name, _, budget = spec.partition(":")
    if name not in KEEPERS:
        raise UsageError(f"there is no keeper {name!r}", f"use one of: {', '.join(KEEPERS)}")
    keeper = KEEPERS[name]
    if isinstance(keeper, Select):
        part = _part(spec, budget or "1/4")
        return Select(part=part if part <= 1 else part / max(part, tokens))
    if name == "full":
        if budget:
            raise UsageError(f"{spec!r}: full has no budget", "use --keep full")
        return keeper
    part = _part(spec, budget or "2048")
    wanted = math.ceil(part * tokens) if part <= 1 else int(part)
    return type(keeper)(tokens=max(4 * PAGE, wanted))  # type: ignore[call-arg]


def _part(spec: str, budget: str) -> float:
    number, _, by = budget.partition("/")
    try:
        part = float(number) / float(by or 1)
    except (ValueError, ZeroDivisionError) as e:
        raise UsageError(f"{spec!r} has no budget that can be read", "for example: select:1/4, sink-window:2048") from e
    if not 0 < part < float("inf"):
        raise UsageError(f"{spec!r}: the budget must be more than nothing", "for example: select:1/4")
    return part
