"""Answers in the model's own words from the prompt, or continues an answer that was cut off."""

import time
from collections import deque
from collections.abc import Iterator, Sequence

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine, flat_map_events
from localctx.engine.decoding.attribution import attention_by_text
from localctx.engine.events import Event, Quoted, Token
from localctx.engine.request import Request
from localctx.engine.run_request import generate_tokens
from localctx.library.citations.cite import cite_from_attention, cite_passages, cite_words
from localctx.workflows.answer.abstention import is_not_said
from localctx.workflows.answer.answer_case import AnswerCase

MAX_WAIT = 2.0  # seconds to hold back the first tokens, because the answer so far decides the quotation


def answer_from_prompt(case: AnswerCase) -> EngineCoroutine[None]:
    """Generate the answer, and cite the text that supports it."""
    yield from generate_tokens(case.request, case.settings)
    case.request.result.citations = find_citations(case.request, case.question)


def continue_answer(case: AnswerCase) -> EngineCoroutine[None]:
    """Continue the answer that begins with the text ``begun`` of the request and has the citations ``cited``.

    At the end, the request has the whole answer with citations. After a cancel, it has only the citations of the
    beginning.
    """
    request = case.request
    try:
        yield from generate_tokens(request, case.settings)
    finally:
        request.result.citations = case.cited
    request.result.citations = _joined(case.cited, find_citations(request, case.question))


def quote_first(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering``, and emit a quotation that supports the answer before its first token.

    To find the quotation, tokens are held back until the answer has ended, or for at most MAX_WAIT seconds after the
    first token. The quotation then supports the answer so far.
    """
    buffer = _TokenBuffer(case)
    return flat_map_events(answering, buffer.on_event, buffer.flush)


def find_citations(request: Request, question: str) -> list[Citation]:
    """Returns citations of the first answer.

    If the prompt has passages, they are sentences of the passages. Otherwise they are sentences of the documents: the
    sentences with most of the model's attention or, if attention was not recorded, those with words of the answer.
    """
    if request.prompt.passages:
        return cite_passages(request.texts[0], question, request.prompt.passages)
    if request.cache.attention_mass is None:
        return cite_words(request.texts[0], question, request.prompt.documents)
    texts = [document.text for document in request.prompt.documents]
    read = request.prompt.tokens[: request.prompt.boundary]
    shares = attention_by_text(request.cache, request.model.tokenizer, read, texts)
    return cite_from_attention(request.texts[0], question, request.prompt.documents, shares)


class _TokenBuffer:
    """Buffers the tokens of an answer until a quotation that supports the answer is found."""

    def __init__(self, case: AnswerCase) -> None:
        self._case, self._tokens, self._first, self._quoted = case, deque[Event](), 0.0, False

    def on_event(self, event: Event) -> Iterator[Event]:
        """Buffer tokens, and pass on other events immediately. Release the tokens once the first one has waited for
        MAX_WAIT seconds.
        """
        if not isinstance(event, Token):
            yield event
            return
        self._first = self._first or time.monotonic()
        self._tokens.append(event)
        if time.monotonic() - self._first >= MAX_WAIT:
            yield from self.flush()

    def flush(self) -> Iterator[Event]:
        """Yield the quotation, unless it was yielded before, and the buffered tokens."""
        if self._tokens and not self._quoted:
            self._quoted = True
            yield from filter(None, [_quotation(self._case.request, self._case.question)])
        while self._tokens:
            yield self._tokens.popleft()


def _quotation(request: Request, question: str) -> Quoted | None:
    found = [] if is_not_said(request) else cite_passages(request.texts[0], question, request.prompt.passages)
    return Quoted(found[0].to_json()) if found else None


def _joined(first: Sequence[Citation], more: Sequence[Citation]) -> list[Citation]:
    """Returns the ``first`` citations, of an answer's beginning, and those of ``more`` that cite other places."""
    return [*first, *(c for c in more if not any(_overlap(c, known) for known in first))]


def _overlap(a: Citation, b: Citation) -> bool:
    return a.document == b.document and a.start < b.end and b.start < a.end
