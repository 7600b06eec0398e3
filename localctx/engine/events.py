"""Events: what a coroutine yields while it runs. Terminal, window, HTTP and Python API all get the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localctx.engine.request_report import AnswerReport, PrepareReport

WHERE = {"d": "device", "h": "host", "s": "disk", "p": "in part", "x": "dropped", "o": "open"}
"""The letters of a page map. They stand for the tier of a page, or for a page that is kept in part, dropped or open."""

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
    "comparing": "documents",
}
"""Unit of a phase's progress, by the phase's first word."""
PREPARING = "preparing for this processor, once: about two minutes"
"""The phase that compiles kernels, as shown to users; it has no total."""


@dataclass(frozen=True)
class Planned:
    """The plan of a request, shown before prefill: how the question will be answered, and at what cost.

    ``tokens`` is the length of the prompt, and ``reused`` is how many of these tokens come from kept pages.
    ``kv_bytes`` is the size in bytes of the whole cache. ``tiers`` is the number of bytes needed in each tier besides
    kept pages. ``seconds`` is the expected time until the first token, None if nothing was measured yet.
    ``answer_tokens`` is the maximum length of the answer, ``window`` the maximum number of tokens that the model reads.
    ``unusual`` is True if the documents are not read whole in the trained window; ``reason`` says why.
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
    """Reports the progress of a phase: ``done`` of ``total`` units are done, of which ``reused`` needed no computing.
    ``rate`` is in units per second, and ``eta`` is the remaining time in seconds; both are None if unknown.
    """

    phase: str
    done: int
    total: int
    reused: int = 0
    rate: float | None = None
    eta: float | None = None

    @property
    def unit(self) -> str:
        """The unit of ``done`` and ``total``. The table COUNTED gives it for the first word of the phase; the default
        is ``bytes``.
        """
        return COUNTED.get(self.phase.partition(" ")[0], "bytes")


@dataclass(frozen=True)
class Note:
    """One line of text for the user. A note is not an error: the request continues."""

    text: str


@dataclass(frozen=True)
class WholeOffered(Note):
    """A note that the question seems to be about whole documents, although only passages are read. ``ways`` maps each
    way to read the documents whole (``summarize``, ``everywhere``) to the seconds that it would take (None: not
    measured yet).
    """

    ways: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Evicted:
    """Reports that the keeper (eviction policy) evicted pages. ``tokens`` is the total number of evicted tokens so far,
    and ``ranges`` are their ranges [start, stop) in the prompt.
    """

    keeper: str
    tokens: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Quoted:
    """A quotation that supports the answer, shown before the answer. ``citation`` has the form of an item of
    ``AnswerReport.citations``.
    """

    citation: dict[str, Any]


@dataclass(frozen=True)
class NearestPassage:
    """The passage that is nearest to a question for which no answer was found. The event follows the reply that says
    so. ``citation`` has the form of ``AnswerReport.nearest``. The passage does not answer the question: show it below
    the reply, under a label of its own.
    """

    citation: dict[str, Any]


@dataclass(frozen=True)
class PassageAnswered:
    """The ``answer`` from one passage, when a question is put to every passage. A report that groups all answers
    follows later. ``citation`` has the form of an item of ``AnswerReport.citations``.
    """

    answer: str
    citation: dict[str, Any]


@dataclass(frozen=True)
class SentenceChecked:
    """Reports that a sentence of the first answer is complete and was compared with the passages. ``sentence`` has the
    form of an item of ``AnswerReport.sentences``: the range of its characters in the answer, and the passage that
    supports it, if any.
    """

    sentence: dict[str, Any]


@dataclass(frozen=True)
class Token:
    """One generated token. ``text`` is empty while a character is incomplete. ``answer`` is the index of the answer
    that the token belongs to. ``logprobs``, if requested, are pairs of a token's text and its logprob: first this
    token, then the likeliest tokens at its step.
    """

    text: str
    id: int
    answer: int = 0
    logprobs: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True)
class Done:
    """The last event of a request. ``report.to_json()`` is what ``--json`` prints. ``failed`` says in one line why
    something could not be stored.
    """

    report: AnswerReport | PrepareReport
    failed: str | None = None


@dataclass(frozen=True)
class InUse:
    """The memory in use, in bytes: the ``weights`` of the model on ``device``, the weights of its ``adapter``, and the
    ``kv`` of open caches by the name of the tier.
    """

    device: str = ""
    weights: int = 0
    adapter: int = 0
    kv: Mapping[str, int] = field(default_factory=dict)


Event = Planned | Progress | Note | Evicted | Quoted | NearestPassage | PassageAnswered | SentenceChecked | Token | Done
