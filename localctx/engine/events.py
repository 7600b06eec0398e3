"""Events: what a coroutine yields while it runs. Terminal, window, HTTP and Python API all get the same ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localctx.engine.request_report import AnswerReport, PrepareReport

WHERE = {"d": "device", "h": "host", "s": "disk", "p": "in part", "x": "dropped", "o": "open"}
"""The letters of a page map: the tier of a page; or that each head kept only a part of it, that it was dropped, or that
it is open.
"""

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
"""The unit of a phase's progress, by the phase's first word."""
PREPARING = "preparing for this processor, once: about two minutes"
"""The phase in which kernels are compiled, as a person reads it; it has no total."""


@dataclass(frozen=True)
class Planned:
    """The plan, before prefill: how the question will be answered, and what that will cost.

    ``tokens`` of the prompt, ``reused`` of them from kept pages; ``kv_bytes`` of the whole cache, and in ``tiers``
    the bytes needed beside the kept pages; ``seconds`` expected until the first token, None before anything was
    measured; ``answer_tokens``, the most the answer may have; ``window``, the most tokens the model reads.
    ``unusual``: the documents are not read whole in the trained window, and ``reason`` says why.
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
        """The unit of ``done`` and ``total``: that in COUNTED, else bytes."""
        return COUNTED.get(self.phase.partition(" ")[0], "bytes")


@dataclass(frozen=True)
class Note:
    """One line that the user should read; the request goes on."""

    text: str


@dataclass(frozen=True)
class WholeOffered(Note):
    """A note that the question may be about the whole of documents of which only passages are read. ``ways`` of reading
    all of them, ``summarize`` and ``everywhere``, with the seconds each would take (None: not measured yet).
    """

    ways: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Evicted:
    """The keeper evicted pages: ``tokens`` so far in total, in ``ranges`` [start, stop) of the prompt."""

    keeper: str
    tokens: int
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Quoted:
    """A quotation that supports the answer and comes before it; ``citation`` is as in the report."""

    citation: dict[str, Any]


@dataclass(frozen=True)
class NearestPassage:
    """What comes nearest to a question that nothing answers, after the answer that says so; ``citation`` is as in the
    report (``nearest``). It is no answer, and is to be shown below with its name.
    """

    citation: dict[str, Any]


@dataclass(frozen=True)
class PassageAnswered:
    """One passage's ``answer`` to a question that is put to every passage, before the report that groups all of them;
    ``citation`` is as in the report.
    """

    answer: str
    citation: dict[str, Any]


@dataclass(frozen=True)
class SentenceChecked:
    """A sentence of the first answer is complete; ``sentence`` is as in the report, with its characters in the answer
    and the passage that says it, if one does.
    """

    sentence: dict[str, Any]


@dataclass(frozen=True)
class Token:
    """A generated token. ``text`` is empty while a character is incomplete; ``answer`` is the number, from 0, of the
    answer it belongs to, where several are generated. ``told``, where that was asked for, are the token itself and the
    likeliest ones of its step, each as its text and its log-probability.
    """

    text: str
    id: int
    answer: int = 0
    told: tuple[tuple[str, float], ...] | None = None


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
