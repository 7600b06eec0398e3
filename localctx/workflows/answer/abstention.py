"""Decides whether to give an answer, or to reply that the text does not answer the question.

With an adapter, a calibration turns likelihoods into a probability that the text answers the question. Without an
adapter, the question must be likelier after the best passage than without any text.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.confidence import Calibration, Evidence, calibrations
from localctx.engine.decoding.span_search import likelihood_of
from localctx.engine.events import Event, NearestPassage
from localctx.engine.gather import gather
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import NOT_SAID, RANKING
from localctx.engine.request import Request
from localctx.engine.run_request import emit_text, prefill_request, rank_request
from localctx.library.citations.cite import cite_passages, nearest_sentence
from localctx.library.citations.yes_no_evidence import shares_words
from localctx.library.wording.asked_measures import has_measure, has_other_measure
from localctx.library.wording.dimensions import has_dimension, has_other_dimension
from localctx.library.wording.no_answer import is_no_answer, no_answer
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.held_answer import emit_held, hold
from localctx.workflows.answer.question_likelihood import is_likelier, likelihood_alone

_AROUND = ' ."'  # characters stripped from both ends of an answer
_MOST = math.log(0.3)  # a reply is taken as the model's reply if it is this likely and its first token is the likeliest

UNCALIBRATED = Calibration((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0.5)
"""The calibration for an adapter without one: an answer must be likelier than the adapter's "not said"."""


def give_if_likelier(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering`` if the question is likelier after the best passage than without any text. Otherwise reply that
    the text does not answer it.
    """
    likelihood = case.request.result.question_likelihood
    assert likelihood is not None, "passages were ranked"
    alone, tokens = yield from likelihood_alone(case.builder, case.question)
    yield from answering if is_likelier(likelihood - alone, tokens) else say_nothing_answers(case)


def give_if_confident(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering``, but hold its tokens and quotations back until the answer's confidence is known.

    If the confidence reaches the threshold of the calibration, emit them. Otherwise, and if the answer measures another
    dimension than the question asks for, reply that the text does not answer the question.
    """
    request, evidence = case.request, (yield from _gather(case))
    held, calibration = list[Event](), calibration_of(request)
    others = reconsider(request, evidence, calibration)
    yield from hold(answering, held)
    likelihood, tokens = _answer_likelihood(request)
    request.result.evidence = evidence.of_answer(likelihood + others, tokens)
    request.result.confidence = round(calibration.confidence(request.result.evidence), 4)
    confident = request.result.confidence >= calibration.threshold
    if confident and not says_nothing(request) and not _measures_another(request, case.question):
        yield from emit_held(request, case.question, held)
        return
    request.result.withheld = None if says_nothing(request) else request.texts[0]
    request.result.answers, request.result.citations = [[]], []
    yield from say_nothing_answers(case)


def say_nothing_answers(case: AnswerCase) -> EngineCoroutine[None]:
    """Emit, as the answer, the sentence that the text does not answer the question."""
    request = case.request
    own = request.not_said != NOT_SAID  # True for an adapter that was trained to say this in other words
    yield from emit_text(request, request.not_said if own else no_answer(case.question))
    request.result.stopped = "unanswered"


def offer_nearest(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering``. If its answer is that the text does not answer the question, remove the citations, and emit an
    event NearestPassage.

    The passage in this event, which is nearest to the question, is also set as ``nearest`` of the result.
    """
    yield from answering
    request = case.request
    if not is_not_said(request):
        return
    request.result.citations, request.result.nearest = [], _nearest(request, case.question)
    if request.result.nearest:
        yield NearestPassage(request.result.nearest.to_json())


def calibration_of(request: Request) -> Calibration:
    """Returns the calibration that is stored with the request's adapter for the request's kind of decoding (``free`` or
    ``quote``). Returns UNCALIBRATED if there is none.
    """
    measured = calibrations(request.adapter) if request.adapter else {}
    return measured.get(request.result.decoding, UNCALIBRATED)


def says_nothing(request: Request) -> bool:
    """Returns True if the answer is that the text does not answer the question, or if it has no words."""
    return not request.texts[0].strip(_AROUND) or is_not_said(request)


def is_not_said(request: Request) -> bool:
    """Returns True if the answer so far is the sentence that the text does not answer the question, in any supported
    language.
    """
    return is_no_answer(request.texts[0], request.not_said)


def _measures_another(request: Request, question: str) -> bool:
    """Returns True if the answer is a length where ``question`` asks for a height or a weight, or the like, and the
    cited sentence has none either.
    """
    answer, cited = request.texts[0], request.result.citations[0].quote if request.result.citations else ""
    other_dimension = has_other_dimension(question, answer, cited) and not has_dimension(question, cited)
    return other_dimension or (has_other_measure(question, answer) and not has_measure(question, cited))


def _gather(case: AnswerCase) -> EngineCoroutine[Evidence]:
    """Prefill the prompt, and compute the part of the evidence that does not depend on the answer."""
    request, (alone, tokens) = case.request, (yield from _prefill_and_rank(case))
    likelihood, tokenizer = request.result.question_likelihood, request.model.tokenizer
    assert request.logits is not None, "the prompt was prefilled"
    assert likelihood is not None, "the text was ranked"
    unsaid = yield from likelihood_of(
        request.cache, request.logits, tokenizer.encode(request.not_said), tokenizer.stop_ids
    )
    return Evidence(answer=0.0, tokens=0, not_said=unsaid, gain=likelihood - alone, question_tokens=tokens)


def _prefill_and_rank(case: AnswerCase) -> EngineCoroutine[tuple[float, int]]:
    """Prefill the prompt, compute the likelihood of the question after the text unless it is known, and return the
    result of ``likelihood_alone``. After the text is prefilled, all of this shares the same forward passes.
    """
    request, question = case.request, case.question
    parts = list[Callable[[], EngineCoroutine[Any]]]([partial(likelihood_alone, case.builder, question)])
    ranked = request.result.question_likelihood is not None
    if not ranked:
        if not request.prompt.ranking:
            texts = [document.text for document in request.prompt.documents]
            request.prompt.ranking = make_prompt(request.model.tokenizer, texts, question, (), RANKING)
        yield from prefill_request(request, request.prompt.boundary)
        parts.append(partial(rank_request, request))
    if request.logits is None:
        parts.append(partial(prefill_request, request))
    before, started = request.seconds.get("prefill", 0.0), time.perf_counter()
    alone, *found = yield from gather(lambda part: part(), parts, len(parts))
    if not ranked:
        request.result.question_likelihood = found[0]
    # the parts run together, so the sum of their times would be too long
    request.seconds["prefill"] = before + time.perf_counter() - started
    return alone


def reconsider(request: Request, evidence: Evidence, calibration: Calibration) -> float:
    """Forbid the adapter's reply that the text does not answer the question, if the adapter would give this reply
    although the evidence reaches the threshold ``Calibration.reconsider``. The adapter then gives another reply.

    Returns the log-probability, in nats, of all other replies. The caller must add it to the likelihood of the answer,
    which is computed as if the forbidden reply did not exist. Returns 0 if the reply is not forbidden.
    """
    said = request.model.tokenizer.encode(request.not_said)
    assert request.logits is not None, "the prompt was prefilled"
    would_say = int(request.logits.argmax()) == said[0] and evidence.not_said > _MOST
    confidence = calibration.confidence(evidence.of_answer(evidence.not_said, len(said) + 1))
    if not would_say or request.result.decoding != "free" or confidence < calibration.reconsider:
        return 0.0
    request.controls = replace(request.controls, bias={**request.controls.bias, said[0]: -100.0})
    return math.log1p(-float(request.logits.softmax(-1)[said[0]]))


def _answer_likelihood(request: Request) -> tuple[float, int]:
    """Returns the log-likelihood of the answer, and the number of its tokens. Both include the stop token, if the
    answer ended with one.
    """
    tokens = len(request.result.answers[0]) + (request.result.stopped == "eos")
    return request.result.likelihood * tokens, tokens


def _nearest(request: Request, question: str) -> Citation | None:
    """Returns the sentence with the most words of the question; None if it has none of them."""
    if request.prompt.passages:
        found = next(iter(cite_passages("", question, request.prompt.passages)), None)
    else:
        found = nearest_sentence(request.prompt.documents, question) if request.prompt.documents else None
    return found if found and shares_words(question, found.quote) else None
