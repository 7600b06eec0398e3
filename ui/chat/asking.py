"""Starts answers in a chat: to a new or an edited question, or to the last question again. An answer continues when its
page is closed.
"""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from localctx.serving.worker import EngineWorker, SessionJob
from localctx.store.chats import Message
from localctx.ui.answers.conversation import StreamingAnswer, question_html
from localctx.ui.chat import shown_chat
from localctx.ui.chat.attached_files import read_attached
from localctx.ui.chat.shown_chat import ShownChat
from localctx.ui.reading.chat_documents import chat_choice
from localctx.ui.render import note
from localctx.ui.running.running_answers import RunningAnswer, TypedQuestion
from localctx.ui.window import AppWindow

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session
    from localctx.workflows.chat.chat import FullChatAction
    from localctx.workflows.chat.whole_document import WholeWay

STARTING = note("Starting …")
RETRY_TEMPERATURE = 0.8  # temperature of another answer to the same question


class AnswerStarter:
    """Starts answers in chats of the window. Its methods raise UsageError if the chat has a running answer."""

    def __init__(self, window: AppWindow, shown: ShownChat) -> None:
        self._window, self._shown = window, shown

    def begin_chat(self, documents: Sequence[str]) -> str:
        """Create a chat about these documents (ids) and return its id."""
        with self._window.store() as store:
            return store.chats.create("", documents, {"model": self._window.settings.model}).id

    def ask(
        self,
        typed: TypedQuestion,
        chat: str,
        documents: Sequence[str],
        library: str,
        until: str | None,
        listed: Sequence[str],
    ) -> None:
        """Read the dropped files into the library, then answer the question in a chat about these files and
        ``documents`` (ids). The documents ``listed`` stay in its checklist.

        The library worker reads the files, so that answers in other chats do not wait.
        """
        added, already_reported = list[str](), self._window.readings.of(typed.tab).unreadable
        settings = chat_choice(library, until, listed)

        def add_files(session: "Session") -> Generator[Any, None, None]:
            added.extend((yield from read_attached(session, typed.files, already_reported)))

        def answer(session: "Session") -> Generator[Any, None, None]:
            chats = session.store.chats
            chats.set_documents(chat, list(dict.fromkeys([*documents, *added])))
            chats.set(chat, settings)
            if typed.text:
                yield from session.workflows.chats.ask(chat, typed.text, _clean_until(until))

        jobs = [(add_files, self._window.library_worker)] if typed.files else []
        self._begin(chat, self._shown.messages(chat), typed.text, [*jobs, (answer, self._window.answer_worker)], typed)

    def edit(self, chat: str, before: Sequence[Message], edited: Message, text: str, until: str | None) -> None:
        """Answer an edited question. ``before`` holds the messages before it."""
        job: SessionJob = lambda s: s.workflows.chats.edit(chat, text, edited.id, _clean_until(until))  # noqa: E731
        self._begin(chat, before, text, [(job, self._window.answer_worker)])

    def regenerate(self, chat: str, until: str | None) -> None:
        """Answer the last question of a chat again, at RETRY_TEMPERATURE if it already has an answer."""
        temperature = RETRY_TEMPERATURE if self._shown.messages(chat)[-1].role != "user" else None
        self._again(chat, lambda s: s.workflows.chats.regenerate(chat, temperature, _clean_until(until)))

    def continue_answer(self, chat: str) -> None:
        """Continue the last answer of a chat, which was cut or stopped."""
        *before, question, answer = self._shown.messages(chat)
        job: SessionJob = lambda session: session.workflows.chats.continue_answer(chat)  # noqa: E731
        self._begin(chat, before, question.text, [(job, self._window.answer_worker)], text_so_far=answer.text)

    def ask_whole(self, chat: str, until: str | None, way: "WholeWay") -> None:
        """Answer the last question of a chat again, from its whole documents."""
        self._again(chat, lambda s: s.workflows.chats.ask_whole(chat, way, _clean_until(until)))

    def make_room(self, chat: str, until: str | None, action: "FullChatAction") -> None:
        """Make room in a full chat, then answer its last question."""
        self._again(chat, lambda s: s.workflows.chats.make_room(chat, action, _clean_until(until)))

    def _again(self, chat: str, job: SessionJob) -> None:
        """Run a job that answers the last question of a chat again."""
        messages = self._shown.messages(chat)
        last = max(i for i, m in enumerate(messages) if m.role == "user")
        self._begin(chat, messages[:last], messages[last].text, [(job, self._window.answer_worker)])

    def _begin(
        self,
        chat: str,
        before: Sequence[Message],
        question: str,
        jobs: Sequence[tuple[SessionJob, EngineWorker]],
        typed: TypedQuestion | None = None,
        text_so_far: str = "",
    ) -> None:
        shown = self._shown.html(before[shown_chat.first_shown(before) :])
        shown += question_html(question) if question else ""
        known = frozenset(m.id for m in self._shown.messages(chat)) if typed else frozenset()
        answer = RunningAnswer(chat, StreamingAnswer(chat, shown, text_so_far, status=STARTING), typed, known)
        self._window.answers.begin(answer, jobs)


def _clean_until(until: str | None) -> str:
    """Returns the place typed under "Read only up to", without spaces around it; "" if none."""
    return (until or "").strip()
