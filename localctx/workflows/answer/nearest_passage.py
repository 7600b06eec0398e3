"""Offers the nearest passage after an answer which says that nothing answers the question."""

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import NearestPassage
from localctx.engine.request import Request
from localctx.library.citations.cite import cite_passages, nearest_sentence
from localctx.library.wording.no_answer import NO_ANSWER
from localctx.workflows.answer.answer_case import AnswerCase

AROUND = ' ."'  # stripped from an answer


def offer_nearest(case: AnswerCase, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering``. If it says that nothing answers, clear the citations and emit an event NearestPassage.

    The passage is also set as the result's ``nearest``.
    """
    yield from answering
    request = case.request
    if not is_not_said(request):
        return
    request.result.citations, request.result.nearest = [], _nearest(request, case.question)
    if request.result.nearest:
        yield NearestPassage(request.result.nearest.to_json())


def is_not_said(request: Request) -> bool:
    """Returns True if the answer so far says that nothing answers the question, in any supported language."""
    return request.texts[0].strip(AROUND) in {said.strip(AROUND) for said in (request.not_said, *NO_ANSWER.values())}


def _nearest(request: Request, question: str) -> Citation | None:
    if request.prompt.passages:
        return next(iter(cite_passages("", question, request.prompt.passages)), None)
    return nearest_sentence(request.prompt.documents, question) if request.prompt.documents else None
