"""Answers a chat's questions about long documents as a whole: summarizes the documents, or asks about every passage."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

from localctx.document_parts import Citation, SummaryCitation
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Token, WholeOffered
from localctx.engine.prompt import estimate_tokens
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.errors import UsageError
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.answer.every_passage import format_seconds
from localctx.workflows.answer.question_kind import summary_of_all
from localctx.workflows.answer.question_likelihood import question_alone
from localctx.workflows.read_until import read_until
from localctx.workflows.summarize.extract_summary import extract_summary
from localctx.workflows.summarize.summarize import SummarizeWorkflow
from localctx.workflows.summary_task import SummaryTask
from localctx.workflows.summary_time import MAX_UNASKED, estimate_summary_seconds, note_summary_seconds
from localctx.workflows.text_generator import LocalGenerator, without_text

WholeWay = Literal["summarize", "extract", "everywhere"]
"""Ways to answer from whole documents: write a summary, extract key sentences, or ask every passage."""


class WholeDocumentWorkflow:
    """Builds and answers requests about documents as a whole, in a chat. Other requests are passed on to ``ask``."""

    def __init__(self, builder: RequestBuilder, ask: AskWorkflow) -> None:
        self._builder, self._ask, self._runtime = builder, ask, builder.runtime

    def open(
        self, documents: Sequence[StoredDocument] | None, question: str, way: WholeWay, until: str = ""
    ) -> EngineCoroutine[Request]:
        """Build the request that answers ``question`` from the whole of ``documents`` (None: of the library), or from
        the part of the only document before the mark ``until``. ``way`` is ``summarize`` (write a summary), ``extract``
        (extract key sentences) or ``everywhere`` (ask every passage). Raises UsageError, NothingFound.
        """
        if way not in get_args(WholeWay):
            raise UsageError(f"there is no way {way!r}", f"use one of: {', '.join(get_args(WholeWay))}")
        told = None
        if until:
            beginning, told = read_until(self._builder.model.tokenizer, documents, until)
            documents = [beginning]
        if way == "everywhere":
            request = yield from self._ask.open_everywhere(documents, question, True)
        elif documents is None:
            raise UsageError("the whole library cannot be summarized at once", "choose documents")
        else:
            request = self._open_summary(documents, question, way)
            yield request.plan
            if way == "extract":
                yield self._offer_written(request)
        request.prompt.until = asdict(told) if told else None
        return request

    def answer(
        self, request: Request, question: str, settings: Settings, cited: Sequence[Citation] = ()
    ) -> EngineCoroutine[None]:
        """Answer ``request``, which ``open`` or another workflow has built. If an answer is continued, ``cited`` are
        the citations of its beginning.

        Raises Cancelled, OutOfKVMemory.
        """
        if request.plan.mode in ("summarize", "extract"):
            yield from self._summarize(request, _task_of(question) or SummaryTask())
        else:
            yield from self._ask.answer(request, question, settings, cited)

    def way_of(self, documents: Sequence[StoredDocument] | None, question: str) -> WholeWay | None:
        """Returns the way to answer ``question`` if it asks for a summary of ``documents``; None for other questions.
        The way is ``summarize`` if that takes at most a minute, or if the settings already choose extracted summaries;
        otherwise ``extract``.
        """
        task = _task_of(question)
        if not documents or not task or self._runtime.settings.mode == "everywhere":
            return None
        if task.method(self._runtime.settings).extracts:
            return "summarize"
        seconds = estimate_summary_seconds(self._builder, documents)
        if seconds is None:
            return "extract" if self._ask.why_passages(documents) else "summarize"
        return "summarize" if seconds <= MAX_UNASKED else "extract"

    def _open_summary(self, documents: Sequence[StoredDocument], question: str, way: WholeWay) -> Request:
        request = question_alone(self._builder, question)
        request.prompt.documents = documents
        request.result.token_totals = {"prompt": 0, "reused": 0, "prefilled": 0, "generated": 0}
        texts = [document.text for document in documents]
        request.plan = replace(
            request.plan,
            mode=way,
            reason=_REASONS[way],
            tokens=estimate_tokens(self._builder.model.tokenizer, texts, 0, self._runtime.cancelled),
            reused=0,
            seconds=estimate_summary_seconds(self._builder, documents) if way == "summarize" else None,
            unusual=True,
        )
        return request

    def _offer_written(self, request: Request) -> WholeOffered:
        """Returns the offer to write a summary with the model, in addition to the extracted key sentences."""
        seconds = estimate_summary_seconds(self._builder, request.prompt.documents)
        request.result.offered = {"summarize": seconds}
        time = f" (about {format_seconds(seconds)})" if seconds is not None else ""
        return WholeOffered(
            f"these are key sentences of the document: a written summary{time} reads all of it", request.result.offered
        )

    def _summarize(self, request: Request, task: SummaryTask) -> EngineCoroutine[None]:
        """Summarize one document after the other. Sections that were summarized before a stop are stored, and not
        summarized again.

        Raises Cancelled.
        """
        summaries = SummarizeWorkflow(self._runtime, self._generator)
        for document in request.prompt.documents:
            started = time.perf_counter()
            if request.plan.mode == "extract":
                result = extract_summary(document, task)
            else:
                result = yield from map_events(summaries.summarize(document, task), without_text)
                if self._was_computed(document, task, result):
                    note_summary_seconds(self._builder, document, time.perf_counter() - started)
            yield from self._tell(request, document, result)
        request.result.stopped = "eos"

    def _was_computed(self, document: StoredDocument, task: SummaryTask, result: dict[str, Any]) -> bool:
        """Returns True if most of the summary was computed now. Otherwise, its time must not be used to predict the
        time of other summaries, because stored parts took no time.
        """
        if task.method(self._runtime.settings).extracts:
            return True
        tokens = estimate_tokens(self._builder.model.tokenizer, [document.text], 0, self._runtime.cancelled)
        return 2 * result["tokens"]["prefilled"] >= tokens

    def _tell(self, request: Request, document: StoredDocument, result: dict[str, Any]) -> EngineCoroutine[None]:
        """Yields the summary of a document, below the document's name if there are several, and adds the summary's
        citations to the result.
        """
        before = f"### {document.name}\n\n" if len(request.prompt.documents) > 1 else ""
        before = ("\n\n" if request.text else "") + before
        at = len(request.text) + len(before)
        request.seconds.setdefault("first_token", time.perf_counter() - request.started)
        for line in (before + result["summary"].strip()).splitlines(keepends=True):
            request.result.answers[0].append(Token(line, 0))
            yield request.result.answers[0][-1]
        cited = map(SummaryCitation.from_json, result["citations"])
        request.result.citations = [
            *request.result.citations,
            *(replace(citation, at=citation.at + at) for citation in cited),
        ]
        assert request.result.token_totals is not None, "it is set where the request is opened"
        for name, count in request.result.token_totals.items():
            request.result.token_totals[name] = count + result["tokens"].get(name, 0)

    def _generator(self, document: StoredDocument) -> LocalGenerator:
        return LocalGenerator(self._builder, self._ask, document)


_REASONS = {
    "summarize": "every section is summarized, and the summaries become one",
    "extract": "key sentences are taken from the document",
}


def _task_of(question: str) -> SummaryTask | None:
    """Returns the task for a question that asks for a summary of whole documents, or None for another question."""
    asked = summary_of_all(question)
    return SummaryTask(length=asked[0], style=asked[1]) if asked else None
