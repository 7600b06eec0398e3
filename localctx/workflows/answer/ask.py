"""Answers questions about documents: reads the documents whole if the model answers well from texts of this length,
else passages of them.

If a document has a table, questions that count, add up or compare are computed over the table. A question that compares
several documents is asked about each of them.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Done, Note
from localctx.engine.prompt import NO_CONVERSATION, Conversation
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import prefill_request, run_request
from localctx.errors import ChatFull, StoreError, TooLong
from localctx.library.wording.language import language_warnings
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.answer_strategies import make_answer
from localctx.workflows.answer.compared import ComparedWorkflow
from localctx.workflows.answer.computed_answer import NOT_COMPUTED, TableWorkflow, may_need_table
from localctx.workflows.answer.everywhere import EverywhereWorkflow
from localctx.workflows.answer.question_kind import with_adapter
from localctx.workflows.answer.retrieval import RetrievalWorkflow
from localctx.workflows.answer.several_documents import begin_together, in_best_order
from localctx.workflows.answer.whole_or_passages import fits_alone, why_passages
from localctx.workflows.read_sources import read_sources
from localctx.workflows.read_until import locate_mark, read_until


class AskWorkflow:
    """Answers questions about documents, and prepares documents for questions."""

    def __init__(self, builder: RequestBuilder, retrieval: RetrievalWorkflow) -> None:
        self._builder, self._retrieval, self._runtime = builder, retrieval, builder.runtime
        self._everywhere, self._tables = EverywhereWorkflow(builder), TableWorkflow(builder)
        self._compared = ComparedWorkflow(builder)

    def ask(
        self, sources: Sequence[str], question: str, persist: bool = True, library: bool = False, until: str = ""
    ) -> EngineCoroutine[None]:
        """Answer ``question`` from the files or stored documents ``sources``, or, if ``library``, from passages of all
        documents of the library.

        The last event is Done. ``until`` is a mark in the only document, such as ``40%``, ``page 12`` or words of the
        document. The text after the mark is not read. If ``persist`` is False, the store is neither read nor written.
        UserError is raised as early as possible. If the store cannot be written, the answer is given, but no pages are
        kept (``Done.failed``). Raises Cancelled if cancelled before prefill began.
        """
        damage: StoreError | None = None
        with self._runtime.running():
            documents, seconds = self._read(sources, persist, None if library else until)
            try:
                with store_errors(self._runtime.settings.home):
                    request = yield from self.open(None if library else documents, question, persist, until=until)
            except StoreError as e:
                if library or not persist:
                    raise
                damage, documents = e, read_sources(self._runtime, sources, reuse_stored=False)
                request = yield from self.open(documents, question, False, until=until)
            request.seconds |= seconds
            yield from run_request(request, self.answer(request, question, self._runtime.settings))
        yield from map(Note, request.persist_notes)
        yield Done(request.answer_report(), request.persist_error or (str(damage) if damage else None))

    def prepare(self, source: str) -> EngineCoroutine[None]:
        """Prefill the document ``source`` and persist its pages, so that a later question does not prefill the document
        again.

        A document that is too long to be read whole is made searchable instead. The last event is Done.
        """
        with self._runtime.running():
            documents, seconds = self._read([source], True, None)
            if why := self.why_passages(documents):
                yield Note(f"{why}: it was made searchable, and answers will come from its passages")
                yield Done((yield from self._retrieval.prepare(documents[0])))
                return
            request = yield from self.open_whole(documents, None, True)
            request.seconds |= seconds
            yield from run_request(request, _prefill_only(request))
        yield from map(Note, request.persist_notes)
        yield Done(request.prepare_report(), request.persist_error)

    def open(
        self,
        documents: Sequence[StoredDocument] | None,
        question: str,
        persist: bool,
        conversation: Conversation = NO_CONVERSATION,
        until: str = "",
    ) -> EngineCoroutine[Request]:
        """Build the request that answers ``question`` from ``documents``, or from passages of the whole library (None).

        If ``persist``, kept pages are reused and new pages are kept. ``conversation`` is the conversation that the
        question continues. ``until`` is a mark in the only document, such as ``40%``, ``page 12`` or words of the
        document. The text after the mark is not read. Raises TooLong if the documents do not fit into the context
        window and the mode forbids passages. Raises ChatFull if the question would fit without the history, and
        UsageError if the document does not have the mark.
        """
        if until:
            beginning, told = read_until(self._builder.model.tokenizer, documents, until)
            yield Note(str(told))
            request = yield from self.open([beginning], question, persist, conversation)
            request.prompt.until = asdict(told)
            return request
        try:
            return (yield from self._open(documents, question, persist, conversation))
        except TooLong as e:
            if not conversation.history:
                raise
            evict = "" if self._builder.runtime.has_states else "sink-window (only the end is remembered), "
            raise ChatFull(
                f"this chat is full: with the earlier messages, {e.problem}",
                f"go on with --when-full {evict}summarize (the earlier messages become one) or new (a new chat)",
            ) from e

    def open_whole(
        self,
        documents: Sequence[StoredDocument],
        question: str | None,
        persist: bool,
        conversation: Conversation = NO_CONVERSATION,
    ) -> EngineCoroutine[Request]:
        """Build the request that reads documents whole. If ``question`` is None, they are only prefilled.

        If ``persist``, kept pages are reused and new pages are kept. ``conversation`` is the conversation that the
        question continues. Several documents are ordered so that as many kept pages as possible can be reused. Raises
        TooLong.
        """
        if question is not None and documents:
            conversation = with_adapter(self._runtime, conversation, question)
        ordered = in_best_order(self._builder, documents, question or "", conversation)
        texts = [document.text for document in ordered]
        request = self._builder.build(ordered, texts, question, persist=persist, conversation=conversation)
        warnings = language_warnings(self._runtime.settings, documents)
        yield from map(Note, (*request.restore_notes, *warnings))
        if len(documents) > 1:
            yield from begin_together(self._builder, documents, request)
        else:
            yield request.plan
            request.begin_persisting()
        return request

    def census(self, sources: Sequence[str], question: str, best: int = 0) -> EngineCoroutine[None]:
        """Ask ``question`` about every passage of ``sources`` (files, or ids of stored documents), the likeliest
        passages first. With ``best``, only that many passages are asked. Pages and answers are kept. The last event is
        Done. Raises UserError, and Cancelled if cancelled before the first passage was asked.
        """
        with self._runtime.running():
            documents, seconds = self._read(sources, True, None)
            with store_errors(self._runtime.settings.home):
                request = yield from self.open_everywhere(documents, question, True, best)
            request.seconds |= seconds
            yield from run_request(request, self.answer(request, question, self._runtime.settings))
        yield Done(request.answer_report(), request.persist_error)

    def open_everywhere(
        self, documents: Sequence[StoredDocument] | None, question: str, persist: bool, best: int = 0
    ) -> EngineCoroutine[Request]:
        """Build the request that asks ``question`` about every passage of ``documents`` (None: of the library). If
        ``persist``, kept pages and answers are reused, and new ones are kept. Raises NothingFound if there is no
        passage.
        """
        return (yield from self._everywhere.open(documents, question, persist, best))

    def answer(
        self, request: Request, question: str, settings: Settings, cited: Sequence[Citation] = ()
    ) -> EngineCoroutine[None]:
        """Returns the coroutine that answers a request by the strategy that ``answer_strategies`` chooses.

        If an answer is continued, ``cited`` are the citations of its beginning. The coroutine raises Cancelled and
        OutOfKVMemory; tokens generated before then remain in the request.
        """
        return make_answer(AnswerCase(self._builder, request, question, settings, cited, self.open, True))

    def why_passages(self, documents: Sequence[StoredDocument] | None) -> str | None:
        """Returns the reason why answers come from passages of ``documents``, or None if they are read whole."""
        return why_passages(self._builder, documents)

    def _open(
        self,
        documents: Sequence[StoredDocument] | None,
        question: str,
        persist: bool,
        conversation: Conversation,
    ) -> EngineCoroutine[Request]:
        if self._runtime.settings.mode == "everywhere" and documents != [] and conversation.is_free:
            return (yield from self.open_everywhere(documents, question, persist))
        if conversation.is_free and (request := self._compared.open(documents, question, persist)):
            yield request.plan
            return request
        if request := self._tables.open(documents, question, conversation):
            yield request.plan
            return request
        why = self.why_passages(documents)
        if why is None:
            assert documents is not None
            try:
                return (yield from self.open_whole(documents, question, persist, conversation))
            except TooLong as e:
                only_full = self._runtime.settings.mode == "full"
                if (
                    not documents
                    or only_full
                    or (conversation.history and fits_alone(self._builder, documents, question))
                ):
                    raise
                why = e.problem
        request = yield from self._retrieval.open(documents, question, persist, why, conversation)
        if may_need_table(request.prompt.passages, question):
            yield Note(NOT_COMPUTED)
        return request

    def _read(
        self, sources: Sequence[str], reuse_stored: bool, until: str | None
    ) -> tuple[list[StoredDocument], dict[str, float]]:
        """Read the sources, check the mark, and load the model. Returns the documents, and the seconds of each phase.
        The model is loaded last, so that a wrong file name or mark fails immediately.
        """
        start = time.perf_counter()
        documents = read_sources(self._runtime, sources, reuse_stored)
        if until:
            locate_mark(documents, until)
        return documents, {"parse": time.perf_counter() - start, "load": self._runtime.load()}


def _prefill_only(request: Request) -> EngineCoroutine[None]:
    yield from prefill_request(request)
    request.result.stopped = "eos"
