"""Ask everywhere: a question is put to every passage, side by side, from kept pages; answers are grouped and counted.

Only the question is read where a passage's pages are kept. Answers are stored as they come, so that a question that was
stopped goes on where it was, and is answered at once when it is asked again.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Note, PassageAnswered, Progress, Token
from localctx.engine.gather import gather
from localctx.engine.prompt_wording import NOT_SAID
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.request_report import EverywhereReport
from localctx.engine.run_request import close_request, rank_request
from localctx.errors import Cancelled, NothingFound
from localctx.library.answer_groups import describe_groups, group_answers
from localctx.library.cite import Citation, split_words
from localctx.library.language import language_warnings
from localctx.library.search import Passage, all_passages, index_all
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.store.passage_answers import PassageKey, StoredAnswer
from localctx.store.store import Store, store_errors
from localctx.workflows.close_reading import (
    invents,
    is_likelier,
    question_alone,
    reads_closely,
    without_question,
    without_tokens,
)
from localctx.workflows.every_passage import RATE, current_documents, estimate_cost, open_store, part_of
from localctx.workflows.summary_task import digest

MAX_SIDE_BY_SIDE = 16  # passages; a forward pass with more of them is not much cheaper for each
MAX_ANSWER = 96  # tokens of one passage's answer
SAVE_EVERY = 16  # answers: as many are lost if the process is killed
MIN_RATED = 8  # passages; fewer say little about speed
MIN_WORDS = 0.6  # of the question's words, by weight, that a passage must have if it does not make it likelier
RECIPE = "everywhere 1"  # raise the number when answers of passages come to be made otherwise

_INSTRUCTIONS = re.compile(
    r"\b(list|name|find|count|tell|give|show|me|please|all|every|each|any|many|often|much|ever|anyone|anybody|there)\b",
    re.IGNORECASE,
)

AnswerPassage = Callable[[Request, str, Settings], EngineCoroutine[None]]
"""The coroutine that answers a question from the request's one passage, and cites it."""


class EverywhereWorkflow:
    """Asks every passage; ``answer_passage`` answers from one."""

    def __init__(self, builder: RequestBuilder, answer_passage: AnswerPassage) -> None:
        self._builder, self._answer_passage, self._runtime = builder, answer_passage, builder.runtime

    def open(
        self, documents: Sequence[StoredDocument] | None, question: str, persist: bool
    ) -> EngineCoroutine[Request]:
        """Build the request that asks every passage of ``documents`` (None: of the whole library). Its own prompt is
        the question alone. Raises NothingFound if there is no passage.
        """
        start = time.perf_counter()
        with open_store(self._runtime, persist) as store, store_errors(store.home):
            documents = self._enter(store, documents)
            passages = all_passages(store, [d.id for d in documents], _INSTRUCTIONS.sub(" ", question))
            if not passages:
                raise NothingFound("there is no text to ask", "name a document that has some")
            cost = estimate_cost(self._builder, store, passages, [p.text for p in passages], question)
        yield from map(Note, language_warnings(self._runtime.settings, documents))
        request = question_alone(self._builder, question)
        request.documents, request.passages, request.answer_from = documents, passages, "everywhere"
        request.everywhere = EverywhereReport(len(passages), persist)
        request.plan = replace(
            request.plan,
            mode="everywhere",
            reason=f"every passage is asked: {cost}",
            tokens=cost.tokens,
            reused=cost.reused,
            seconds=cost.seconds,
            unusual=True,
        )
        request.seconds["search"] = time.perf_counter() - start
        yield request.plan
        return request

    def answer(self, request: Request, question: str, settings: Settings) -> EngineCoroutine[None]:
        """Ask the passages that have no stored answer; give all answers as text, and as groups in the report.

        Raises Cancelled, with the answers so far in the report and the store.
        """
        one = replace(settings, n=1, beams=1, draft=0)  # side by side a drafted token takes another passage's place
        alone = (yield from rank_request(request)) if settings.careful != "off" else 0.0
        asking = _Asking(self._builder, self._answer_passage, request, question, one, alone)
        try:
            yield from asking.run()
        except Cancelled:
            yield from asking.tell()
            raise
        yield from asking.tell()
        request.stopped = "eos" if request.citations else "unanswered"

    def _enter(self, store: Store, documents: Sequence[StoredDocument] | None) -> Sequence[StoredDocument]:
        """Store and index the documents; returns them, or those of the library."""
        rows = current_documents(store) if documents is None else [document.row for document in documents]
        for document in documents or ():
            if not store.documents.has(document.id):
                store.documents.add(*document)
        index_all(store, None, {row.id for row in rows}, self._runtime.report, self._runtime.cancelled)
        if documents is not None:
            return list({document.id: document for document in documents}.values())
        return [StoredDocument(row, store.documents.text(row.id), store.documents.spans(row.id)) for row in rows]


@dataclass(frozen=True)
class _Answered:
    """The answer of a passage with its citation; None if it does not answer the question."""

    passage: Passage
    answer: StoredAnswer | None

    @property
    def key(self) -> PassageKey:
        """The key under which the answer is stored."""
        return _key(self.passage)

    @property
    def citation(self) -> Citation:
        """The citation of the answer."""
        assert self.answer, "only what was said is cited"
        p, (_, start, end) = self.passage, self.answer
        quote = p.text[start - p.start : end - p.start]
        return Citation(p.document, p.name, p.page, p.heading, start, end, quote, "passage", 1.0)


class _Asking:
    """One question that is being put to every passage. ``alone`` is its log-likelihood without a passage."""

    def __init__(
        self,
        builder: RequestBuilder,
        answer_passage: AnswerPassage,
        request: Request,
        question: str,
        settings: Settings,
        alone: float,
    ) -> None:
        assert request.everywhere, "the request asks every passage"
        self._builder, self._answer_passage, self._runtime = builder, answer_passage, builder.runtime
        self._request, self._question, self._settings, self._alone = request, question, settings, alone
        self._report = request.everywhere
        self._documents = {document.id: document for document in request.documents}
        self._answers = dict[PassageKey, StoredAnswer | None]()
        self._unsaved = list[_Answered]()
        self._told = set[str]()  # notes that were given
        self._started = time.perf_counter()
        self._recipe = self._make_recipe()

    def run(self) -> EngineCoroutine[None]:
        """Ask every passage that has no stored answer. Raises Cancelled."""
        passages: Sequence[Passage] = self._request.passages
        if self._report.persist:
            found = self._runtime.read_store(
                lambda store: store.passage_answers.of(self._recipe, list(self._documents))
            )
            self._answers |= found or {}
        waiting = [p for p in passages if _key(p) not in self._answers]
        self._report.asked = self._report.reused_answers = len(passages) - len(waiting)
        yield self._progress()
        try:
            yield from gather(self._ask, waiting, MAX_SIDE_BY_SIDE)
        finally:
            self._save()
            self._report.seconds = round(time.perf_counter() - self._started, 4)
        self._note_rates(len(waiting))

    def tell(self) -> EngineCoroutine[None]:
        """Yield the answers so far as text, and set the report's groups and citations."""
        passages: Sequence[Passage] = self._request.passages
        self._report.asked = sum(_key(p) in self._answers for p in passages)
        said = [_Answered(p, answer) for p in passages if (answer := self._answers.get(_key(p)))]
        groups = group_answers([one.answer.text for one in said if one.answer])
        self._request.citations = [asdict(one.citation) for one in said]
        self._report.groups = [group.to_json() for group in groups]
        asked, total = self._report.asked, self._report.passages
        lengths = {document.id: len(document.text) for document in self._documents.values()}
        text = describe_groups(groups, self._request.citations, lengths, asked) if said else _nothing(asked)
        if asked < total:
            text += f"\n\nStopped after {asked:,} of {total:,} passages."
        for line in text.splitlines(keepends=True):
            self._request.answers[0].append(Token(line, 0))
            yield self._request.answers[0][-1]

    def _ask(self, passage: Passage) -> EngineCoroutine[None]:
        """Ask one passage, and note its answer."""
        self._runtime.check_cancelled()
        document, text = self._documents[passage.document], without_question(passage.text, self._question)
        request = self._builder.build(
            [document], [text], self._question, persist=self._report.persist, part=part_of([passage])
        )
        request.passages = [passage]
        request.plan = replace(request.plan, answer_tokens=min(request.plan.answer_tokens, MAX_ANSWER))
        try:
            if request.restored < request.boundary:
                request.begin_persisting()
            yield from map_events(self._answer(request), lambda event: event if isinstance(event, Note) else None)
        finally:
            close_request(request)
        self._count(request)
        yield from self._note(_Answered(passage, self._answer_of(request, passage)))
        yield from self._notes((*request.persist_notes, *filter(None, [request.persist_error])))

    def _answer(self, request: Request) -> EngineCoroutine[None]:
        """Answer from the passage, if it answers the question."""
        likelihood = yield from rank_request(request)
        if not self._answers_question(request, likelihood):
            request.stopped = "unanswered"
            return
        if reads_closely(request.model, self._settings):
            request.answer_from = "sentences"
        yield from without_tokens(self._answer_passage(request, self._question, self._settings))

    def _answers_question(self, request: Request, likelihood: float) -> bool:
        """True if a passage may answer the question, whose log-likelihood after the passage is ``likelihood``: it makes
        the question likelier, or has most of its words. A passage that says how many gates there are makes "list all
        gates" no likelier.
        """
        has_words = request.passages[0].score >= MIN_WORDS
        return self._settings.careful == "off" or has_words or is_likelier(likelihood, self._alone, self._request)

    def _answer_of(self, request: Request, passage: Passage) -> StoredAnswer | None:
        """The passage's answer, or None. An answer that invents a name or a number is replaced by its quotation."""
        text = request.texts[0]
        if request.stopped == "unanswered" or not text or split_words(text) == split_words(NOT_SAID):
            return None
        start, end = passage.start, passage.end
        if request.citations:
            cited = request.citations[0]
            start, end = cited["start"], cited["end"]
            if self._settings.careful != "off" and invents(text, passage.text, self._question):
                text = cited["quote"]
        return StoredAnswer(text, start, end)

    def _note(self, answered: _Answered) -> EngineCoroutine[None]:
        self._answers[answered.key] = answered.answer
        self._unsaved.append(answered)
        if len(self._unsaved) >= SAVE_EVERY:
            self._save()
        if answered.answer:
            yield PassageAnswered(answered.answer.text, asdict(answered.citation))
        self._report.asked += 1  # here, because the coroutines of one pass all come to the event before
        yield self._progress()

    def _progress(self) -> Progress:
        done, total, reused = self._report.asked, self._report.passages, self._report.reused_answers
        rate = (done - reused) / (time.perf_counter() - self._started)
        return Progress("asking passages", done, total, reused, rate or None, (total - done) / rate if rate else None)

    def _save(self) -> None:
        unsaved, self._unsaved = self._unsaved, []
        if unsaved and self._report.persist:
            store = self._runtime.store
            with store_errors(store.home):
                store.passage_answers.put(self._recipe, [(one.key, one.answer) for one in unsaved])

    def _count(self, request: Request) -> None:
        counts = asdict(request.token_counts())
        for name in self._report.tokens:
            self._report.tokens[name] += counts[name]

    def _notes(self, notes: Sequence[str]) -> EngineCoroutine[None]:
        """Yield each note once, whichever passage it is about."""
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                yield Note(note)

    def _note_rates(self, asked: int) -> None:
        """Store the rates for the next plan: of reading passages, or of asking kept ones."""
        tokens, seconds = self._report.tokens, self._report.seconds
        if asked < MIN_RATED or not self._report.persist:
            return
        fingerprint, store = self._builder.fingerprint, self._runtime.store
        with store_errors(store.home):
            if 2 * tokens["reused"] > tokens["prompt"]:
                store.caches.note_rate(fingerprint, asked / seconds, RATE)
            elif not store.caches.rate(fingerprint):
                store.caches.note_rate(fingerprint, tokens["prefilled"] / seconds)

    def _make_recipe(self) -> str:
        """A hash of everything that a passage's answer depends on, except the passage."""
        s = self._settings
        sampling = (s.temperature, s.top_p, s.top_k, s.seed) if s.temperature else ()
        values = (
            RECIPE,
            self._question,
            self._builder.fingerprint.hex(),
            s.careful,
            s.repeats,
            s.max_tokens,
            *sampling,
        )
        return digest([str(value) for value in values])


def _key(passage: Passage) -> PassageKey:
    return passage.document, passage.start, passage.end


def _nothing(asked: int) -> str:
    return f"{NOT_SAID} None of its {asked:,} passages answers this question."
