"""Checks each sentence of an answer while it streams, and reports the passage that supports the sentence."""

from collections.abc import Iterator, Sequence

from localctx.engine.coroutine import EngineCoroutine, flat_map_events
from localctx.engine.events import Event, SentenceChecked, Token
from localctx.engine.request import Request
from localctx.library.citations.sentence_sources import AnswerSentence, SupportFinder, check_quotes
from localctx.library.citations.source_index import DocumentRange, SourceText
from localctx.library.wording.sentences import sentences
from localctx.workflows.answer.abstention import is_not_said
from localctx.workflows.answer.answer_case import AnswerCase


def check_sentences(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering``, and emit an event SentenceChecked after each sentence of the first answer.

    At the end, even after a cancel or an error, the checked sentences are stored in the result of the request.
    """
    checker = _Checker(case.request, case.question)
    try:
        yield from flat_map_events(answering, checker.on_event, checker.at_end)
    finally:
        case.request.result.sentences = [sentence.to_json() for sentence in checker.all_sentences()]


class _Checker:
    """Checks each sentence of an answer when the next sentence begins."""

    def __init__(self, request: Request, question: str) -> None:
        self._request, self._text = request, request.prompt.begun.lstrip()
        # sentences of the beginning, if an answer is continued
        begun = list(sentences(self._text, 0, len(self._text)))[:-1]
        # number of sentences reported, and the end of the last one
        self._told, self._end = len(begun), begun[-1][1] if begun else 0
        self._finder = SupportFinder([SourceText.of(*source) for source in request.prompt.sources], question)

    def on_event(self, event: Event) -> Iterator[Event]:
        """Pass on every event, and report the sentences that have ended. A sentence that ended before this token is
        reported before the token.
        """
        ended, before = list[AnswerSentence](), len(self._text.rstrip())
        if isinstance(event, Token) and not event.answer and event.text:
            self._text = (self._text + event.text).lstrip()
            if any(map(str.isspace, event.text)):
                ranges = list(sentences(self._text, self._end, len(self._text)))[:-1]
                ended = [self._finder.check_sentence(self._text, *of, self._near) for of in ranges]
        yield from self._tell([sentence for sentence in ended if sentence.end <= before])
        yield event
        yield from self._tell([sentence for sentence in ended if sentence.end > before])

    def at_end(self) -> Iterator[Event]:
        """Report the remaining sentences."""
        yield from self._tell(self.all_sentences()[self._told :])

    def all_sentences(self) -> list[AnswerSentence]:
        """Returns the checked sentences of the request's answer. They are unchecked if the answer is that the text does
        not answer the question.
        """
        request, answer = self._request, self._request.texts[0]
        if is_not_said(request):
            return [AnswerSentence(*of, "unchecked") for of in sentences(answer, 0, len(answer))]
        if request.result.decoding == "quote" and request.result.citations:
            return check_quotes(answer, request.result.citations)
        return self._finder.check(answer, request.result.stopped in ("eos", "repeated"), self._near)

    def _tell(self, checked: Sequence[AnswerSentence]) -> Iterator[Event]:
        self._told, self._end = self._told + len(checked), checked[-1].end if checked else self._end
        yield from (SentenceChecked(sentence.to_json()) for sentence in checked)

    @property
    def _near(self) -> list[DocumentRange]:
        return [citation.range for citation in self._request.result.citations]
