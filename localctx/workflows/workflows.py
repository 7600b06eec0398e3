"""Gives access to all workflows of one session, as engine coroutines, which a scheduler can run together."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.runtime import Runtime
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.answer.retrieval import RetrievalWorkflow
from localctx.workflows.read_sources import read_sources, store_sources

if TYPE_CHECKING:  # imported only when first needed, because a single question needs none of these modules
    from localctx.workflows.ahead.ingest import IngestWorkflow
    from localctx.workflows.ahead.read_ahead import ReadAheadWorkflow
    from localctx.workflows.ahead.readiness import ReadinessWorkflow
    from localctx.workflows.chat.chat import ChatWorkflow
    from localctx.workflows.manage_library import LibraryWorkflow
    from localctx.workflows.reply import ReplyRequest
    from localctx.workflows.summarize.summarize import SummarizeWorkflow
    from localctx.workflows.text_generator import LocalGenerator, TextGenerator


class Workflows:
    """The workflows of one ``runtime``: questions, chats, summaries and the library.

    A method that returns an ``EngineCoroutine`` does nothing until ``Session.run`` or a scheduler runs it.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._builder = RequestBuilder(runtime)

    @cached_property
    def questions(self) -> AskWorkflow:
        """The workflow for questions about documents."""
        return AskWorkflow(self._builder, RetrievalWorkflow(self._builder))

    @cached_property
    def chats(self) -> "ChatWorkflow":
        """The workflow for questions that continue a chat."""
        from localctx.workflows.chat.chat import ChatWorkflow

        return ChatWorkflow(self._builder, self.questions)

    @contextmanager
    def library(self) -> "Iterator[LibraryWorkflow]":
        """Open the library to add files or search it, while the block runs. It can be cancelled from the start of the
        block.
        """
        from localctx.workflows.manage_library import LibraryWorkflow

        with self.runtime.running(cancellable=True):
            yield LibraryWorkflow(self._builder)

    @contextmanager
    def watched_files(self) -> "Iterator[IngestWorkflow]":
        """Open the library to add files of watched folders, while the block runs. It can be cancelled from the start of
        the block.
        """
        from localctx.workflows.ahead.ingest import IngestWorkflow

        with self.library() as library:
            yield IngestWorkflow(self.runtime, library)

    @cached_property
    def reading_ahead(self) -> "ReadAheadWorkflow":
        """The workflow that prefills stored documents before anyone asks about them."""
        from localctx.workflows.ahead.read_ahead import ReadAheadWorkflow

        return ReadAheadWorkflow(self._builder, self.questions)

    @cached_property
    def readiness(self) -> "ReadinessWorkflow":
        """The workflow that makes documents ready for questions, and measures how much time that saves."""
        from localctx.workflows.ahead.readiness import ReadinessWorkflow

        return ReadinessWorkflow(self._builder, self.questions)

    @contextmanager
    def summaries(
        self, open_generator: "Callable[[StoredDocument], TextGenerator] | None" = None
    ) -> "Iterator[SummarizeWorkflow]":
        """Open the workflow that summarizes documents, or asks each of them the same questions.

        ``open_generator`` is a function that returns the text generator for a document; without it, this machine's
        model is used.
        """
        from localctx.workflows.summarize.summarize import SummarizeWorkflow

        with self.runtime.running():
            yield SummarizeWorkflow(self.runtime, open_generator or self._local_generator)

    def reply(self, asked: "ReplyRequest") -> EngineCoroutine[None]:
        """Answer a raw conversation or continue a raw text. The last event is Done."""
        from localctx.workflows.reply import reply

        return reply(self._builder, self.questions, asked)

    def read(self, source: str) -> StoredDocument:
        """Read one file, or find its stored document. Raises DocumentError, Cancelled."""
        return read_sources(self.runtime, [source])[0]

    def store(self, sources: Sequence[str]) -> list[str]:
        """Read ``sources`` and add them to the library; returns the ids of their documents."""
        return store_sources(self.runtime, sources)

    @property
    def max_prompt_tokens(self) -> float:
        """The maximum number of tokens of a prompt. It is infinite if the keeper evicts tokens and keeps positions
        within the window, because a prompt of any length can then be read. Loads the model.
        """
        with self.runtime.running():
            self.runtime.load()
            return self._builder.max_prompt_tokens

    def _local_generator(self, document: StoredDocument) -> "LocalGenerator":
        from localctx.workflows.text_generator import LocalGenerator

        self.runtime.load()
        return LocalGenerator(self._builder, self.questions, document)
