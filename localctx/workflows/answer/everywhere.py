"""Asks one question about every passage of documents, several passages at a time. Groups and counts the answers.

If the pages of a passage are kept, only the question is prefilled. Answers are stored as they come. So a stopped
question resumes where it was stopped, and the same question is answered immediately when it is asked again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Note, PassageAnswered, Progress, Token
from localctx.engine.gather import gather
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.request_report import EverywhereReport
from localctx.engine.run_request import rank_request
from localctx.errors import Cancelled, NothingFound, StoreError
from localctx.library.citations.answer_groups import describe_groups, describe_unsure, group_answers
from localctx.library.search.search import Passage, all_passages, cut_passages
from localctx.library.wording.language import language_warnings
from localctx.store.documents import StoredDocument
from localctx.store.passage_answers import PassageKey, StoredAnswer
from localctx.store.store import Store, store_errors
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.every_passage import RATE, cache_ids, current_documents, estimate_cost, open_store
from localctx.workflows.answer.passage_question import AnswerPassage, PassageAnswer, PassageQuestion, passage_key
from localctx.workflows.answer.question_kind import without_instruction
from localctx.workflows.answer.question_likelihood import question_alone
from localctx.workflows.index_documents import index_words

MAX_SIDE_BY_SIDE = 16  # passages in one forward pass; with more, each passage is hardly cheaper
SAVE_EVERY = 1.0  # seconds between saves of answers
MIN_RATED = 8  # passages; a shorter run says little about speed


class EverywhereWorkflow:
    """Builds requests that ask a question about every passage; ``ask_every_passage`` answers them."""

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder, self._runtime = builder, builder.runtime

    def open(
        self, documents: Sequence[StoredDocument] | None, question: str, persist: bool, best: int = 0
    ) -> EngineCoroutine[Request]:
        """Build the request that asks ``question`` about every passage of ``documents`` (None: of the whole library).
        With ``best``, only that many passages are asked.

        If ``persist``, kept pages and answers are reused, and new ones are kept. The prompt of this request is the
        question alone. Raises NothingFound if there is no passage.
        """
        start = time.perf_counter()
        with open_store(self._runtime, persist) as store, store_errors(store.home):
            documents = yield from self._enter(store, documents)
            passages = _passages_of(store, documents, question)
            if not passages:
                raise NothingFound("there is no text to answer from", "name a document with text")
            cost = estimate_cost(self._builder, store, passages, [p.text for p in passages], question)
        yield from map(Note, language_warnings(self._runtime.settings, documents))
        request = question_alone(self._builder, question)
        request.prompt.documents, request.prompt.passages = documents, passages
        request.result.everywhere = EverywhereReport(len(passages), persist, best)
        request.adapter = self._runtime.adapter
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

    def _enter(
        self, store: Store, documents: Sequence[StoredDocument] | None
    ) -> EngineCoroutine[Sequence[StoredDocument]]:
        """Store and index ``documents``, and return them. For None, index and return the documents of the library."""
        rows = current_documents(store) if documents is None else [document.row for document in documents]
        for document in documents or ():
            store.documents.add(*document.whole)
        yield from index_words(self._runtime, store, {row.id for row in rows})
        if documents is not None:
            return list({document.id: document for document in documents}.values())
        return [StoredDocument(row, store.documents.text(row.id), store.documents.spans(row.id)) for row in rows]


def ask_every_passage(case: AnswerCase, answer_passage: AnswerPassage) -> EngineCoroutine[None]:
    """Ask the question about each passage without a stored answer, with ``answer_passage``. Yield all answers together,
    as the text of one answer.

    The answers are also added to the report, in groups. Raises Cancelled; the report and the store then have the
    answers given so far.
    """
    request = case.request
    compared = case.settings.careful != "off" and not request.adapter
    likelihood = (yield from rank_request(request)) if compared else 0.0
    asking = _PassageLoop(case.builder, request, PassageQuestion(case, answer_passage, likelihood))
    try:
        yield from asking.run()
    except Cancelled:
        yield from asking.tell()
        raise
    yield from asking.tell()
    request.result.stopped = "eos" if request.result.citations else "unanswered"


class _PassageLoop:
    """Asks the question about every passage of a request."""

    def __init__(self, builder: RequestBuilder, request: Request, question: PassageQuestion) -> None:
        assert request.result.everywhere, "the request asks every passage"
        self._builder, self._request, self._question, self._runtime = builder, request, question, builder.runtime
        self._report, self._recipe = request.result.everywhere, question.recipe
        self._passages: Sequence[Passage] = request.prompt.passages
        self._answers = dict[PassageKey, StoredAnswer | None]()
        self._unsaved = list[PassageAnswer]()
        self._told = set[str]()  # notes already yielded
        self._failed = ""  # why answers could not be stored
        self._started = self._saved = time.perf_counter()

    def run(self) -> EngineCoroutine[None]:
        """Ask about every passage without a stored answer. Raises Cancelled."""
        if self._report.persist:
            ids = [document.id for document in self._request.prompt.documents]
            self._answers |= self._runtime.read_store(lambda s: s.passage_answers.of(self._recipe, ids)) or {}
        likeliest = sorted(self._passages, key=lambda passage: -passage.score)[: self._report.best or None]
        waiting = [p for p in likeliest if passage_key(p) not in self._answers]
        self._report.asked = self._report.reused_answers = sum(passage_key(p) in self._answers for p in self._passages)
        yield self._progress()
        try:
            yield from gather(self._ask, waiting, MAX_SIDE_BY_SIDE)
        finally:
            self._save()
            self._report.seconds = round(time.perf_counter() - self._started, 4)
        self._note_rates(len(waiting))

    def tell(self) -> EngineCoroutine[None]:
        """Yields the answers so far as text, and sets the report's groups and citations."""
        if self._failed and self._failed not in self._told:
            yield Note(self._failed)
        self._report.asked = sum(passage_key(p) in self._answers for p in self._passages)
        found = [PassageAnswer(p, answer) for p in self._passages if (answer := self._answers.get(passage_key(p)))]
        said, unsure = ([one for one in found if one.answer and one.answer.sure is sure] for sure in (True, False))
        groups = group_answers([one.answer.text for one in said if one.answer])
        self._request.result.citations = [one.citation for one in (*said, *unsure)]
        self._report.groups = [group.to_json() for group in groups]
        self._report.answered, self._report.unsure = len(said), len(unsure)
        self._report.silent = self._report.asked - len(found)
        sentences = [one.sentence for one in said]
        asked, total = self._report.asked, self._report.passages
        lengths = {document.id: len(document.whole.text) for document in self._request.prompt.documents}
        text = (
            describe_groups(groups, [one.citation for one in said], sentences, lengths, asked)
            if said
            else _nothing(asked, total)
        )
        if unsure:
            text += f"\n\n{describe_unsure([one.citation for one in unsure], lengths)}"
        if asked < total:
            limited = 0 < self._report.best <= asked
            told = "Only {} of {} passages were asked." if limited else "Stopped after {} of {} passages."
            text += f"\n\n{told.format(f'{asked:,}', f'{total:,}')}"
        for line in text.splitlines(keepends=True):
            self._request.result.answers[0].append(Token(line, 0))
            yield self._request.result.answers[0][-1]

    def _ask(self, passage: Passage) -> EngineCoroutine[None]:
        """Ask about one passage, and record the answer."""
        self._save_if_due()  # answers of one forward pass come together: the first of them saved itself only
        answered = yield from self._question.ask(passage, self._report.persist)
        for name, count in answered.tokens.items():
            self._report.tokens[name] += count
        self._answers[answered.key] = answered.answer
        self._unsaved.append(answered)
        self._save_if_due()
        for note in answered.notes:
            if note not in self._told:  # yield each note once
                self._told.add(note)
                yield Note(note)
        if answered.answer:
            yield PassageAnswered(answered.answer.text, answered.citation.to_json())
        self._report.asked += 1  # counted here, because all coroutines of one forward pass first reach the event above
        yield self._progress()

    def _progress(self) -> Progress:
        done, total, reused = self._report.asked, self._report.passages, self._report.reused_answers
        rate = (done - reused) / (time.perf_counter() - self._started)
        return Progress("asking passages", done, total, reused, rate or None, (total - done) / rate if rate else None)

    def _save_if_due(self) -> None:
        if time.perf_counter() - self._saved >= SAVE_EVERY:
            self._save()

    def _save(self) -> None:
        unsaved, self._unsaved, self._saved = self._unsaved, [], time.perf_counter()
        used = cache_ids(self._builder.fingerprint, [one.passage for one in unsaved])

        def write(store: Store) -> None:
            store.passage_answers.put(self._recipe, [(one.key, one.answer) for one in unsaved])
            store.caches.note_used(used)

        if unsaved:
            self._try(write)

    def _note_rates(self, asked: int) -> None:
        """Store a measured rate for the next estimate: passages per second if most pages were kept, else prefilled
        tokens per second.
        """
        tokens, seconds, fingerprint = self._report.tokens, self._report.seconds, self._builder.fingerprint

        def write(store: Store) -> None:
            if 2 * tokens["reused"] > tokens["prompt"]:
                store.caches.note_rate(fingerprint, asked / seconds, RATE)
            elif not store.caches.rate(fingerprint):
                store.caches.note_rate(fingerprint, tokens["prefilled"] / seconds)

        if asked >= MIN_RATED:
            self._try(write)

    def _try(self, write: Callable[[Store], None]) -> None:
        """Call ``write`` with the store, if the request is persisted. If writing fails, nothing more is stored, but the
        user still gets the answer.
        """
        if not self._report.persist or self._failed:
            return
        try:
            store = self._runtime.store
            with store_errors(store.home):
                write(store)
        except StoreError as e:
            self._failed = str(e)


def _passages_of(store: Store, documents: Sequence[StoredDocument], question: str) -> list[Passage]:
    """Returns the passages of ``documents``, scored by the question's words. Text after a mark is left out."""
    by_id = {document.id: document for document in documents}
    passages = all_passages(store, list(by_id), without_instruction(question))
    by_document = groupby(passages, lambda passage: passage.document)
    return [passage for id, found in by_document for passage in cut_passages(list(found), by_id[id])]


def _nothing(asked: int, total: int) -> str:
    if asked < total:
        return "No passage that was asked so far answers this question."
    said = "The one passage does not answer" if asked == 1 else f"None of the {asked:,} passages answers"
    return f"{said} this question."
