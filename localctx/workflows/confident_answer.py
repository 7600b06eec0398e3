"""Gives an answer only if the text probably answers: likelihoods become a probability by what was measured for the
adapter that answers.
"""

from localctx.engine.confidence import Calibration, Evidence, calibrations
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Event, Quoted, Token
from localctx.engine.prompt import make_prompt
from localctx.engine.prompt_wording import RANKING
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import prefill_request, rank_request
from localctx.engine.span_search import likelihood_of
from localctx.settings import Settings
from localctx.workflows.close_reading import question_gain

UNCALIBRATED = Calibration((1.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.0, 0.5)
"""For an adapter that was not measured: an answer must be likelier than that there is none."""

_AROUND = ' ."'  # what may stand around an answer


def is_rated(request: Request, settings: Settings) -> bool:
    """True if answers of a request get a confidence: an adapter that was trained to say when a text does not answer
    gives one greedy answer. What follows in a chat is not rated: it may be a word or two.
    """
    return bool(request.adapter) and settings.is_greedy and settings.careful != "off" and not request.continues


def answer_if_confident(
    builder: RequestBuilder, request: Request, question: str, answering: EngineCoroutine[None]
) -> EngineCoroutine[bool]:
    """Run ``answering`` and set the confidence; returns True if it is high enough. Then tokens and quotations, which
    are held back, are given at the end; else there is no answer.
    """
    evidence = yield from _gather(builder, request, question)
    held = list[Event]()
    yield from map_events(answering, lambda event: held.append(event) if isinstance(event, Token | Quoted) else event)
    calibration = calibration_of(request)
    request.evidence = evidence.of_answer(*_answer_likelihood(request))
    request.confidence = round(calibration.confidence(request.evidence), 4)
    if says_nothing(request) or request.confidence < calibration.threshold:
        request.withheld = None if says_nothing(request) else request.texts[0]
        request.answers, request.citations = [[]], []
        return False
    yield from held
    return True


def calibration_of(request: Request) -> Calibration:
    """The calibration that was measured for the request's adapter and way to decode."""
    measured = calibrations(request.adapter) if request.adapter else {}
    return measured.get(request.decoding, UNCALIBRATED)


def says_nothing(request: Request) -> bool:
    """True if the answer is that nothing answers the question, or no word at all."""
    return request.texts[0].strip(_AROUND) in ("", request.not_said.strip(_AROUND))


def _gather(builder: RequestBuilder, request: Request, question: str) -> EngineCoroutine[Evidence]:
    """Prefill the prompt; returns the evidence that does not depend on the answer."""
    if request.question_likelihood is None:
        if not request.ranking:
            texts = [document.text for document in request.documents]
            request.ranking = make_prompt(request.model.tokenizer, texts, question, (), RANKING)
        request.question_likelihood = yield from rank_request(request)
    if request.logits is None:
        yield from prefill_request(request)
    assert request.logits is not None, "the prompt was prefilled"
    gain, tokens = yield from question_gain(builder, question, request.question_likelihood)
    tokenizer = request.model.tokenizer
    unsaid = yield from likelihood_of(
        request.cache, request.logits, tokenizer.encode(request.not_said), tokenizer.stop_ids
    )
    return Evidence(answer=0.0, tokens=0, not_said=unsaid, gain=gain, question_tokens=tokens)


def _answer_likelihood(request: Request) -> tuple[float, int]:
    """Returns the log-likelihood of the answer, with its end if that was reached, and the number of these tokens."""
    tokens = len(request.answers[0]) + (request.stopped == "eos")
    return request.likelihood * tokens, tokens
