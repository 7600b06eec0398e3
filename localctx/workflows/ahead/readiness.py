"""Makes documents ready for questions, and reports how much time that saves.

The time is measured, or predicted from measured rates.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Event, Progress
from localctx.engine.prompt import NO_CONVERSATION
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import close_request, prefill_request
from localctx.errors import TooLong
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.ahead.model_questions import able_to_ask, model_questions, rule_questions
from localctx.workflows.ahead.suggested_questions import COUNT, Candidates, SuggestedQuestions
from localctx.workflows.ahead.tried_questions import (
    CANDIDATES,
    MAX_SECONDS,
    Suggesting,
    rates_answers,
    try_questions,
)
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.answer.each_document import are_alike
from localctx.workflows.answer.question_kind import with_adapter
from localctx.workflows.comparing.comparing_question import FEWEST, MOST
from localctx.workflows.index_documents import make_searchable
from localctx.workflows.read_sources import read_sources
from localctx.workflows.read_until import locate_mark, read_until
from localctx.workflows.summary_time import MAX_UNASKED, estimate_summary_seconds

TYPICAL_QUESTION = "What does it say about the first of these points?"
RECENT = 50  # number of last answers among which answers from passages are searched
MAX_MEASURED = 5  # the latest answers from passages, whose times are used


@dataclass(frozen=True)
class Readiness:
    """Says how ready documents are for questions.

    ``whole`` is True if the documents are read whole, and False if answers come from passages. ``starts`` is the number
    of seconds until an answer starts, and ``saved`` is how many seconds of prefill the kept pages save; both are None
    if nothing was measured. ``read`` is the number of seconds that prefill has just taken, 0 if all pages were kept
    already. ``failed`` says why pages could not be persisted, or is "". ``questions`` are suggested by the model, if it
    is large enough. ``summary`` is how many seconds a summary takes; None if that is unknown, or so long that key
    sentences are shown first.
    """

    whole: bool
    starts: float | None = None
    saved: float | None = None
    read: float = 0.0
    failed: str = ""
    questions: tuple[str, ...] = ()
    summary: float | None = None


class ReadinessWorkflow:
    """Prefills documents before the user asks about them, and suggests questions. After a cancel, finished pages are
    kept.
    """

    def __init__(self, builder: RequestBuilder, ask: AskWorkflow) -> None:
        self._builder, self._ask, self._runtime = builder, ask, builder.runtime

    def make_ready(self, documents: Sequence[str], until: str = "") -> EngineCoroutine[Readiness]:
        """Prefill stored documents (ids) in the way in which most questions about them would prefill them: one by one
        if they are alike, else together. If they are too long to be read whole, make them searchable instead.

        ``until`` is a mark in the only document, such as ``40%``, ``page 12`` or words of the document. The text after
        the mark is not read. Raises UserError, Cancelled.
        """
        with self._runtime.running():
            self._runtime.load()
            # after loading, because the documents may change while the model loads
            stored = read_sources(self._runtime, documents)
            if until:
                beginning, _ = read_until(self._builder.model.tokenizer, stored, until)
                stored = [beginning]
            ready = replace((yield from self._make_all_ready(stored)), summary=self._summary_seconds(stored))
            if able_to_ask(self._builder) and len(stored) == 1 and not until:
                questions = yield from model_questions(self._builder, self._ask, stored[0], ready.whole)
                ready = replace(ready, questions=tuple(questions))
            return ready

    def suggest(self, documents: Sequence[str], until: str = "", count: int = COUNT) -> list[str]:
        """Returns up to ``count`` questions that stored documents (ids) answer, best first. The questions are made by
        rules, without loading a model, and are not tried.

        ``until`` is a mark in the only document, such as ``40%``, ``page 12`` or words of the document. The text after
        the mark is not used.
        """
        stored = read_sources(self._runtime, documents)
        if until:
            stored = [stored[0].beginning(locate_mark(stored, until))]
        return rule_questions(stored, count)

    def candidates(self, documents: Sequence[str], until: str = "") -> Candidates:
        """Returns the questions of ``suggest``: more of them if they are tried before they are suggested."""
        tried = rates_answers(self._runtime.settings)
        return Candidates(tuple(self.suggest(documents, until, CANDIDATES if tried else COUNT)), tried)

    def suggest_found(
        self, documents: Sequence[str], ready: Readiness, candidates: Candidates, until: str = ""
    ) -> Suggesting:
        """Suggest up to COUNT questions about stored documents (ids), first those by the model, then the candidates. If
        answers are rated, only questions are suggested that were tried and found, one after the other.

        Nothing is tried if ``ready`` predicts that an answer starts after more than MAX_SECONDS. Raises UserError,
        Cancelled.
        """
        questions = list(dict.fromkeys([*ready.questions, *candidates.questions]))
        if not candidates.tried or self._runtime.adapter is None:
            yield SuggestedQuestions(tuple(questions[:COUNT]))
        else:
            may_ask = (ready.starts or 0.0) <= MAX_SECONDS
            yield from try_questions(self._builder, self._ask, documents, questions, until, may_ask)

    def _make_all_ready(self, documents: Sequence[StoredDocument]) -> EngineCoroutine[Readiness]:
        """Prefill documents that are alike one by one, because a plain question is put to each of them."""
        if not (FEWEST <= len(documents) <= MOST and are_alike(documents)):
            return (yield from self._make_ready(documents))
        each = list[Readiness]()
        for place, document in enumerate(documents):
            share = partial(_share_of_progress, place, len(documents))
            each.append((yield from map_events(self._make_ready([document]), share)))
        return _joined(each)

    def _make_ready(self, documents: Sequence[StoredDocument]) -> EngineCoroutine[Readiness]:
        if not self._ask.why_passages(documents):
            try:
                return (yield from self._read_whole(documents))
            except TooLong:
                if self._runtime.settings.mode == "full":
                    raise
        yield from self._index(documents)
        return Readiness(False, self._measured_start())

    def _read_whole(self, documents: Sequence[StoredDocument]) -> EngineCoroutine[Readiness]:
        request = yield from self._ask.open_whole(documents, None, True)
        started = time.perf_counter()
        try:
            yield from prefill_request(request)
        finally:
            close_request(request)
        read = time.perf_counter() - started if request.prefilled else 0.0
        failed = request.persist_error or "; ".join(request.persist_notes)
        first = self._first_question(request.prompt.documents)
        return Readiness(True, *first, read, failed)

    def _first_question(self, documents: Sequence[StoredDocument]) -> tuple[float | None, float | None]:
        """Returns the seconds until an answer starts, and the seconds of prefill that kept pages save. The time to
        restore kept pages is measured with a typical question; the time to prefill the rest is predicted from the
        measured rate.
        """
        started = time.perf_counter()
        conversation = with_adapter(self._runtime, NO_CONVERSATION, TYPICAL_QUESTION)
        texts = [document.text for document in documents]
        request = self._builder.build(documents, texts, TYPICAL_QUESTION, persist=True, conversation=conversation)
        built = time.perf_counter() - started
        request.cache.drop()
        return _predicted(request, built)

    def _index(self, documents: Sequence[StoredDocument]) -> EngineCoroutine[None]:
        store = self._runtime.store
        with store_errors(store.home):
            yield from make_searchable(self._runtime, store, [document.id for document in documents])

    def _summary_seconds(self, documents: Sequence[StoredDocument]) -> float | None:
        seconds = estimate_summary_seconds(self._builder, documents)
        return seconds if seconds is not None and seconds <= MAX_UNASKED else None

    def _measured_start(self) -> float | None:
        """Returns how many seconds it took until an answer started: the median of the last answers from passages with
        this model. Returns None if there are no such answers.
        """
        model = self._runtime.settings.model
        recent = self._runtime.read_store(lambda store: store.chats.recent_stats(RECENT)) or []
        starts = [s["seconds"]["first_token"] for s in recent if (s.get("model"), s.get("mode")) == (model, "retrieve")]
        return median(starts[:MAX_MEASURED]) if starts else None


def _share_of_progress(place: int, count: int, event: Event) -> Event:
    """Returns the progress with one of ``count`` documents as progress with all of them, and other events unchanged.
    The remaining time is only known for the last document.
    """
    if not isinstance(event, Progress):
        return event
    eta = event.eta if place == count - 1 else None
    return replace(event, done=place * event.total + event.done, total=count * event.total, eta=eta)


def _joined(each: Sequence[Readiness]) -> Readiness:
    """Returns the Readiness of documents that each were made ready."""
    starts, saved = [r.starts for r in each], [r.saved for r in each]
    return Readiness(
        all(r.whole for r in each),
        sum(filter(None, starts)) if None not in starts else None,
        sum(filter(None, saved)) if None not in saved else None,
        sum(r.read for r in each),
        next((r.failed for r in each if r.failed), ""),
    )


def _predicted(request: Request, built: float) -> tuple[float | None, float | None]:
    plan, left = request.plan, len(request.prompt.tokens) - request.plan.reused
    if plan.seconds is None or left <= 0:
        return None, None
    return built + plan.seconds, plan.reused * plan.seconds / left
