"""Answers from passages: search finds passages by words and vectors, and the model ranks them.

A passage is ranked by the likelihood of the question after it; the best passages are read for the answer. The pages of
every passage are persisted, so that ranking the passage for another question prefills only the question.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Note, Planned
from localctx.engine.prompt import NO_CONVERSATION, Conversation, estimate_tokens
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.request_report import PrepareReport
from localctx.engine.run_request import close_request, prefill_request, rank_request
from localctx.errors import NothingFound
from localctx.library.search.search import Passage, join_adjacent
from localctx.library.wording.language import language_warnings
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, store_errors
from localctx.workflows.answer.every_passage import offer_whole, open_store, part_of
from localctx.workflows.answer.find_passages import FoundPassages, find_passages, passage_count
from localctx.workflows.answer.question_kind import with_adapter
from localctx.workflows.answer.question_likelihood import without_question
from localctx.workflows.answer.several_documents import combine, measured_blending
from localctx.workflows.index_documents import make_searchable

MAX_RANKED = 5  # passages whose likelihood is computed
SEARCH_WEIGHT = 20  # nats for a search score of 1; the first and the fifth passage then differ by about two nats


@dataclass(frozen=True)
class _Question:
    """A question to answer from passages, and ``why`` the documents are not read whole."""

    text: str
    why: str
    persist: bool
    conversation: Conversation


class RetrievalWorkflow:
    """Finds passages and builds requests that answer from them."""

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder, self._runtime = builder, builder.runtime

    def open(
        self,
        documents: Sequence[StoredDocument] | None,
        question: str,
        persist: bool,
        why: str,
        conversation: Conversation = NO_CONVERSATION,
    ) -> EngineCoroutine[Request]:
        """Build and prefill the request that answers ``question`` from the best passages of ``documents`` (None: of the
        library).

        If ``persist``, kept pages are reused and new pages are kept. ``why`` is the reason why the documents are not
        read whole, which the plan shows. In a chat, the history stands between the passages and the question, and does
        not influence the ranking. Raises UserError, Cancelled.
        """
        with open_store(self._runtime, persist) as store:
            return (yield from self._open(store, documents, _Question(question, why, persist, conversation)))

    def prepare(self, document: StoredDocument) -> EngineCoroutine[PrepareReport]:
        """Make a document searchable. Raises Cancelled."""
        start, runtime = time.perf_counter(), self._runtime
        with store_errors(runtime.store.home):
            runtime.store.documents.add(*document)
            yield from make_searchable(runtime, runtime.store, [document.id], math.inf)
        tokens = estimate_tokens(self._builder.model.tokenizer, [document.text], 0)
        return PrepareReport(
            document=document.id,
            name=document.name,
            model=runtime.settings.model,
            stopped="eos",
            tokens={"prompt": tokens, "reused": 0, "prefilled": 0},
            seconds={"search": round(time.perf_counter() - start, 4), "prefill": 0.0},
        )

    @property
    def count(self) -> int:
        """The number of passages that are put into the prompt."""
        return passage_count(self._runtime)

    def _open(
        self, store: Store, documents: Sequence[StoredDocument] | None, question: _Question
    ) -> EngineCoroutine[Request]:
        start = time.perf_counter()
        with store_errors(store.home):
            if documents is not None and not question.conversation.chat:  # a chat's documents are stored with it
                for document in documents:
                    store.documents.add(*document.whole)
            top = max(MAX_RANKED, self.count)
            found = yield from find_passages(self._runtime, store, documents, question.text, top)
            if not found.passages:
                what = f"{question.why}, and no passage of the documents matches the question"
                raise NothingFound(what, "ask in other words")
        searched = time.perf_counter() - start
        yield from map(Note, language_warnings(self._runtime.settings, list(found.documents.values()), searched=True))
        if found.warning:
            yield Note(found.warning)
        offer = offer_whole(self._builder, store, documents, [p.text for p in found.passages], question.text)
        if offer:
            yield offer
        requests = yield from self._begin(found, question)
        start = time.perf_counter()
        request = yield from self._best(store, requests, found, question)
        request.result.offered = offer.ways if offer else {}
        request.started -= searched
        request.seconds |= {"search": searched, "rank": time.perf_counter() - start}
        return request

    def _begin(self, found: FoundPassages, question: _Question) -> EngineCoroutine[list[Request]]:
        """Build a request for each passage, and yield the plan. After an error, the requests are closed."""
        alone = replace(NO_CONVERSATION, max_tokens=question.conversation.max_tokens)
        asked, requests = with_adapter(self._runtime, alone, question.text), list[Request]()
        try:
            for passage in found.passages:
                plain = replace(passage, text=without_question(passage.text, question.text))
                requests.append(self._build([found.documents[passage.document]], [plain], question, asked))
            yield self._plan(requests, question.why)
        except BaseException:
            for request in requests:
                close_request(request)
            raise
        return requests

    def _build(
        self,
        documents: Sequence[StoredDocument],
        passages: Sequence[Passage],
        question: _Question,
        conversation: Conversation,
    ) -> Request:
        texts, part = [p.text for p in passages], part_of(passages)
        return self._builder.build(
            documents, texts, question.text, persist=question.persist, part=part, conversation=conversation
        )

    def _plan(self, requests: Sequence[Request], why: str) -> Planned:
        """Returns one plan for all requests, each of which ranks one passage."""
        plans = [request.plan for request in requests]
        seconds = [p.seconds for p in plans if p.seconds is not None]
        return replace(
            plans[0],
            mode="retrieve",
            reason=f"{why}: the answer comes from the best {self.count} of {len(requests)} passages found",
            tokens=sum(len(request.prompt.ranking.tokens) for request in requests if request.prompt.ranking),
            reused=sum(p.reused for p in plans),
            kv_bytes=sum(p.kv_bytes for p in plans),
            seconds=sum(seconds) if len(seconds) == len(plans) else None,
            unusual=True,
        )

    def _best(
        self, store: Store, requests: Sequence[Request], found: FoundPassages, question: _Question
    ) -> EngineCoroutine[Request]:
        """Rank the passages. Returns the request that answers from the best passages, and closes all other requests."""
        open_requests = list(requests)
        try:
            likelihoods = yield from self._rank(requests)
            scores = [n + SEARCH_WEIGHT * p.score for n, p in zip(likelihoods, found.passages, strict=True)]
            order = sorted(range(len(requests)), key=lambda i: -scores[i])
            best = order[: self.count]
            if len(best) == 1 and not (question.conversation.chat or question.conversation.history):
                request = open_requests.pop(best[0])
                request.prompt.passages = [found.passages[best[0]]]
            else:
                chosen = [(found.passages[i], requests[i]) for i in best]
                chosen.sort(key=lambda one: (one[0].document, one[0].start))
                request = yield from self._join(store, chosen, found.documents, question)
        finally:
            for other in open_requests:
                close_request(other)
        listed = [{**asdict(p), "likelihood": round(n, 3)} for p, n in zip(found.passages, likelihoods, strict=True)]
        request.prompt.candidates, request.result.ranked = [listed[i] for i in order], requests
        request.plan = replace(request.plan, mode="retrieve")
        request.result.question_likelihood = max(likelihoods)
        return request

    def _rank(self, requests: Sequence[Request]) -> EngineCoroutine[list[float]]:
        likelihoods = list[float]()
        for i, request in enumerate(requests):
            self._runtime.report("ranking passages", i, len(requests))
            request.begin_persisting()
            likelihoods.append((yield from rank_request(request)))
        return likelihoods

    def _join(
        self,
        store: Store,
        chosen: Sequence[tuple[Passage, Request]],
        documents: dict[str, StoredDocument],
        question: _Question,
    ) -> EngineCoroutine[Request]:
        """Build and prefill a request with several passages, in the order of the text, so that the same passages always
        give the same prompt. Adjacent passages are joined unless their caches are blended.
        """
        passages = [passage for passage, _ in chosen]
        blending = measured_blending(self._builder)
        if not blending:
            passages = sorted(join_adjacent(store, passages), key=lambda p: (p.document, p.start))
        used = [documents[d] for d in dict.fromkeys(p.document for p in passages)]
        asked = with_adapter(self._runtime, question.conversation, question.text)
        request = self._build(used, passages, question, asked)
        try:
            request.begin_persisting()
            if blending:
                yield from combine(self._builder, request, [ranked for _, ranked in chosen], blending)
            yield from prefill_request(request)
        except BaseException:
            close_request(request)
            raise
        request.prompt.passages = passages
        return request
