"""Chat: answers questions with the messages of a chat's branch as their history, and stores questions and answers.

A question is stored before it is answered, and an answer, whole or cancelled, before its pages are persisted.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Done, Note, Token
from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import SUMMARIZE_CHAT
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, persist_answer, run_request
from localctx.errors import Cancelled, ChatError, StoreError, TooLong, UsageError
from localctx.settings import Settings
from localctx.store.chats import SUMMARY, UNTITLED, Chat, Chats, Message
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.ask import AskWorkflow
from localctx.workflows.chat_history import answered, history, messages_until
from localctx.workflows.read_sources import store_sources
from localctx.workflows.read_until import locate_mark
from localctx.workflows.small_talk import is_small_talk

TITLE_LENGTH = 60  # characters of its first question that name a chat

FullChatAction = Literal["sink-window", "summarize", "new"]
"""The actions on a full chat: the sink-window keeper evicts its middle, a summary replaces what was said, or a new
chat about the same documents begins.
"""


class ChatWorkflow:
    """Answers questions in the chats of the store. A chat whose settings say ``library`` is about the whole library.

    Coroutines end with the event Done, whose report names the chat. They raise ChatFull if the documents fit in the
    prompt without the history only; the question is then answered by ``make_room``.
    """

    def __init__(self, builder: RequestBuilder, ask: AskWorkflow) -> None:
        self._builder, self._ask, self._runtime = builder, ask, builder.runtime

    def start(self, sources: Sequence[str]) -> Chat:
        """Create a chat about the files ``sources``, which are added to the library. Raises UserError."""
        documents = store_sources(self._runtime, sources)
        with store_errors(self._runtime.store.home):
            return self._chats.create("", documents, {"model": self._runtime.settings.model})

    def restart(self, chat: str) -> Chat:
        """Create a chat about the documents of another."""
        with store_errors(self._runtime.store.home):
            return self._chats.restart(chat, {"model": self._runtime.settings.model})

    def add_documents(self, chat: str, sources: Sequence[str]) -> None:
        """Add the files ``sources`` to the documents of a chat; the history is then prefilled anew after them."""
        documents = store_sources(self._runtime, sources)
        with store_errors(self._runtime.store.home), self._runtime.store.db.atomic():
            for document in documents:
                self._chats.add_document(chat, document)

    def ask(self, chat: str, text: str, until: str = "") -> EngineCoroutine[None]:
        """Answer ``text`` after the last answer of the chat's current branch."""
        with self._running() as loaded:
            yield from self._ask_next(chat, text, loaded, until)

    def edit(self, chat: str, text: str, message: int | None = None, until: str = "") -> EngineCoroutine[None]:
        """Answer ``text`` in place of the question ``message`` (None: the last), on a branch of its own.

        Raises ChatError.
        """
        with self._running() as loaded:
            with store_errors(self._runtime.store.home):
                before, old = self._question(chat, message)
                question = self._chats.edit(old, text)
            yield from self._answer(question, before, self._runtime.settings, loaded, until)

    def make_room(self, chat: str, action: FullChatAction, until: str = "") -> EngineCoroutine[None]:
        """Make room in a full chat by ``action``, then answer its last question. With ``new`` that is done in another
        chat, which Done's report names. Raises ChatError.
        """
        with self._running() as loaded:
            yield from self._make_room(chat, action, loaded, until)

    def regenerate(self, chat: str, temperature: float | None = None, until: str = "") -> EngineCoroutine[None]:
        """Answer the last question again, on a branch of its own; each answer has the next seed.

        Raises ChatError; UsageError where the answer would be the same.
        """
        with self._running() as loaded:
            yield from self._regenerate(chat, temperature, loaded, until)

    def summarize(self, chat: str) -> EngineCoroutine[None]:
        """Generate a summary that replaces the history in later prompts; the messages stay in the chat.

        While the history alone does not fit, its older half is left out, with a note. Raises Cancelled.
        """
        with self._running():
            yield from self._summarize(chat)

    @contextmanager
    def _running(self) -> Iterator[float]:
        """Load the model, in this number of seconds, and accept a cancel while the block runs."""
        with self._runtime.running():
            yield self._runtime.load()

    @property
    def _chats(self) -> Chats:
        return self._runtime.store.chats

    def _ask_next(self, chat: str, text: str, loaded: float, until: str) -> EngineCoroutine[None]:
        if until:
            locate_mark(self._documents_asked(chat), until)  # before the question is stored
        with store_errors(self._runtime.store.home):
            before = answered(self._chats.messages(chat))
            if not before and self._chats.get(chat).title == UNTITLED:
                self._chats.rename(chat, text[:TITLE_LENGTH])
            question = self._chats.append(chat, before[-1].id if before else None, "user", text)
        yield from self._answer(question, before, self._runtime.settings, loaded, until)

    def _make_room(self, chat: str, action: FullChatAction, loaded: float, until: str) -> EngineCoroutine[None]:
        with store_errors(self._runtime.store.home):
            _, question = self._question(chat)
            if action == "sink-window":
                self._chats.set(chat, {"keep": action})
            elif action == "new":
                chat = self._chats.restart(chat, {"model": self._runtime.settings.model}).id
        if action == "sink-window":
            yield Note("from here on only the beginning and the end of this chat are seen")
            yield from self._regenerate(chat, None, loaded, until)
            return
        if action == "new":
            yield Note("this is a new chat about the same documents")
        else:
            yield Note("summarizing what was said")
            yield from map_events(self._summarize(chat), lambda event: None if isinstance(event, Token) else event)
        yield from self._ask_next(chat, question.text, loaded, until)

    def _regenerate(self, chat: str, temperature: float | None, loaded: float, until: str) -> EngineCoroutine[None]:
        s = self._runtime.settings
        s = replace(s, temperature=s.temperature if temperature is None else temperature)
        with store_errors(self._runtime.store.home):
            before, question = self._question(chat)
            older = self._chats.replies(chat, question.id)
        read_alike = (m for m in older if (m.stats.get("until") or {}).get("mark", "") == until)
        if not s.temperature and any(m.stopped != "cancelled" and m.stats["model"] == s.model for m in read_alike):
            raise UsageError("at temperature 0 the answer would be the same", "give a temperature, for example 0.8")
        s = replace(s, seed=None if s.seed is None else s.seed + len(older))
        yield from self._answer(question, before, s, loaded, until)

    def _summarize(self, chat: str) -> EngineCoroutine[None]:
        messages = answered(self._chats.messages(chat))
        exchanges = history(messages)
        while True:
            try:
                transcript = "\n\n".join(f"{question}\n{answer}" for question, answer in exchanges)
                request = self._builder.build([], [transcript], SUMMARIZE_CHAT, persist=False)
                break
            except TooLong:
                if len(exchanges) < 2:
                    raise
                half = len(exchanges) // 2
                yield Note(f"the oldest {half:,} of {len(exchanges):,} answers are left out of the summary")
                exchanges = exchanges[half:]
        yield request.plan
        yield from run_request(request, answer_request(request, self._runtime.settings))
        if request.stopped == "cancelled":
            raise Cancelled
        with store_errors(self._runtime.store.home):
            self._chats.append(chat, messages[-1].id, SUMMARY, request.text, stopped=request.stopped)
        yield Note("what was said before is remembered as a summary from here on")

    def _answer(
        self, question: Message, before: Sequence[Message], settings: Settings, loaded: float, until: str
    ) -> EngineCoroutine[None]:
        chat, documents = self._chats.get(question.chat), self._documents_asked(question.chat)
        for document in chat.documents:
            if document.removed:
                yield Note(f"{document.name} was removed from the library: the answer does without it")
        if documents != [] and is_small_talk(question.text):  # with documents or history it is answered from these
            request = yield from self._ask.open_whole([], question.text, persist=False)
        else:
            request = yield from self._open(question.text, before, chat, documents, until)
        request.seconds["load"] = loaded
        stored = _StoredAnswer()
        yield from run_request(request, self._answer_and_store(request, question, settings, stored))
        yield from map(Note, request.persist_notes)
        report = replace(request.answer_report(), chat=chat.id, message=stored.message)
        yield Done(report, stored.error or request.persist_error)

    def _open(
        self,
        question: str,
        before: Sequence[Message],
        chat: Chat,
        documents: Sequence[StoredDocument] | None,
        until: str,
    ) -> EngineCoroutine[Request]:
        """Build the request that answers a question after the messages ``before``."""
        known = messages_until(before, locate_mark(documents, until)) if until else before
        about_documents = documents != []
        exchanges, all_said = history(known, about_documents), history(before, about_documents)
        if exchanges != all_said:
            yield Note("what was answered from further on is left out")
        conversation = Conversation(chat.id, exchanges, chat.settings.get("keep", ""))
        return (yield from self._ask.open(documents, question, True, conversation, until))

    def _answer_and_store(
        self, request: Request, question: Message, settings: Settings, stored: "_StoredAnswer"
    ) -> EngineCoroutine[None]:
        """Answer, and store what was generated, also if it is cancelled or the coroutine is closed."""
        try:
            yield from self._ask.answer(request, question.text, settings)
        finally:
            try:
                stored.message = self._store_answer(request, question)
            except StoreError as e:
                stored.error = str(e)

    def _store_answer(self, request: Request, question: Message) -> int | None:
        """Store the answer, then its pages; returns the message's id, None if nothing was generated."""
        if not request.text and request.stopped == "cancelled":
            return None
        with store_errors(self._runtime.store.home):
            message = self._chats.append(
                question.chat,
                question.id,
                "assistant",
                request.text,
                request.citations,
                request.chat_stats(),
                request.stopped,
            ).id
            persist_answer(request, self._chats.branch_of(message), self._runtime.cancelled)
        return message

    def _documents_asked(self, chat: str) -> list[StoredDocument] | None:
        """The documents of a chat; None for the whole library."""
        with store_errors(self._runtime.store.home):
            found = self._chats.get(chat)
            return None if found.settings.get("library") else self._documents(found)

    def _documents(self, chat: Chat) -> list[StoredDocument]:
        documents = self._runtime.store.documents
        rows = {row.id: row for row in documents.all()}
        return [
            StoredDocument(rows[d.id], documents.text(d.id), documents.spans(d.id))
            for d in chat.documents
            if not d.removed
        ]

    def _question(self, chat: str, message: int | None = None) -> tuple[list[Message], Message]:
        """Returns the messages before a question (None: the last of the current branch), and the question.

        Raises ChatError.
        """
        messages = self._chats.messages(chat, message)
        while messages and messages[-1].role != "user":
            messages.pop()
        if not messages:
            raise ChatError("nothing was asked in this chat yet", "ask something first")
        return messages[:-1], messages[-1]


@dataclass
class _StoredAnswer:
    """The result of storing an answer: its message's id, or why it could not be stored."""

    message: int | None = None
    error: str | None = None
