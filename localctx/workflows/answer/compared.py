"""Answers a question that is put to each of several documents, and compares their values if the question does.

Each document is read alone, so that its kept pages are reused. ``workflows.comparing`` recognizes such questions.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Event, Note, Progress, SentenceChecked, Token, WholeOffered
from localctx.engine.prompt import estimate_tokens
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.request_report import ComparedReport
from localctx.engine.run_request import run_request
from localctx.errors import Cancelled, NothingFound, StoreError
from localctx.library.citations.sentence_sources import AnswerSentence, Support
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.no_answer import no_answer
from localctx.library.wording.word_forms import content_forms
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.abstention import says_nothing
from localctx.workflows.answer.answer_case import AnswerCase, MakeAnswer
from localctx.workflows.answer.each_document import asked_of_each
from localctx.workflows.answer.question_likelihood import question_alone
from localctx.workflows.comparing.document_value import DocumentValue, missing, read_value
from localctx.workflows.comparing.rules import ComparingQuestion
from localctx.workflows.comparing.verdict import compared_values, line_of, value_of, verdict_line, winners
from localctx.workflows.comparing.wording import WORDINGS

SAME = "The same in all: {noun} {value}"  # of a subject in which documents that are compared do not differ


class ComparedWorkflow:
    """Opens requests that compare documents; ``compare_documents`` answers them."""

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder = builder

    def open(self, documents: Sequence[StoredDocument] | None, question: str, persist: bool) -> Request | None:
        """Build the request that asks each of ``documents``. Its prompt is the question alone.

        With ``persist``, kept pages are reused, and new ones are kept. Returns None if the documents are asked
        together, or if ``documents`` is None (the whole library).
        """
        given = list({document.id: document for document in documents or ()}.values())
        asked = asked_of_each(question, given)
        if not asked:
            return None
        request = question_alone(self._builder, question)
        request.prompt.documents, request.prompt.comparison = given, asked
        request.adapter = self._builder.runtime.adapter
        plain = " ".join(question.plain for question in (asked, *asked.others))
        request.result.compared = ComparedReport(plain, asked.order, persist)
        request.result.token_totals = {"prompt": 0, "reused": 0, "prefilled": 0, "generated": 0}
        texts = [document.text for document in given]
        request.plan = replace(
            request.plan,
            mode="compared",
            reason=f"each of {len(given)} documents is asked: {plain}",
            tokens=estimate_tokens(self._builder.model.tokenizer, texts, 0, self._builder.runtime.cancelled),
            reused=0,
            seconds=None,
            unusual=True,
        )
        return request


def compare_documents(case: AnswerCase, make_answer: MakeAnswer) -> EngineCoroutine[None]:
    """Ask the plain question about each document with ``make_answer``, and emit a line with each document's answer. A
    line with the verdict follows, if there is one.

    Raises Cancelled; the answer then says how many documents were asked.
    """
    comparison = _Comparison(case, make_answer)
    try:
        yield from comparison.run()
    except Cancelled:
        yield from comparison.tell_stopped()
        raise
    case.request.result.stopped = "eos" if case.request.result.citations else "unanswered"


class _Comparison:
    """Asks the documents of a request, one after the other."""

    def __init__(self, case: AnswerCase, make_answer: MakeAnswer) -> None:
        request, asked = case.request, case.request.prompt.comparison
        assert isinstance(asked, ComparingQuestion), "the request was opened for a comparison"
        assert request.result.compared, "the request has its report"
        assert case.open_documents, "the case can open further requests"
        self._case, self._make_answer, self._report = case, make_answer, request.result.compared
        self._questions = (asked, *asked.others)
        self._request, self._documents, self._open = request, request.prompt.documents, case.open_documents
        self._settings = replace(case.settings, n=1, beams=1)
        self._wording = WORDINGS[asked.language]
        self._told, self._total = set[str](), len(self._documents) * len(self._questions)

    def run(self) -> EngineCoroutine[None]:
        """Ask each question about every document. Emit a line for each document and the verdict or, for several
        questions, a table in Markdown with a row for each question. Raises Cancelled.
        """
        yield self._progress()
        if len(self._questions) == 1:
            yield from self._compare(self._questions[0])
            return
        same = list[tuple[str, DocumentValue]]()
        for asked in self._questions:
            values = list[DocumentValue]()
            for document, label in self._labelled:
                values.append((yield from self._value(asked, document, label)))
            if not asked.implied or _are_different(asked.noun, values):
                yield from self._tell_row(asked.noun, values)
            elif all(value.state == "said" for value in values) and asked.noun not in values[0].text.split():
                same.append((asked.noun, values[0]))
        for noun, value in same:
            yield from self._tell(SAME.format(noun=noun, value=value.text), value.citation, before="\n\n")
        if not self._request.text:
            yield from self._tell(no_answer(self._case.question))

    def _compare(self, asked: ComparingQuestion) -> EngineCoroutine[None]:
        values = list[DocumentValue]()
        for document, label in self._labelled:
            values.append((yield from self._value(asked, document, label)))
            yield from self._tell(line_of(values[-1], self._wording), values[-1].citation)
        compared = compared_values(asked, values)
        self._report.best = [value.document for value in winners(asked.order, compared)]
        yield from self._tell(verdict_line(asked.order, compared, self._wording))

    def _value(self, asked: ComparingQuestion, document: StoredDocument, label: str) -> EngineCoroutine[DocumentValue]:
        value = replace((yield from self._ask(asked, document)), name=label)
        self._report.values.append(value.to_json() | {"question": asked.plain})
        yield self._progress()
        return value

    def _tell_row(self, noun: str, values: Sequence[DocumentValue]) -> EngineCoroutine[None]:
        """Emit a row of the table, after its head if it is the first row. Each cell is a sentence with its source."""
        if not self._request.text:
            yield from self._emit(f"| | {' | '.join(_cell(label) for _, label in self._labelled)} |\n")
            yield from self._emit("|---" * (len(values) + 1) + "|")
        yield from self._emit(f"\n| {_cell(noun[0].upper() + noun[1:])}")
        for value in values:
            yield from self._tell(_cell(value_of(value, self._wording)), value.citation, before=" | ")
        yield from self._emit(" |")

    def tell_stopped(self) -> EngineCoroutine[None]:
        """Emit a line that says how many answers there were before the stop, if any."""
        if done := len(self._report.values):
            before = "\n" if len(self._questions) == 1 else "\n\n"  # after a table, an empty line
            yield from self._tell(self._wording.stopped.format(done=done, total=self._total), before=before)

    @property
    def _labelled(self) -> Iterator[tuple[StoredDocument, str]]:
        return zip(self._documents, _labels(self._documents), strict=True)

    def _progress(self) -> Progress:
        return Progress("comparing documents", len(self._report.values), self._total)

    def _ask(self, asked: ComparingQuestion, document: StoredDocument) -> EngineCoroutine[DocumentValue]:
        """Ask about one document, in the document's language. Returns the value that the document gives. Raises
        Cancelled.
        """
        plain = asked.plain_in(language_of(document.text))
        try:
            request = yield from map_events(self._open_one(document, plain), self._note)
        except NothingFound:
            return missing(document)
        case = AnswerCase(self._case.builder, request, plain, self._settings)
        yield from map_events(run_request(request, self._make_answer(case)), self._note)
        self._count(request)
        for note in (*request.persist_notes, *filter(None, [request.persist_error])):
            yield from filter(None, [self._note(Note(note))])
        if request.result.stopped == "cancelled":
            raise Cancelled
        if request.result.stopped == "unanswered" or says_nothing(request):
            return missing(document)
        return read_value(asked, document, request.texts[0], _citations(request))

    def _open_one(self, document: StoredDocument, plain: str) -> EngineCoroutine[Request]:
        """Open the request for one document. If the store fails, this request and all further ones are opened without
        the store.
        """
        try:
            return (yield from self._open([document], plain, self._report.persist))
        except StoreError as e:
            if not self._report.persist:
                raise
            self._report.persist = False
            yield Note(str(e))
            return (yield from self._open([document], plain, False))

    def _note(self, event: Event) -> Event | None:
        """Returns the event if the user should see it: a note that was not yielded before, or progress. Returns None
        for other events, which belong to the answers from single documents.
        """
        if isinstance(event, Note) and not isinstance(event, WholeOffered) and event.text not in self._told:
            self._told.add(event.text)
            return event
        return event if isinstance(event, Progress) else None

    def _count(self, request: Request) -> None:
        """Add the tokens and seconds of one document's request to the totals."""
        totals, counts = self._request.result.token_totals, asdict(request.token_counts())
        assert totals is not None, "it is set where the request is opened"
        for name in totals:
            totals[name] += counts[name]
        seconds = Counter(self._request.seconds)
        seconds.update({phase: request.seconds.get(phase, 0.0) for phase in ("search", "restore", "rank", "prefill")})
        self._request.seconds = dict(seconds)

    def _tell(self, line: str, citation: Citation | None = None, before: str = "\n") -> EngineCoroutine[None]:
        """Yield ``before``, a line of the answer, and the event SentenceChecked with the line's source."""
        if not line:
            return
        result = self._request.result
        yield from self._emit(before if self._request.text else "")
        start = len(self._request.text)
        yield from self._emit(line)
        number = None
        if citation:
            result.citations = [*result.citations, citation]
            number = len(result.citations)
        support: Support = "supported" if citation else "unchecked"
        sentence = AnswerSentence(start, start + len(line), support, number, citation).to_json()
        result.sentences.append(sentence)
        yield SentenceChecked(sentence)

    def _emit(self, text: str) -> EngineCoroutine[None]:
        if text:
            self._request.seconds.setdefault("first_token", time.perf_counter() - self._request.started)
            self._request.result.answers[0].append(Token(text, 0))
            yield self._request.result.answers[0][-1]


def _are_different(noun: str, values: Sequence[DocumentValue]) -> bool:
    """Returns True if the documents say different things about ``noun``, or only some of them say something. "Two
    months' notice" and "two months" are the same.
    """
    states = {value.state for value in values}
    said = {frozenset(content_forms(value.text) - content_forms(noun)) for value in values}
    return "said" in states and "unsure" not in states and (len(said) > 1 or len(states) > 1)


def _cell(text: str) -> str:
    """Returns ``text`` as one cell of a table in Markdown."""
    return " ".join(text.replace("|", "/").split())


def _labels(documents: Sequence[StoredDocument]) -> list[str]:
    """Returns the names of the documents. Documents with the same name get numbers."""
    names = [document.name for document in documents]
    return [f"{name} ({i})" if names.count(name) > 1 else name for i, name in enumerate(names, 1)]


def _citations(request: Request) -> list[Citation]:
    """Returns the citations of an answer, then the passages that support its sentences."""
    sentences = map(AnswerSentence.from_json, request.result.sentences)
    return [*request.result.citations, *(sentence.source for sentence in sentences if sentence.source)]
