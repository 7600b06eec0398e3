"""What the engine tells while it works. Every skin (terminal, window, HTTP) renders these same events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WHERE = {"d": "device", "h": "host", "s": "disk", "p": "in part", "x": "dropped", "o": "open"}
"""The letters of a page map: a tier; kept of it what each head chose; gone; still filling, at full precision."""

COUNTED = {
    "reading": "tokens",
    "beams": "tokens",
    "pages": "pages",
    "checking": "pages",
    "verifying": "pages",
    "ranking": "passages",
    "measuring": "passes",
    "indexing": "characters",
    "embedding": "characters",
    "converting": "tensors",
    "saving": "models",
    "sealing": "files",
    "sections": "sections",
    "summaries": "summaries",
    "questions": "questions",
}
"""What a phase counts, by its first word."""


@dataclass(frozen=True)
class Planned:
    """Before work starts: how the question will be answered and what it will cost.

    ``tokens`` the prompt has, ``reused`` of them already kept; ``kv_bytes`` the whole cache, and by ``tiers`` what must
    be held beside the kept pages; ``seconds`` expected until the first token, None before any measurement;
    ``answer_tokens`` there is room for; ``window`` the tokens the model reads at most. ``unusual``: not everything is
    read as the model was trained to, and ``reason`` says why.
    """

    mode: str
    reason: str
    tokens: int
    reused: int
    kv_bytes: int
    seconds: float | None
    answer_tokens: int
    window: int
    codec: str
    keeper: str
    tiers: dict[str, int]
    unusual: bool = False


@dataclass(frozen=True)
class Progress:
    """Work of one phase, in its ``unit``; ``rate`` per second and ``eta`` in seconds when known."""

    phase: str
    done: int
    total: int
    reused: int = 0
    rate: float | None = None
    eta: float | None = None

    @property
    def unit(self) -> str:
        """What ``done`` and ``total`` count; bytes unless COUNTED knows better."""
        return COUNTED.get(self.phase.partition(" ")[0], "bytes")


@dataclass(frozen=True)
class Note:
    """Something the user should know that stops nothing, in one line."""

    text: str


@dataclass(frozen=True)
class Evicted:
    """The keeper dropped something: ``tokens`` in all so far, by ``ranges`` [start, stop) of the prompt."""

    keeper: str
    tokens: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Quoted:
    """Words of a document which support the answer, before that: ``citation`` is as the report has it."""

    citation: dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A piece of an answer. ``text`` may be empty while a character is incomplete; ``answer`` counts several from 0."""

    text: str
    id: int
    answer: int = 0


@dataclass(frozen=True)
class Done:
    """The end: ``report`` is what ``--json`` prints. ``failed`` says in one line what could not be kept."""

    report: dict[str, Any]
    failed: str | None = None


@dataclass(frozen=True)
class InUse:
    """Bytes in use: the weights of the model loaded on ``device``, and of open KV what each tier has."""

    device: str = ""
    weights: int = 0
    kv: Mapping[str, int] = field(default_factory=dict)


Event = Planned | Progress | Note | Evicted | Quoted | Token | Done
