"""A stored chat of a session, in which later questions build on earlier ones."""

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
    """The stored chat with the id ``id``. Earlier messages are part of every later prompt, and their pages are kept.

    Every method raises ChatError if the chat was deleted. Methods that answer also raise ChatFull if the model's window
    is full, and the errors of ``Session.ask``.
    """

    def __init__(self, workflows: Workflows, run: Run, id: str) -> None:
        self._workflows, self._run = workflows, run
        self.id = id

    @property
    def messages(self) -> list[Message]:
        """The messages of the branch that was answered last, in order."""
        return self._workflows.runtime.store.chats.messages(self.id)

    def ask(self, question: str, until: str = "") -> Answer:
        """Answer ``question`` with the earlier messages in the prompt. If ``until`` is given, only the beginning of the
        document is read (see ``Session.ask``), and earlier answers that used later parts are left out.
        """
        return answer_of(self.stream(question, until))

    def stream(self, question: str, until: str = "") -> Generator[Event, None, None]:
        """Answer like ``ask``, but yield events as they happen. The last event is Done."""
        return self._run(self._workflows.chats.ask(self.id, question, until))

    def edit(self, question: str, until: str = "") -> Answer:
        """Replace the last question by ``question`` and answer it, on a new branch."""
        return answer_of(self._run(self._workflows.chats.edit(self.id, question, until=until)))

    def regenerate(self, temperature: float | None = None, until: str = "") -> Answer:
        """Answer the last question again. Raises UsageError if the answer would be the same (temperature 0)."""
        return answer_of(self._run(self._workflows.chats.regenerate(self.id, temperature, until)))

    def ask_whole(self, way: WholeWay, until: str = "") -> Answer:
        """Answer the last question again from the whole text of the chat's documents. ``way`` is ``summarize``
        (summarize all sections) or ``everywhere`` (ask about every passage).
        """
        return answer_of(self._run(self._workflows.chats.ask_whole(self.id, way, until)))

    def add(self, sources: Sequence[str]) -> None:
        """Add these files to the chat's documents."""
        self._workflows.chats.add_documents(self.id, sources)
