"""Going on with an answer that was cut at its longest, or stopped."""

from collections.abc import Sequence
from typing import Any

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.request import Request
from localctx.engine.run_request import answer_request
from localctx.settings import Settings
from localctx.workflows.ask import AskWorkflow
from localctx.workflows.checked_answer import check_sentences


def continue_answer(
    ask: AskWorkflow, request: Request, question: str, settings: Settings, cited: Sequence[dict[str, Any]]
) -> EngineCoroutine[None]:
    """The coroutine that goes on with the answer that a request has ``begun``, which has ``cited`` its sources.

    At its end the request has the whole answer, its sentences and its citations. Raises Cancelled, NoRoom; what was
    generated stands.
    """

    def answer() -> EngineCoroutine[None]:
        try:
            yield from answer_request(request, settings)
        finally:
            request.citations = list(cited)
        ask.cite(request, question)
        request.citations = _joined(cited, request.citations)

    return check_sentences(request, question, answer())


def _joined(first: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns citations of an answer's beginning, and those of the whole that cite other places."""
    return [*first, *(c for c in more if not any(_overlap(c, known) for known in first))]


def _overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a["document"] == b["document"] and a["start"] < b["end"] and b["start"] < a["end"]
