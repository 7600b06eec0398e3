"""The reports of a request: the objects behind ``--json``. Fields are added with time, none is renamed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

BY_WORDS = "sources were found by their words: llama.cpp does not tell what the model attended to"
"""What users read beside citations with the source ``words``."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of one answered request: of its ``prompt``, of these ``reused`` from kept pages and ``prefilled`` now;
    ``generated`` in all answers and in the ``longest``; ``drafted`` by prompt lookup and ``accepted`` of these.
    """

    prompt: int
    reused: int
    prefilled: int
    generated: int
    longest: int
    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class KVReport:
    """The KV cache at the end of a request. ``pages`` and ``bytes`` are by tier; ``window`` is in tokens, ``chunk`` the
    tokens of a prefill step; ``evicted`` are ranges of the prompt, ``map`` is a ``PageMap`` as JSON; ``engine`` is what
    holds it; ``reading`` is the setting.
    """

    codec: str
    keeper: str
    bytes_per_token: int | float
    pages: Mapping[str, int]
    bytes: Mapping[str, int]
    sketch_bytes: int
    window: int
    chunk: int
    evicted: Sequence[Mapping[str, float]]
    map: Mapping[str, Any]
    engine: str = "torch"
    reading: str = "full"


@dataclass
class EverywhereReport:
    """A question that is put to every passage: ``passages`` in all, ``asked`` by now, for ``reused_answers`` of which
    the answer was stored; ``groups`` of the same answer with their count and indices of citations. ``tokens`` of all
    prompts, and ``seconds``, without those of stored answers; ``persist``: pages and answers are kept.
    """

    passages: int
    persist: bool
    asked: int = 0
    reused_answers: int = 0
    groups: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("prompt", "reused", "prefilled", "generated"), 0)
    )
    seconds: float = 0.0


@dataclass(frozen=True)
class AnswerReport:
    """One answered question; what ``ask --json`` prints. ``seconds`` are by phase; ``citations`` as ``Citation`` has
    them, ``sentences`` of the answer as ``AnswerSentence``; ``decoding`` is ``quote`` where the answer consists of
    words of the documents, else ``free``; ``confidence`` the probability that the text answers it, None where no
    adapter rates its answers; ``withheld`` what was not given because that is too low; ``adapter`` the name of that
    which answered, None if none did. ``nearest``, like a citation, is what comes nearest to a question that nothing
    answers: no answer, and not among the ``citations``. ``chat`` and ``message`` (its id) where the answer is part of a
    chat; ``until`` (``ReadUntil``) where only the beginning of a document was read; ``everywhere`` where every passage
    was asked.
    """

    answer: str
    answers: list[str]
    mode: str
    model: str
    stopped: str
    tokens: TokenCounts
    passages: list[dict[str, Any]]
    ranking: dict[str, int] | None
    seconds: dict[str, float]
    kv: KVReport
    memory: dict[str, int]
    citations: list[dict[str, Any]]
    sentences: list[dict[str, Any]]
    decoding: str = "free"
    confidence: float | None = None
    withheld: str | None = None
    nearest: dict[str, Any] | None = None
    adapter: str | None = None
    chat: str | None = None
    message: int | None = None
    until: dict[str, Any] | None = None
    everywhere: EverywhereReport | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as JSON; without ``chat`` and ``message`` outside of chats, without ``until`` where all was read,
        without ``everywhere`` where not every passage was asked, and without ``nearest`` where something answers.
        """
        report = asdict(self)
        for name in ("until", "everywhere", "nearest"):
            if report[name] is None:
                del report[name]
        if self.chat is None:
            del report["chat"], report["message"]
        return report


@dataclass(frozen=True)
class PrepareReport:
    """One document that was read ahead of questions; what ``prepare --json`` prints of it. ``kept``: pages, tokens and
    bytes that are stored.
    """

    document: str
    name: str
    model: str
    stopped: str
    tokens: dict[str, int]
    kept: dict[str, int] = field(default_factory=lambda: {"pages": 0, "tokens": 0, "bytes": 0})
    seconds: dict[str, float] = field(default_factory=dict)
    kv: KVReport | None = None

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {**asdict(self), "kv": asdict(self.kv) if self.kv else {}}
