"""A stored chat of a session: questions that build on each other."""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Event
from localctx.results import Answer, answer_of
from localctx.store.chats import Message
from localctx.workflows.chat.whole_document import WholeWay
from localctx.workflows.workflows import Workflows

Run = Callable[[EngineCoroutine[Any]], Generator[Event, None, Any]]


class SessionChat:
    """The chat ``id`` of the store. Earlier messages are part of every later prompt, and their pages are kept.

    Everything raises ChatError for a deleted chat, and ChatFull if the model's window is full. See ``Session.ask`` for
    the rest.
    """

    def __init__(self, workflows: Workflows, run: Run, id: str) -> None:
        self._workflows, self._run = workflows, run
        self.id = id

    @property
    def messages(self) -> list[Message]:
        """The messages of the most recently answered branch, in order."""
        return self._workflows.runtime.store.chats.messages(self.id)

    def ask(self, question: str, until: str = "") -> Answer:
        """Answer ``question`` after the earlier messages, from the document up to ``until`` (``Session.ask``). Earlier
        answers from later parts are then left out.
        """
        return answer_of(self.stream(question, until))

    def stream(self, question: str, until: str = "") -> Generator[Event, None, None]:
        """Answer like ``ask``, but yield events as they arrive. The last is Done."""
        return self._run(self._workflows.chats.ask(self.id, question, until))

    def edit(self, question: str, until: str = "") -> Answer:
        """Answer ``question`` instead of the last one, on a new branch."""
        return answer_of(self._run(self._workflows.chats.edit(self.id, question, until=until)))

    def regenerate(self, temperature: float | None = None, until: str = "") -> Answer:
        """Answer the last question again. Raises UsageError if the answer would be the same (temperature 0)."""
        return answer_of(self._run(self._workflows.chats.regenerate(self.id, temperature, until)))

    def ask_whole(self, way: WholeWay, until: str = "") -> Answer:
        """Answer the last question again from all of the chat's documents: ``summarize`` all sections, or ask every
        passage (``everywhere``).
        """
        return answer_of(self._run(self._workflows.chats.ask_whole(self.id, way, until)))

    def add(self, sources: Sequence[str]) -> None:
        """Add these files to the chat's documents."""
        self._workflows.chats.add_documents(self.id, sources)
