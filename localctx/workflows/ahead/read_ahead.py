"""Reads documents before anyone asks about them: prefills their tokens and persists the pages.

The whole document is prefilled, or each passage if answers come from passages. Reading ahead never evicts kept pages.
If the disk budget is used up, the remaining tokens are prefilled only when a question needs them.
"""

from dataclasses import dataclass

from localctx.budget import measure_store_budget
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Progress
from localctx.engine.gather import gather
from localctx.engine.prompt import NO_CONVERSATION
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import close_request, prefill_request
from localctx.errors import StoreError, TooLong, format_bytes
from localctx.library.search.search import Passage, all_passages
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.answer.every_passage import cache_ids, part_of
from localctx.workflows.answer.question_kind import with_adapter
from localctx.workflows.index_documents import index_words
from localctx.workflows.summary_task import digest

SIDE_BY_SIDE = 4  # passages; with more, a cancel takes longer, and little is saved


@dataclass
class ReadAheadResult:
    """The result of reading one document ahead: the number of its ``tokens``, and how many of them were ``prefilled``
    now.

    ``note`` says why the pages of some tokens are not kept, or is "".
    """

    tokens: int = 0
    prefilled: int = 0
    note: str = ""


class _NoDiskRoom(Exception):
    """Raised if the pages of the next prefill do not fit in the disk budget."""


def reading_recipe(settings: Settings) -> str:
    """Returns a hash of the model and the settings with which documents are read ahead. If the hash changes, documents
    must be read ahead again.
    """
    return digest(list(settings.reading_key))


class ReadAheadWorkflow:
    """Prefills stored documents before anyone asks about them. After a cancel, finished pages are kept, and the next
    run continues from there.
    """

    def __init__(self, builder: RequestBuilder, questions: AskWorkflow) -> None:
        self._builder, self._questions, self._runtime = builder, questions, builder.runtime

    def read(self, document: str) -> EngineCoroutine[ReadAheadResult]:
        """Prefill the document with this id, and persist its pages. Raises Cancelled, ModelError, StoreError."""
        with self._runtime.running():
            self._runtime.load()
            with store_errors(self._runtime.store.home):
                stored = self._find(document)
            done = ReadAheadResult()
            try:
                yield from self._read(stored, done)
            except _NoDiskRoom:
                done.note = self._no_room()
            return done

    def _find(self, document: str) -> StoredDocument:
        documents = self._runtime.store.documents
        return StoredDocument(documents.find(document), documents.text(document), documents.spans(document))

    def _read(self, document: StoredDocument, done: ReadAheadResult) -> EngineCoroutine[None]:
        if self._questions.why_passages([document]) is None:
            try:
                request = self._builder.build([document], [document.text], None, persist=True)
            except TooLong:
                pass  # a question would be answered from passages too
            else:
                yield from self._prefill(request, done)
                return
        yield from self._read_passages(document, done)

    def _read_passages(self, document: StoredDocument, done: ReadAheadResult) -> EngineCoroutine[None]:
        store = self._runtime.store
        with store_errors(store.home):
            yield from index_words(self._runtime, store, {document.id})
            passages = all_passages(store, [document.id])
            ids = cache_ids(self._builder.fingerprint, passages)
            kept = store.caches.ready_tokens(ids)
        done.tokens = sum(kept.values())
        fresh = [p for p, cache in zip(passages, ids, strict=True) if cache not in kept]
        ended = list(kept)

        def read(passage: Passage) -> EngineCoroutine[None]:
            yield from map_events(self._read_passage(document, passage, done), lambda event: None)
            ended.append("")
            yield Progress("passages", len(ended), len(passages), len(kept))

        yield from gather(read, fresh, SIDE_BY_SIDE)

    def _read_passage(self, document: StoredDocument, passage: Passage, done: ReadAheadResult) -> EngineCoroutine[None]:
        self._runtime.check_cancelled()
        asked = with_adapter(self._runtime, NO_CONVERSATION)
        part = part_of([passage])
        request = self._builder.build([document], [passage.text], None, persist=True, part=part, conversation=asked)
        yield from self._prefill(request, done, alone=False)

    def _prefill(self, request: Request, done: ReadAheadResult, alone: bool = True) -> EngineCoroutine[None]:
        """Prefill and persist the text of a request. ``alone`` says that no other sequence runs meanwhile; only then is
        the time taken as the model's speed.
        """
        try:
            if not self._fits(request):
                raise _NoDiskRoom
            request.begin_persisting()
            yield from prefill_request(request)
        finally:
            done.prefilled += request.prefilled
            request.prefilled = request.prefilled if alone else 0
            close_request(request)
        if request.persist_error:
            raise StoreError(request.persist_error, "see: localctx doctor")
        done.tokens += len(request.prompt.tokens)

    def _fits(self, request: Request) -> bool:
        """Returns True if the tokens to prefill fit in the disk budget without eviction."""
        runtime = self._runtime
        if request.restored == len(request.prompt.tokens):
            return True
        with store_errors(runtime.store.home):
            stored = runtime.store.disk_bytes()
        return stored + sum(request.plan.tiers.values()) <= self._budget(stored)

    def _budget(self, stored: int) -> int:
        return measure_store_budget(self._runtime.settings.home, stored, self._runtime.settings.caps["disk"])

    def _no_room(self) -> str:
        stored = self._runtime.store.disk_bytes()
        return f"the disk budget is used up ({format_bytes(stored)} of {format_bytes(self._budget(stored))})"
