"""The main class of the Python API: a session opens documents and answers questions about them."""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from localctx.document_parts import Citation
from localctx.engine.coroutine import AwaitedForward, CancelCheck, EngineCoroutine, compute_alone, consume, drive
from localctx.engine.events import Event, InUse, Progress
from localctx.engine.model_loader import ModelLoader
from localctx.engine.runtime import Runtime
from localctx.kv.keepers import make_keeper
from localctx.models.base import ForwardRequest, Model, PagedModel
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.store.process_locks import at_work
from localctx.store.store import Store
from localctx.workflows.workflows import Workflows

if TYPE_CHECKING:  # imported when first needed, because the command ``ask`` does not need them
    from localctx.results import Answer, Summary
    from localctx.session_chat import SessionChat
    from localctx.workflows.summary_task import SummaryTask

Result = TypeVar("Result")


def ignore(event: Progress) -> None:
    """Do nothing: the default of ``on_progress``."""


class Session:
    """Answers questions about documents on this machine, with ``settings``. Close it, or use it in a ``with``
    statement. Only one thread at a time may use it.

    ``sources`` are the default documents of ``ask``, ``stream``, ``chat`` and ``summarize``: file paths, ``-`` for
    standard input, or ids of stored documents. The model is downloaded and loaded when it is first needed, and
    ``on_progress`` is called meanwhile. Sessions with the same ``loader`` share the model. Raises UsageError for a
    keeper that does not exist.
    """

    def __init__(
        self,
        settings: Settings,
        on_progress: Callable[[Progress], None] = ignore,
        loader: ModelLoader | None = None,
        sources: Sequence[str] = (),
    ) -> None:
        make_keeper(settings.keep, 0)  # raises for a wrong name before anything is loaded
        self.runtime = Runtime(settings, on_progress, loader)
        self.workflows = Workflows(self.runtime)
        self.sources = tuple(sources)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        self.runtime.close()

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.runtime.settings

    @property
    def store(self) -> Store:
        """The store in the data folder. Raises StoreError."""
        return self.runtime.store

    @property
    def model(self) -> Model:
        """The model, downloaded and loaded when first needed. Raises ModelError."""
        return self.runtime.model

    @property
    def paged_model(self) -> PagedModel:
        """The ``model``, if its keys and values are in pages. Raises UsageError for an engine without pages."""
        return self.runtime.paged_model

    @property
    def in_use(self) -> InUse:
        """The memory in use now, in bytes; all zero while no model is loaded."""
        return self.runtime.in_use

    def change(self, settings: Settings) -> None:
        """Use other ``settings`` from now on. The model stays loaded if both settings select the same one."""
        self.runtime.change(settings)
        self.workflows = Workflows(self.runtime)

    def cancel(self) -> bool:
        """Stop the running work. May be called from any thread or a signal handler. See ``Runtime.cancel``."""
        return self.runtime.cancel()

    def ask(
        self,
        question: str,
        sources: Sequence[str] | None = None,
        *,
        persist: bool = True,
        library: bool = False,
        until: str = "",
    ) -> "Answer":
        """Answer ``question`` from ``sources`` (None: the session's documents), or from passages of the whole
        ``library``. If ``until`` is given, only the beginning of a single document is read, up to ``"40%"``, the end of
        ``"page 12"``, or words in the document.

        The pages of the documents are persisted, so that the next question starts where prefill ended. If ``persist``
        is False, the store does not change. Raises a subclass of UserError, which says what is wrong and the remedy, or
        Cancelled if the work is cancelled before prefill began.
        """
        from localctx.results import answer_of

        return answer_of(self.stream(question, sources, persist=persist, library=library, until=until))

    def stream(
        self,
        question: str,
        sources: Sequence[str] | None = None,
        *,
        persist: bool = True,
        library: bool = False,
        until: str = "",
    ) -> Generator[Event, None, None]:
        """Answer like ``ask``, but yield typed events (``localctx.events``) as they happen: Planned, Progress, Quoted,
        Token, Note, NearestPassage, Evicted, and Done at the end. Closing the generator cancels the work.
        """
        sources = self.sources if sources is None else sources
        return self.run(self.workflows.questions.ask(sources, question, persist, library, until))

    def prepare(self, source: str) -> Generator[Event, None, None]:
        """Prefill the document ``source`` and persist its pages, so that questions start where prefill ended. A
        document whose questions will be answered from passages is made searchable instead.

        The last event is Done. Its ``failed`` is the reason if the pages could not be kept.
        """
        return self.run(self.workflows.questions.prepare(source))

    def chat(self, chat: str | None = None) -> "SessionChat":
        """Returns the stored chat with the id ``chat``, or a new chat about the session's documents if it is None.
        Raises UserError, and ChatError if the chat does not exist.
        """
        from localctx.session_chat import SessionChat

        chats = self.workflows.chats
        found = self.store.chats.get(chat) if chat else chats.start(self.sources)
        return SessionChat(self.workflows, self.run, found.id)

    def summarize(
        self, *, length: str = "medium", style: str = "prose", language: str = "", persist: bool = False
    ) -> "list[Summary]":
        """Summarize each of the session's documents. ``length`` is short, medium, long or a number of words. ``style``
        is prose, bullets or simple. If ``persist`` is True, the pages of documents that are read whole are kept.

        Raises UserError, Cancelled.
        """
        from localctx.workflows.summary_task import SummaryTask

        task = SummaryTask(length, style, language)
        documents = [self.workflows.read(source) for source in self.sources]
        return [self._summarize(document, task, persist) for document in documents]

    def run(self, coroutine: EngineCoroutine[Result]) -> Generator[Event, None, Result]:
        """Run a coroutine of ``workflows``, one forward pass at a time. Yields the coroutine's events and returns its
        result.
        """
        with at_work(self.settings.home):
            return (yield from drive(coroutine, self._compute))

    def forward_each(self, requests: Sequence[ForwardRequest], cancelled: CancelCheck) -> list[Tensor]:
        """Compute the ``requests`` of several coroutines in one call. See ``Model.forward_each``."""
        return self.model.forward_each(requests, cancelled)

    def _compute(self, forward: AwaitedForward) -> Tensor | list[Tensor]:
        return compute_alone(self.model, self.runtime.cancelled)(forward)

    def _summarize(self, document: StoredDocument, task: "SummaryTask", persist: bool) -> "Summary":
        from localctx.results import Summary

        previous = self.settings
        self.change(task.adapted(previous))
        try:
            with self.workflows.summaries() as summaries:
                result = consume(self.run(summaries.summarize(document, task, persist)), lambda event: None)
        finally:
            self.change(previous)
        return Summary(
            document=document.id,
            name=document.name,
            text=result["summary"],
            citations=tuple(map(Citation.from_json, result["citations"])),
            sections=tuple(result["sections"]),
            tokens=result["tokens"],
            seconds=result["seconds"],
            mode=result["mode"],
        )
