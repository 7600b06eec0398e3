"""Answers in quotations: decoding is limited to sequences of words that occur in the documents.

So an answer invents no words, and the place of every word in the text is known.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.prefill_decode import out_of_memory_as_kv_error
from localctx.engine.decoding.span_index import Place, SpanIndex
from localctx.engine.decoding.span_search import QuotedAnswer, SpanSearch
from localctx.engine.events import Quoted, Token
from localctx.engine.prompt_wording import BEFORE_QUOTE
from localctx.engine.request import Request
from localctx.engine.run_request import emit_text, prefill_request
from localctx.library.citations.cite import cite_characters, cite_passages, cite_words, likeliest_sentence
from localctx.library.wording.yes_no import clause_after
from localctx.models.base import ForwardRequest
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.answer_case import AnswerCase

MAX_TOKENS = 64  # tokens of a quoted answer
MAX_RUNS = 8  # sequences of words in an answer that is a list


@dataclass(frozen=True)
class QuotingStyle:
    """The parameters by which a model answers in words of the text.

    The answer begins after the text ``prefix``, and each of the texts ``ends`` ends it, like a stop token. Answers are
    compared by their log-likelihood divided by ``(tokens + 1) ** length_penalty``, so a higher ``length_penalty``
    favours longer answers (0: the likeliest answer wins).
    """

    prefix: str = ""
    ends: tuple[str, ...] = ()
    length_penalty: float = 0.0


UNTRAINED = QuotingStyle(BEFORE_QUOTE, ('"', '".', '",', ".", '."'), 0.25)
"""For models that continue after the answer if not stopped (measured with the default model)."""


class _Source(NamedTuple):
    """A ``text`` that was read: the part of ``document`` that begins at character ``start``."""

    document: StoredDocument
    start: int
    text: str


def answer_in_quotes(case: AnswerCase) -> EngineCoroutine[None]:
    """Find the likeliest answer that consists of words of the text. Emit first the sentence that contains the answer,
    then the answer.

    The citations are the sentences from which the words come. An answer of yes or no cites sentences about the
    question. Raises Cancelled, OutOfKVMemory.
    """
    request = case.request
    if request.logits is None:
        yield from prefill_request(request)
    assert request.logits is not None, "a prompt always ends with tokens that are not kept, and are prefilled"
    request.result.decoding = "quote"
    sources = [_Source(document, start, document.text[start:end]) for document, start, end in request.prompt.sources]
    limit = min(request.plan.answer_tokens, case.settings.max_tokens, MAX_TOKENS)
    found = yield from _search(request, sources, QuotingStyle() if request.adapter else UNTRAINED, limit)
    if found:
        yield from _give(request, case.question, found[0], sources)
    else:
        yield from emit_text(request, request.not_said)
        request.result.stopped = "unanswered"


def _search(
    request: Request, sources: Sequence[_Source], style: QuotingStyle, limit: int
) -> EngineCoroutine[list[QuotedAnswer]]:
    """Search for answers in words of ``sources``, which begin after the prompt and the style's prefix. Returns complete
    answers, best first.
    """
    assert request.logits is not None, "the prompt was prefilled"
    tokenizer, cache, logits = request.model.tokenizer, request.cache.fork(recording=False), request.logits
    index = SpanIndex(tokenizer, [source.text for source in sources])
    ends = tokenizer.stop_ids | {index.encode(end)[0] for end in style.ends}
    search = SpanSearch(index, ends, limit=limit, max_runs=MAX_RUNS, length_penalty=style.length_penalty)
    try:
        if style.prefix:
            with out_of_memory_as_kv_error(cache):
                logits = (yield ForwardRequest(tokenizer.encode(style.prefix), cache))[-1]
        return (yield from search.run(cache, logits))
    finally:
        cache.drop()


def _give(request: Request, question: str, answer: QuotedAnswer, sources: Sequence[_Source]) -> EngineCoroutine[None]:
    """Yields the sentence that contains ``answer``, then the answer's tokens. Sets the answer and its citations in the
    result.
    """
    runs = [_best_place(places, sources, question) for places in answer.places]
    words = [" ".join(sources[place.text].text[place.start : place.end].split()) for place, _ in runs]
    between = [f"{separator} ".replace("\n ", "\n") for separator in answer.separators]
    text = "".join(part for pair in zip(words, [*between, ""], strict=True) for part in pair)
    cited = [_cite(sources[place.text], *sentence) for place, sentence in runs]
    if clause_after(text) is not None:  # "yes" or "no" occurs in many places: cite text about the question
        passages = request.prompt.passages
        about = (
            cite_passages(text, question, passages)
            if passages
            else cite_words(text, question, request.prompt.documents)
        )
        cited = list(about)
    request.result.citations = list({citation.range: citation for citation in cited}.values())
    yield from (Quoted(citation.to_json()) for citation in request.result.citations[:1])
    request.result.answers = [[Token(text if not i else "", token) for i, token in enumerate(answer.tokens)]]
    request.result.likelihood = answer.likelihood / (len(answer.tokens) + 1)
    request.seconds["first_token"] = time.perf_counter() - request.started
    yield from request.result.answers[0]
    request.result.stopped = "eos"


def _best_place(places: Sequence[Place], sources: Sequence[_Source], question: str) -> tuple[Place, tuple[int, int]]:
    """Returns the place whose sentence has the most words of the question, and the range of that sentence."""
    best = dict[int, tuple[float, Place, tuple[int, int]]]()
    for number in {place.text for place in places}:
        ranges = [(place.start, place.end) for place in places if place.text == number]
        score, chosen, sentence = likeliest_sentence(sources[number].text, ranges, question)
        best[number] = score, Place(number, *chosen), sentence
    _, place, sentence = max(best.values(), key=lambda one: (one[0], -one[1].text))
    return place, sentence


def _cite(source: _Source, start: int, end: int) -> Citation:
    return cite_characters(source.document, source.start + start, source.start + end)
