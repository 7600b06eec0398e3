"""Reports of a request: the objects behind ``--json``. Fields may be added, but are never renamed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

BY_WORDS = "sources were found by their words: llama.cpp does not tell what the model attended to"
"""Note shown beside citations with the source ``words``."""


def dropped_tokens(evicted: Sequence[Mapping[str, float]], prompt: int) -> int:
    """Returns how many of the first ``prompt`` tokens were evicted, so that the answer did not see them. ``evicted``
    are the ranges of a ``KVReport``. A range that some KV heads kept counts in part.
    """
    return round(sum((min(e["stop"], prompt) - min(e["start"], prompt)) * (1 - e["kept"]) for e in evicted))


@dataclass(frozen=True)
class TokenCounts:
    """The numbers of tokens of one answered request. ``prompt`` is the length of the prompt: ``reused`` of these tokens
    come from kept pages, ``prefilled`` are computed now. ``generated`` counts the tokens of all answers, ``longest``
    those of the longest answer. Prompt lookup ``drafted`` some tokens, of which ``accepted`` were right.
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
    """The KV cache at the end of a request. ``pages`` and ``bytes`` map the name of each tier to the number of pages
    there and their size in bytes. ``window`` is in tokens; ``chunk`` is the maximum number of tokens prefilled in one
    step. ``evicted`` are the ranges ``start..stop`` of the prompt that the keeper evicted; ``kept`` is the share (0 to
    1) of a range that each KV head still keeps. ``map`` is a ``PageMap`` as JSON. ``engine`` names the engine that
    holds the cache. ``reading`` is the setting with this name (full or sparse prefill).
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
    """The report on a question that is put to every passage. There are ``passages`` passages in all. If ``best`` is
    set, only the ``best`` likeliest ones are to be asked. ``asked`` were asked so far: ``answered`` of them answer the
    question, ``unsure`` may answer it, ``silent`` do not. For ``reused_answers`` passages the store had an answer. Each
    of ``groups`` is a group of equal answers, with their count and the indices of their citations. ``tokens`` (of all
    prompts) and ``seconds`` exclude stored answers. ``persist`` is True if pages and answers are kept in the store.
    """

    passages: int
    persist: bool
    best: int = 0
    asked: int = 0
    answered: int = 0
    unsure: int = 0
    silent: int = 0
    reused_answers: int = 0
    groups: list[dict[str, Any]] = field(default_factory=list)
    tokens: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("prompt", "reused", "prefilled", "generated"), 0)
    )
    seconds: float = 0.0


@dataclass
class ComparedReport:
    """The report on a question that compares documents. ``question`` was put to each of them; it is several questions
    if several subjects are compared. ``order`` is the value asked for: lower, higher, earlier, later, shorter, longer
    or none. ``values`` are the answers, in the order of the documents: ``state`` (said, missing or unsure), ``text``,
    ``value``, ``unit``, ``period`` and ``question``. ``best`` are the ids of the documents with the value asked for,
    empty without a verdict. ``persist`` is True if pages are kept.
    """

    question: str
    order: str
    persist: bool
    values: list[dict[str, Any]] = field(default_factory=list)
    best: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class AnswerReport:
    """The report on one answered question, which ``ask --json`` prints.

    ``seconds`` maps each phase to its duration. Each of ``citations`` has the fields of a ``Citation``, and each of
    ``sentences``, the sentences of the answer, has the fields of an ``AnswerSentence``. ``decoding`` is ``quote`` if
    the answer consists of words of the documents, else ``free``. ``confidence`` is the probability that the text
    answers the question, None if no adapter rates it. ``withheld`` is an answer that was not given because its
    confidence is too low. ``adapter`` names the adapter that answered, None if none did. ``nearest`` is the passage
    nearest to a question that nothing answers, in the form of a citation; it is not an answer, and not among the
    ``citations``. ``chat`` and ``message`` are ids, set in a chat. ``until`` (``ReadUntil`` as JSON) is set if only the
    beginning of a document was read, ``everywhere`` if every passage was asked, ``compared`` if documents were
    compared, and ``query`` (SQL) if the answer was computed over a table.
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
    compared: ComparedReport | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the report as JSON. Drops ``chat`` and ``message`` outside of chats, and ``until``, ``everywhere``,
        ``nearest``, ``query`` and ``compared`` if they are None.
        """
        report = asdict(self)
        for name in ("until", "everywhere", "nearest", "query", "compared"):
            if report[name] is None:
                del report[name]
        if self.chat is None:
            del report["chat"], report["message"]
        return report


@dataclass(frozen=True)
class PrepareReport:
    """The report on one document that was prefilled ahead of questions, as ``prepare --json`` prints it. ``tokens`` has
    the numbers of ``prompt``, ``reused`` and ``prefilled`` tokens. ``kept`` has the numbers of stored ``pages``,
    ``tokens`` and ``bytes``. ``seconds`` maps each phase to its duration.
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
