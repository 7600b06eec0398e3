"""A chat of a session: questions that build on each other, which outlive the process."""

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
    """The chat ``id`` of the store. What was said is part of every next prompt, and its pages are kept.

    Everything raises ChatError for a chat that was deleted, and ChatFull where the model's window is full; see
    ``Session.ask`` for the rest.
    """

    def __init__(self, workflows: Workflows, run: Run, id: str) -> None:
        self._workflows, self._run = workflows, run
        self.id = id

    @property
    def messages(self) -> list[Message]:
        """The messages of the branch that was answered last, in order."""
        return self._workflows.runtime.store.chats.messages(self.id)

    def ask(self, question: str, until: str = "") -> Answer:
        """Answer ``question`` after what was said, from the document as far as ``until`` (``Session.ask``). Earlier
        answers from further on are then left out.
        """
        return answer_of(self.stream(question, until))

    def stream(self, question: str, until: str = "") -> Generator[Event, None, None]:
        """As ``ask``, giving events as they come; the last is Done."""
        return self._run(self._workflows.chats.ask(self.id, question, until))

    def edit(self, question: str, until: str = "") -> Answer:
        """Answer ``question`` in place of the last one, on a branch of its own."""
        return answer_of(self._run(self._workflows.chats.edit(self.id, question, until=until)))

    def regenerate(self, temperature: float | None = None, until: str = "") -> Answer:
        """Answer the last question again. Raises UsageError where the answer would be the same (temperature 0)."""
        return answer_of(self._run(self._workflows.chats.regenerate(self.id, temperature, until)))

    def ask_whole(self, way: WholeWay, until: str = "") -> Answer:
        """Answer the last question again, from the whole of the chat's documents: ``summarize`` all of their sections,
        or ask every passage (``everywhere``).
        """
        return answer_of(self._run(self._workflows.chats.ask_whole(self.id, way, until)))

    def add(self, sources: Sequence[str]) -> None:
        """Let the chat be about these files too."""
        self._workflows.chats.add_documents(self.id, sources)
