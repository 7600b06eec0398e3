"""Events: what a coroutine yields while it runs. Terminal, window, HTTP and Python API all get the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localctx.engine.request_report import AnswerReport, PrepareReport

WHERE = {"d": "device", "h": "host", "s": "disk", "p": "in part", "x": "dropped", "o": "open"}
"""Letters of a page map: the tier of a page, or that heads kept only part of it, or that it was dropped or is open."""

COUNTED = {
    "reading": "tokens",
    "beams": "tokens",
    "pages": "pages",
    "checking": "pages",
    "verifying": "pages",
    "ranking": "passages",
    "passages": "passages",
    "asking": "passages",
    "measuring": "passes",
    "quoting": "passes",
    "indexing": "characters",
    "embedding": "characters",
    "converting": "tensors",
    "saving": "models",
    "sealing": "files",
    "sections": "sections",
    "summaries": "summaries",
    "questions": "questions",
}
"""Unit of a phase's progress, by the phase's first word."""
PREPARING = "preparing for this processor, once: about two minutes"
"""The phase that compiles kernels, as shown to users; it has no total."""


@dataclass(frozen=True)
class Planned:
    """The plan, before prefill: how the question will be answered, and at what cost.

    ``tokens`` of the prompt, ``reused`` of them from kept pages. ``kv_bytes`` is the size of the whole cache, ``tiers``
    the bytes needed in each tier besides kept pages. ``seconds`` until the first token, None if nothing was measured
    yet. ``answer_tokens`` is the limit of the answer, ``window`` the most tokens the model reads. ``unusual``: the
    documents are not read whole in the trained window, and ``reason`` says why.
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
    """Progress of one phase, in its ``unit``; ``rate`` per second and ``eta`` in seconds if known."""

    phase: str
    done: int
    total: int
    reused: int = 0
    rate: float | None = None
    eta: float | None = None

    @property
    def unit(self) -> str:
        """Unit of ``done`` and ``total``: from COUNTED, else bytes."""
        return COUNTED.get(self.phase.partition(" ")[0], "bytes")


@dataclass(frozen=True)
class Note:
    """One line for the user to read; the request continues."""

    text: str


@dataclass(frozen=True)
class WholeOffered(Note):
    """A note that the question may be about whole documents, of which only passages are read. ``ways`` to read all of
    them (``summarize`` and ``everywhere``) map to the seconds each would take (None: not measured yet).
    """

    ways: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Evicted:
    """The keeper evicted pages: ``tokens`` in total so far, in ``ranges`` [start, stop) of the prompt."""

    keeper: str
    tokens: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Quoted:
    """A quotation that supports the answer and precedes it; ``citation`` as in the report."""

    citation: dict[str, Any]


@dataclass(frozen=True)
class NearestPassage:
    """The passage nearest to a question that nothing answers, after the answer that says so; ``citation`` as in the
    report (``nearest``). It is no answer: show it below the answer, under its own label.
    """

    citation: dict[str, Any]


@dataclass(frozen=True)
class PassageAnswered:
    """One passage's ``answer`` to a question put to every passage, before the report that groups all answers;
    ``citation`` as in the report.
    """

    answer: str
    citation: dict[str, Any]


@dataclass(frozen=True)
class SentenceChecked:
    """A sentence of the first answer is complete; ``sentence`` as in the report: its characters in the answer, and the
    passage that supports it, if any.
    """

    sentence: dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A generated token. ``text`` is empty while a character is incomplete. ``answer`` is the index of the answer it
    belongs to, if several are generated. ``logprobs``, if requested: the text and logprob of the token, then of the
    likeliest tokens at its step.
    """

    text: str
    id: int
    answer: int = 0
    logprobs: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True)
class Done:
    """The last event. ``report.to_json()`` is what ``--json`` prints; ``failed`` says in one line why something could
    not be stored.
    """

    report: AnswerReport | PrepareReport
    failed: str | None = None


@dataclass(frozen=True)
class InUse:
    """Bytes in use: the ``weights`` of the model on ``device``, those of its ``adapter``, and the ``kv`` of open caches
    by tier.
    """

    device: str = ""
    weights: int = 0
    adapter: int = 0
    kv: Mapping[str, int] = field(default_factory=dict)


Event = Planned | Progress | Note | Evicted | Quoted | NearestPassage | PassageAnswered | SentenceChecked | Token | Done
