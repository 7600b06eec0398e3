"""Reports of a request: the objects behind ``--json``. Fields may be added, none is renamed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

BY_WORDS = "sources were found by their words: llama.cpp does not tell what the model attended to"
"""Note shown beside citations with the source ``words``."""


def dropped_tokens(evicted: Sequence[Mapping[str, float]], prompt: int) -> int:
    """Returns how many of ``prompt`` tokens an answer did not see, from the ``evicted`` ranges of a ``KVReport``."""
    return round(sum((min(e["stop"], prompt) - min(e["start"], prompt)) * (1 - e["kept"]) for e in evicted))


@dataclass(frozen=True)
class TokenCounts:
    """Token counts of one answered request: its ``prompt``, of these ``reused`` from kept pages and ``prefilled`` now;
    ``generated`` in all answers and in the ``longest``; ``drafted`` by prompt lookup, and ``accepted`` of these.
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
    """The KV cache at the end of a request. ``pages`` and ``bytes`` are by tier. ``window`` is in tokens, ``chunk`` the
    tokens prefilled in one step. ``evicted`` are ranges of the prompt, ``map`` is a ``PageMap`` as JSON, ``engine``
    holds the cache, ``reading`` is the setting.
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
    """A question put to every passage: ``passages`` in all, ``asked`` so far, ``reused_answers`` with a stored answer.
    ``groups`` of equal answers have their count and indices of citations. ``tokens`` of all prompts and ``seconds``
    exclude stored answers. ``persist``: pages and answers are kept.
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
    """One answered question; what ``ask --json`` prints.

    ``seconds`` are by phase. ``citations`` are as in ``Citation``, ``sentences`` of the answer as in
    ``AnswerSentence``. ``decoding`` is ``quote`` if the answer consists of words of the documents, else ``free``.
    ``confidence`` is the probability that the text answers the question, None if no adapter rates it. ``withheld`` is
    the answer that was not given because its confidence is too low. ``adapter`` names the adapter that answered, None
    if none did. ``nearest``, like a citation, is nearest to a question that nothing answers; it is no answer, and not
    among the ``citations``. ``chat`` and ``message`` (its id) are set in a chat, ``until`` (``ReadUntil``) if only the
    beginning of a document was read, ``everywhere`` if every passage was asked, ``query`` (SQL) if the answer was
    computed over a table.
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
    query: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON. Drops ``chat`` and ``message`` outside of chats, and ``until``, ``everywhere``,
        ``nearest`` and ``query`` if they are None.
        """
        report = asdict(self)
        for name in ("until", "everywhere", "nearest", "query"):
            if report[name] is None:
                del report[name]
        if self.chat is None:
            del report["chat"], report["message"]
        return report


@dataclass(frozen=True)
class PrepareReport:
    """One document that was prefilled ahead of questions; what ``prepare --json`` prints of it. ``kept``: stored pages,
    tokens and bytes.
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
        """Returns the report as JSON."""
        return {**asdict(self), "kv": asdict(self.kv) if self.kv else {}}
