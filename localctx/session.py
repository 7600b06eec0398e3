"""Session: the one obvious entry. Open documents, ask, and take the events as they come."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor

from localctx.engine.coroutine import CancelCheck, EngineCoroutine, compute_alone, drive
from localctx.engine.effective_context import MEASURED
from localctx.engine.events import Done, Event, InUse, Note, Progress
from localctx.engine.model_loader import ModelLoader, same_model
from localctx.engine.prompt import Conversation
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import read, shut
from localctx.errors import Cancelled
from localctx.kv.keepers import make_keeper
from localctx.library.add import find_stored
from localctx.library.read_document import Document, read_document
from localctx.models.base import ForwardRequest, Messages, Model
from localctx.settings import Settings
from localctx.store.chats import Chat
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, read_store, store_errors
from localctx.workflows.ask import AskWorkflow
from localctx.workflows.chat import Beginning, ChatWorkflow, FullChatAction
from localctx.workflows.manage_library import LibraryWorkflow
from localctx.workflows.rag import RetrievalWorkflow
from localctx.workflows.reply import reply
from localctx.workflows.summarize import SummarizeWorkflow
from localctx.workflows.text_generator import LocalGenerator, TextGenerator

Given = ParamSpec("Given")
Result = TypeVar("Result")


def _driven(
    method: "Callable[Concatenate[Session, Given], EngineCoroutine[None]]",
) -> "Callable[Concatenate[Session, Given], Generator[Event, None, None]]":
    """A method whose steps are computed one by one; its caller gets the events."""

    @wraps(method)
    def run(self: "Session", /, *args: Given.args, **kwargs: Given.kwargs) -> Generator[Event, None, None]:
        return self.run(method(self, *args, **kwargs))

    return run


class _Steps:
    """The driven methods of a session, not driven."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __getattr__(self, name: str) -> Callable[..., EngineCoroutine[None]]:
        return partial(getattr(type(self._session), name).__wrapped__, self._session)


class Session:
    """Documents asked on this machine, under ``settings``. Close it when done; use from one thread at a time.

    ``progress`` hears of the model being fetched and loaded, which happens when it is first needed. Sessions that share
    a ``loader`` share the model.
    """

    def __init__(
        self,
        settings: Settings,
        progress: Callable[[Progress], None] = lambda event: None,
        loader: ModelLoader | None = None,
    ) -> None:
        make_keeper(settings.keep, 0)  # nonsense is told before anything is loaded
        self.settings, self._progress, self._loader = settings, progress, loader or ModelLoader()
        self._stop = threading.Event()
        self._listening = False
        self._load_seconds = 0.0

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        if "store" in self.__dict__:
            self.store.close()

    def change(self, settings: Settings) -> None:
        """Go on under other ``settings``; what they do not concern stays loaded."""
        old, self.settings = self.settings, settings
        for made in ("_opener", "_retrieval", "_shelving", "_asking"):
            self.__dict__.pop(made, None)
        if not same_model(old, settings):
            self.__dict__.pop("model", None)
        if old.home != settings.home:
            self.close()
            self.__dict__.pop("store", None)

    def cancel(self) -> bool:
        """Stop what runs, from any thread or a signal handler; heard within one layer of the model.

        False when nothing runs that would hear it (a model being loaded does not), or it was told already.
        """
        heard = self._listening and not self._stop.is_set()
        self._stop.set()
        return heard

    def tell(self, event: Progress) -> None:
        """What is heard of beside events: ``progress``."""
        self._progress(event)

    @property
    def steps(self) -> Any:
        """``ask``, ``chat`` and the others as steps, for who computes those of several sessions together."""
        return _Steps(self)

    @cached_property
    def store(self) -> Store:
        """The data folder's store. Raises StoreError."""
        return Store(self.settings.home)

    @property
    def in_use(self) -> InUse:
        """What is in memory now; nothing where nothing is loaded. Integers only."""
        if not (model := self.__dict__.get("model")):
            return InUse()
        return InUse(str(model.device), model.nbytes, self._loader.pools.held)

    @cached_property
    def model(self) -> Model:
        """The model, fetched and loaded when first needed. Raises ModelError."""
        model, self._load_seconds = self._loader.load(self.settings, self._progress)
        return model

    @_driven
    def ask(
        self, sources: Sequence[str], question: str, keep: bool = True, library: bool = False
    ) -> EngineCoroutine[None]:
        """Answer ``question`` from the ``sources`` (files, ``-`` for standard input, ids of kept documents), or from
        passages of all documents of the ``library``; the last event is Done.

        With ``keep`` False the store is not touched. Raises UserError before any work that would be wasted. A store
        that cannot be written costs the keeping (``Done.failed``), not the answer. Raises Cancelled when cancelled
        before reading began.
        """
        with self._running():
            documents, spent = self._read_files(sources, keep)
            begun = yield from self._asking.begin(None if library else documents, question, keep)
            work = begun.work
            work.seconds |= spent
            try:
                yield from self._asking.answer(begun, question, self.settings)
            except Cancelled:
                pass
            finally:
                shut(work)
        yield from map(Note, work.notes)
        yield Done(work.answered(self.settings.model), work.failed)

    @_driven
    def prepare(self, source: str) -> EngineCoroutine[None]:
        """Read the document ``source`` (a file, or the id of a kept one) and keep its pages, so that questions start
        where reading ended. One that will be answered from passages is made searchable instead.

        The last event is Done; ``Done.failed`` when the pages could not be kept.
        """
        with self._running():
            documents, spent = self._read_files([source], True)
            if why := self._asking.why_passages(documents):
                yield Note(f"{why}: it was made searchable, and answers will come from its passages")
                yield Done(self._retrieval.prepared(documents[0]))
                return
            work = yield from self._asking.whole(documents, None, True)
            work.seconds |= spent
            try:
                yield from read(work)
                work.stopped = "eos"
            except Cancelled:
                pass
            finally:
                shut(work)
        yield from map(Note, work.notes)
        yield Done(work.prepared(self.settings.model), work.failed)

    def enter(self, sources: Sequence[str]) -> list[str]:
        """Read the files ``sources`` into the library; their documents' ids. Raises UserError, Cancelled."""
        with self._running():
            documents = self._parse(sources)
        with store_errors(self.store.home), self.store.db.atomic():
            for row, text, spans in documents:
                self.store.documents.add(row, text, spans)
        return [row.id for row, _, _ in documents]

    def start_chat(self, sources: Sequence[str]) -> Chat:
        """A new chat about the files ``sources``, which are entered in the library. Raises UserError."""
        documents = self.enter(sources)
        with store_errors(self.store.home):
            return self.store.chats.create("", documents, {"model": self.settings.model})

    def restart_chat(self, chat: str) -> Chat:
        """A new chat about the documents of another."""
        with store_errors(self.store.home):
            return self.store.chats.restart(chat, {"model": self.settings.model})

    def add_to_chat(self, chat: str, sources: Sequence[str]) -> None:
        """Let a chat be about the files ``sources`` too; what was said is then read anew after them."""
        documents = self.enter(sources)
        with store_errors(self.store.home), self.store.db.atomic():
            for document in documents:
                self.store.chats.add_document(chat, document)

    @_driven
    def chat(self, chat: str, question: str) -> EngineCoroutine[None]:
        """Answer ``question`` after what was said in a chat.

        The last event is Done. Raises ChatFull where the documents would fit, but not with all that was said; the
        question then waits for ``go_on``. Else as ``ask``.
        """
        with self._chatting() as chatting:
            yield from chatting.ask(chat, question)

    @_driven
    def edit(self, chat: str, question: str, message: int | None = None) -> EngineCoroutine[None]:
        """As ``chat``, in place of the question ``message`` (None: the last), on a branch of its own."""
        with self._chatting() as chatting:
            yield from chatting.edit(chat, question, message)

    @_driven
    def go_on(self, chat: str, way: FullChatAction) -> EngineCoroutine[None]:
        """Answer the question that raised ChatFull, having made room; a new chat's id is in Done's report."""
        with self._chatting() as chatting:
            yield from chatting.go_on(chat, way)

    @_driven
    def regenerate(self, chat: str, temperature: float | None = None) -> EngineCoroutine[None]:
        """Answer a chat's last question again, or at last. Raises UsageError where the answer would be the same."""
        with self._chatting() as chatting:
            yield from chatting.regenerate(chat, temperature)

    @_driven
    def summarize(self, chat: str) -> EngineCoroutine[None]:
        """Let the model put a summary in the place of what was said in a chat. Raises Cancelled."""
        with self._chatting() as chatting:
            yield from chatting.summarize(chat)

    @contextmanager
    def shelving(self) -> Iterator[LibraryWorkflow]:
        """The library: files are read into it, it is searched, documents from elsewhere are taken in. ``cancel`` makes
        what runs of that raise Cancelled.
        """
        with self._running():
            self._listening = True
            yield self._shelving

    @contextmanager
    def summarizing(
        self, open_speaker: Callable[[StoredDocument], TextGenerator] | None = None
    ) -> Iterator[SummarizeWorkflow]:
        """What summarizes documents, or asks them all the same, in steps to be ``run``. ``cancel`` makes these raise
        Cancelled. ``open_speaker`` gives who speaks about a document instead of the model here.
        """
        with self._running():
            yield SummarizeWorkflow(
                self.settings,
                lambda: self.store,
                open_speaker or self._speaker,
                lambda source: self._parse([source])[0],
                self._stop.is_set,
            )

    def compute(self, feeds: Sequence[ForwardRequest], cancelled: CancelCheck) -> list[Tensor]:
        """One pass of the model over what several ``steps`` need."""
        return self.model.forward_each(feeds, cancelled)

    def is_cancelled(self) -> bool:
        """Whether what runs is to stop."""
        return self._stop.is_set()

    def run(self, steps: EngineCoroutine[Result]) -> Generator[Event, None, Result]:
        """Compute ``steps`` one by one: their events, and what they return."""
        return drive(steps, self._compute)

    @_driven
    def reply(self, messages: Messages, settings: Settings) -> EngineCoroutine[None]:
        """The next turn of a conversation, sampled as ``settings`` say; the last event is Done. Nothing is kept."""
        with self._running():
            self._load()
            yield from reply(self._opener, settings, messages)

    @property
    def window(self) -> float:
        """Tokens of the longest prompt that is read. Loads the model."""
        with self._running():
            self._load()
            return self._opener.longest

    def _speaker(self, held: StoredDocument) -> TextGenerator:
        """The model here, which is loaded."""
        self._load()
        return LocalGenerator(
            self._opener,
            self.settings,
            held,
            lambda documents, question: self._asking.begin(documents, question, True),
            lambda begun, question, settings: self._asking.answer(begun, question, settings),
            self._stop.is_set,
        )

    def _compute(self, feed: ForwardRequest) -> Tensor:
        return compute_alone(self.model, self._stop.is_set)(feed)

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._stop.clear()
        try:
            yield
        finally:
            self._listening = False

    @contextmanager
    def _chatting(self) -> Iterator[ChatWorkflow]:
        with self._running():
            loaded = self._load()

            def begin(documents: Sequence[StoredDocument] | None, question: str, of: Conversation) -> Beginning:
                begun = yield from self._asking.begin(documents, question, True, of)
                begun.work.seconds["load"] = loaded
                return begun

            yield ChatWorkflow(self._opener, self.settings, self.store, begin, self._asking.answer, self._stop.is_set)

    @cached_property
    def _opener(self) -> RequestBuilder:
        return RequestBuilder(self.model, self.settings, lambda: self.store, self._stop.is_set, self._loader.pools)

    @cached_property
    def _asking(self) -> AskWorkflow:
        return AskWorkflow(self._opener, lambda: self._retrieval, self.settings, self._measured, self._stop.is_set)

    def _measured(self) -> dict[str, Any] | None:
        """What ``localctx quality --context`` found out about the model on this machine."""
        home, name = self.settings.home, self.settings.model
        return read_store(home, lambda: self.store, lambda store: store.verdicts.of(name).get(MEASURED))

    @cached_property
    def _shelving(self) -> LibraryWorkflow:
        stop = self._stop.is_set
        return LibraryWorkflow(self.settings, lambda: self.store, lambda: self._opener, self._progress, stop)

    @cached_property
    def _retrieval(self) -> RetrievalWorkflow:
        return RetrievalWorkflow(self._opener, self.settings, lambda: self.store, self._progress, self._stop.is_set)

    def _read_files(self, sources: Sequence[str], kept: bool) -> tuple[list[StoredDocument], dict[str, float]]:
        """The documents, and seconds spent. The model is loaded after: a wrong name is told at once."""
        start = time.perf_counter()
        documents = self._parse(sources, kept)
        return documents, {"parse": time.perf_counter() - start, "load": self._load()}

    def _parse(self, sources: Sequence[str], kept: bool = True) -> list[StoredDocument]:
        documents = (self._document(s, kept) for s in sources)
        return [StoredDocument(d.row, d.text, d.spans) for d in documents]

    def _load(self) -> float:
        """Load the model, and listen from then on; seconds it took."""
        self.model  # noqa: B018 (loads)
        self._listening = True
        seconds, self._load_seconds = self._load_seconds, 0.0  # the next finds it loaded
        return seconds

    def _document(self, source: str, kept: bool) -> Document:
        """As it was read before if that is ``kept`` and the file untouched: optical reading takes minutes."""
        ocr, home = self.settings.ocr, self.settings.home
        if kept and (found := read_store(home, lambda: self.store, lambda store: find_stored(store, source, ocr))):
            return found
        turning = lambda done, total: self._progress(Progress(f"pages of {source}", done, total))  # noqa: E731
        return read_document(source, turning, ocr, self._stop.is_set)
