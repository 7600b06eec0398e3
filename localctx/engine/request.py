"""A request: one question, or one document to prefill. It has a prompt, the state of its run, and a result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from localctx.budget import measure_process
from localctx.document_parts import Citation
from localctx.engine.decoding.confidence import Evidence
from localctx.engine.decoding.drafting import PromptLookup
from localctx.engine.decoding.repetition import Repetition
from localctx.engine.events import Planned, Token
from localctx.engine.kv_engine import KVEngine
from localctx.engine.persistence.memory_prefixes import Sharing
from localctx.engine.persistence.persister import Persister
from localctx.engine.planning.cache_plan import OomRecovery
from localctx.engine.prompt import Prompt
from localctx.engine.prompt_wording import NOT_SAID
from localctx.engine.request_report import (
    AnswerReport,
    ComparedReport,
    EverywhereReport,
    KVReport,
    PrepareReport,
    TokenCounts,
)
from localctx.kv.cache import Cache
from localctx.kv.eviction_log import EvictedRange
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.adapter import Adapter
from localctx.models.base import Model
from localctx.models.token_controls import NO_CONTROLS, TokenControls
from localctx.store.documents import StoredDocument

PHASES = ("load", "parse", "search", "restore", "rank", "prefill", "first_token", "decode")

Decoding = Literal["free", "quote"]
"""How an answer is decoded: in the model's own words, or limited to runs of the documents' words."""


@dataclass(slots=True)
class RequestPrompt:
    """The prompt of a request: the documents that it reads, the question, and the tokens. The request builder makes it.
    Retrieval and workflows add the passages that were found.
    """

    documents: Sequence[StoredDocument]
    tokens: list[int]  # of the whole prompt
    boundary: int  # tokens before it are the same for any question
    cuts: Sequence[int]  # prefill chunks end here; pages are persisted up to the last
    ranking: Prompt | None  # prompt to score a passage; the same up to the boundary
    document_ends: Sequence[int] = ()  # tokens where all documents but the last end
    asked_before: str = ""  # the question that this one follows in a chat
    begun: str = ""  # beginning of a continued answer, included in text and texts
    next_tokens: Callable[[str], list[int]] = lambda answer: []  # from answer to the tokens before a next question
    passages: Sequence[Any] = ()  # that the question is answered from
    candidates: Sequence[dict[str, Any]] = ()  # passages found, as JSON
    until: dict[str, Any] | None = None  # set if only the beginning of a document is read
    possible_queries: Sequence[str] = ()  # SQL queries over a table, of which the model chooses one
    unused_words: Sequence[str] = ()  # of a question about a table, for which no query answers it
    comparison: Any = None  # the ComparingQuestion that each of several documents is asked

    @property
    def sources(self) -> list[tuple[StoredDocument, int, int]]:
        """The texts that are read, each as (document, first character, end): the passages or, if there are none, whole
        documents.
        """
        if not self.passages:
            return [(document, 0, len(document.text)) for document in self.documents]
        documents = {document.id: document for document in self.documents}
        return [(documents[p.document], p.start, p.end) for p in self.passages if p.document in documents]


@dataclass(slots=True)
class RequestResult:
    """The result of a request: the answers, and everything else that the report needs."""

    answers: list[list[Token]] = field(default_factory=lambda: [[]])
    stopped: str = "cancelled"  # why generation ended
    decoding: Decoding = "free"
    likelihood: float = 0.0  # mean log-likelihood of a greedy answer's tokens
    citations: Sequence[Citation] = field(default_factory=list)
    sentences: list[dict[str, Any]] = field(default_factory=list)  # with the passages that support them
    nearest: Citation | None = None  # passage nearest to a question that nothing answers
    question_likelihood: float | None = None  # log-likelihood of the question after the best passage
    evidence: Evidence | None = None  # likelihoods from which the confidence is computed
    confidence: float | None = None  # probability that the text answers the question
    withheld: str | None = None  # an answer that was not confident enough
    ranked: Sequence["Request"] = ()  # the requests that ranked the candidates
    everywhere: EverywhereReport | None = None  # set if every passage is asked
    compared: ComparedReport | None = None  # set if documents are compared
    token_totals: dict[str, int] | None = None  # sums over the prompts, if an answer is made from many
    query: str | None = None  # SQL that computed the answer over a table
    matched_rows: int = 0  # rows of the table that the query counted or selected, of which some are cited
    offered: Mapping[str, float | None] = field(default_factory=dict)  # ways to read documents whole, with seconds
    evicted: list[EvictedRange] = field(default_factory=list)
    kv: KVReport | None = None  # set when the request is closed


@dataclass(slots=True)
class Request:
    """One request while it runs: its ``prompt``, its ``result``, the model, cache and persister that it uses, and its
    progress.
    """

    model_name: str  # as the settings name it
    plan: Planned  # shown before it runs
    prompt: RequestPrompt
    engine: KVEngine
    model: Model
    cache: SequenceCache
    adapter: Adapter | None  # applies to the prompt's last tokens and the answer
    persister: Persister | None  # None: pages are not persisted
    recovery: OomRecovery  # makes room when memory runs out
    started: float  # the clock's time when the request was built
    seconds: dict[str, float]  # by phase
    sharing: Sharing | None = None  # in-memory prefix cache
    planned_chunk: int = 0  # tokens of a chunk, before ``recovery`` makes it smaller
    restored: int = 0  # number of first tokens that came from the store or from earlier prompts
    restore_notes: list[str] = field(default_factory=list)  # say why no more tokens were restored
    controls: TokenControls = NO_CONTROLS  # control sampling, in addition to the settings
    logits: Tensor | None = None  # after the prompt
    prefilled: int = 0  # tokens
    prefilled_to_rank: int = 0  # tokens of a passage that was ranked
    lookup: PromptLookup = field(default_factory=lambda: PromptLookup((), 0))  # drafts tokens
    repetition: Repetition = field(default_factory=Repetition)  # detects an answer that repeats itself
    result: RequestResult = field(default_factory=RequestResult)

    def after_chunk(self, cache: Any) -> None:
        """Persist the pages prefilled so far, or share them with other prompts. Call this after each chunk."""
        if self.persister:
            self.persister(cache)
        if self.sharing:
            self.sharing.after_chunk(cache, self.recovery.chunk == self.planned_chunk)

    def begin_persisting(self) -> None:
        """Register the documents and the cache in the store, before prefill."""
        if self.persister:
            self.persister.register(self.cache)

    @property
    def continues(self) -> bool:
        """True if the question follows another one in a chat."""
        return bool(self.prompt.asked_before)

    @property
    def paged_cache(self) -> Cache:
        """The cache as a ``Cache`` of our own pages. Asserts that the request runs with the torch engine."""
        assert isinstance(self.cache, Cache), "the engine is torch"
        return self.cache

    @property
    def not_said(self) -> str:
        """The sentence with which the model replies that the text does not answer the question. The adapter may have
        its own; the default is localctx's.
        """
        return (self.adapter.not_said if self.adapter else "") or NOT_SAID

    @property
    def text(self) -> str:
        """The text of the first answer as generated, with white space at both ends."""
        return self.prompt.begun + "".join(token.text for token in self.result.answers[0])

    @property
    def texts(self) -> list[str]:
        """The texts of all answers, without white space at either end."""
        return [(self.prompt.begun + "".join(token.text for token in answer)).strip() for answer in self.result.answers]

    @property
    def cited(self) -> list[dict[str, Any]]:
        """The citations as JSON, for reports and chats: a list with the fields of each ``Citation``."""
        return [citation.to_json() for citation in self.result.citations]

    @property
    def persist_error(self) -> str | None:
        """The reason why the pages could not be persisted, in one line. None if they were persisted, or need not be."""
        return str(self.persister.failed) if self.persister and self.persister.failed else None

    @property
    def persist_notes(self) -> list[str]:
        """Notes for the user about persisting, one line each: caches that were evicted from the store, tokens for which
        the store had no room, or problems with the remote store.
        """
        return self.persister.notes if self.persister else []

    def record_kv(self) -> None:
        """Record the report on the cache and its evicted ranges. Call this before the cache is dropped."""
        self.result.evicted = list(self.cache.evicted)
        self.result.kv = self.engine.report(
            self.cache, window=self.plan.window, chunk=self.recovery.chunk, restored=self.restored
        )

    def answer_report(self) -> AnswerReport:
        """Returns the report of an answered question. Raises AssertionError before the request is closed."""
        texts = self.texts
        return AnswerReport(
            answer=texts[0],
            answers=texts,
            mode=self.plan.mode,
            model=self.model_name,
            adapter=self.adapter.name if self.adapter else None,
            stopped=self.result.stopped,
            tokens=self.token_counts(),
            passages=list(self.prompt.candidates),
            ranking=self._ranking(),
            seconds=self._seconds(),
            kv=self._recorded_kv(),
            memory={"peak_bytes": measure_process().peak},
            citations=self.cited,
            sentences=self.result.sentences,
            everywhere=self.result.everywhere,
            decoding=self.result.decoding,
            confidence=self.result.confidence,
            withheld=self.result.withheld,
            nearest=self.result.nearest.to_json() if self.result.nearest else None,
            until=self.prompt.until,
            query=self.result.query,
            compared=self.result.compared,
        )

    def prepare_report(self) -> PrepareReport:
        """Returns the report of a document that was prefilled ahead of questions."""
        row = self.prompt.documents[0].row
        tokens = {"prompt": len(self.prompt.tokens), "reused": self.plan.reused, "prefilled": self.prefilled}
        report = PrepareReport(row.id, row.name, self.model_name, self.result.stopped, tokens)
        return replace(report, kept=self._kept(), seconds=self._seconds(), kv=self._recorded_kv())

    def chat_stats(self) -> dict[str, Any]:
        """Returns the statistics that a chat stores with the answer, as JSON: ``model``, ``adapter``, ``mode``,
        ``tokens``, ``seconds``, ``kv`` and ``sentences``, and a few more if they apply. Call it while the cache is
        open.
        """
        kv = {"codec": self.cache.pool.codec, "keeper": self.cache.keeper.name, "window": self.plan.window}
        kv |= {"evicted": [asdict(evicted) for evicted in self.cache.evicted]}
        counts = {"tokens": asdict(self.token_counts()), "seconds": self._seconds()}
        until = {"until": self.prompt.until} if self.prompt.until else {}
        used = {"model": self.model_name, "adapter": self.adapter.name if self.adapter else None}
        offered = {"offered": dict(self.result.offered)} if self.result.offered else {}
        nearest = {"nearest": self.result.nearest.to_json()} if self.result.nearest else {}
        query = {"query": self.result.query, "rows": self.result.matched_rows} if self.result.query else {}
        told = {"kv": kv, "sentences": self.result.sentences, **nearest}
        return {**used, "mode": self.plan.mode, **counts, **told, **until, **offered, **query}

    def token_counts(self) -> TokenCounts:
        """Returns the numbers of tokens counted so far. For an answer made from many prompts, returns the totals over
        these prompts.
        """
        if totals := self.result.everywhere.tokens if self.result.everywhere else self.result.token_totals:
            return TokenCounts(**totals, longest=0)
        return TokenCounts(
            prompt=len(self.prompt.tokens),
            reused=self.plan.reused,
            prefilled=self.prefilled,
            generated=sum(map(len, self.result.answers)),
            longest=max(map(len, self.result.answers)),
            drafted=self.lookup.drafted,
            accepted=self.lookup.accepted,
        )

    def _recorded_kv(self) -> KVReport:
        assert self.result.kv, "a request is reported once it is closed"
        return self.result.kv

    def _ranking(self) -> dict[str, int] | None:
        """Returns the numbers of tokens of all requests that ranked a passage; None if no passage was ranked."""
        if not (ranked := self.result.ranked):
            return None
        prompts = [request.prompt.ranking for request in ranked]
        return {
            "passages": len(ranked),
            "tokens": sum(len(prompt.tokens) for prompt in prompts if prompt),
            "reused": sum(request.plan.reused for request in ranked),
            "prefilled": sum(request.prefilled_to_rank for request in ranked),
        }

    def _kept(self) -> dict[str, int]:
        if not self.persister or not self.persister.kept:
            return {"pages": 0, "tokens": 0, "bytes": 0}
        return {"pages": self.persister.kept, "tokens": self.persister.kept_tokens, "bytes": self.persister.nbytes}

    def _seconds(self) -> dict[str, float]:
        return {phase: round(self.seconds.get(phase, 0.0), 4) for phase in PHASES}
