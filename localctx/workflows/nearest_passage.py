"""Offers, below an answer that says that nothing answers the question, the passage that comes nearest to it."""

from dataclasses import asdict

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import NearestPassage
from localctx.engine.request import Request
from localctx.library.cite import Citation, cite_passages, nearest_sentence

_AROUND = ' ."'  # what may stand around an answer


def offer_nearest(request: Request, question: str, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """The coroutine ``answering`` and, if the answer says that nothing answers, an event NearestPassage after it. Such
    an answer has no citations: what is nearest is the request's ``nearest`` alone.
    """
    yield from answering
    if not is_not_said(request):
        return
    request.citations = []
    if found := _nearest(request, question):
        request.nearest = asdict(found)
        yield NearestPassage(request.nearest)


def is_not_said(request: Request) -> bool:
    """True if the answer so far is that nothing answers the question."""
    return request.texts[0].strip(_AROUND) == request.not_said.strip(_AROUND)


def _nearest(request: Request, question: str) -> Citation | None:
    if request.passages:
        return next(iter(cite_passages("", question, request.passages)), None)
    return nearest_sentence(request.documents, question) if request.documents else None
