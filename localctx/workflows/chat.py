"""Chatting: what was said on a branch of a chat is the history of its next question, and the answer becomes part of it.

A question is in the chat before it is answered. An answer is in it before anything more is done, also a part of one.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Done, Note, Token
from localctx.engine.prompt import Conversation, Exchange
from localctx.engine.request import Begun, Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer, read, settle, shut
from localctx.errors import Cancelled, ChatError, StoreError, TooLong, UsageError
from localctx.settings import Settings
from localctx.store.chats import SUMMARY, UNTITLED, Chat, Message
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, store_errors

TITLE = 60  # characters of its first question that name a chat
_SUMMARIZE = "Summarize what was said so far."

FullChatAction = Literal["sink-window", "summarize", "new"]
"""What becomes of a chat that is full: only its ends are seen, what was said becomes a summary, or another begins."""

Beginning = EngineCoroutine[Begun]
Begin = Callable[[Sequence[StoredDocument] | None, str, Conversation], Beginning]
Answer = Callable[[Begun, str, Settings], EngineCoroutine[None]]


class ChatWorkflow:
    """Answers in the chats of a store.

    ``begin`` opens the work on a question about documents (None: all of the library) after a conversation; ``answer``
    answers it, and says in it what the answer stands on. A chat whose settings say ``library`` is about all of it.
    """

    def __init__(
        self,
        opener: RequestBuilder,
        settings: Settings,
        store: Store,
        begin: Begin,
        answer: Answer,
        cancelled: Callable[[], bool],
    ) -> None:
        self._opener, self._settings, self._store = opener, settings, store
        self._begin, self._answer, self._cancelled = begin, answer, cancelled

    def ask(self, chat: str, text: str) -> EngineCoroutine[None]:
        """Answer ``text`` after the last answer of the branch shown."""
        with store_errors(self._store.home):
            said = answered(self._store.chats.messages(chat))
            if not said and self._store.chats.get(chat).title == UNTITLED:
                self._store.chats.rename(chat, text[:TITLE])
            question = self._store.chats.append(chat, said[-1].id if said else None, "user", text)
        yield from self._reply(question, said, self._settings)

    def edit(self, chat: str, text: str, message: int | None = None) -> EngineCoroutine[None]:
        """Answer ``text`` in place of the question ``message`` (None: the last), on a branch of its own.

        Raises ChatError.
        """
        with store_errors(self._store.home):
            before, old = self._question(chat, message)
            question = self._store.chats.edit(old, text)
        yield from self._reply(question, before, self._settings)

    def go_on(self, chat: str, way: FullChatAction) -> EngineCoroutine[None]:
        """Answer the question that found the chat full, having made room in this ``way``.

        ``new`` goes on in another chat about the same documents, which Done's report names. Raises ChatError.
        """
        with store_errors(self._store.home):
            chats, (_, question) = self._store.chats, self._question(chat)
            if way == "sink-window":
                chats.set(chat, {"keep": way})
            elif way == "new":
                chat = chats.restart(chat, {"model": self._settings.model}).id
        if way == "new":
            yield Note("this is a new chat about the same documents")
        if way == "sink-window":
            yield Note("from here on only the beginning and the end of this chat are seen")
            yield from self.regenerate(chat)
            return
        if way == "summarize":
            yield Note("summarizing what was said")
            yield from map_events(self.summarize(chat), lambda event: None if isinstance(event, Token) else event)
        yield from self.ask(chat, question.text)

    def regenerate(self, chat: str, temperature: float | None = None) -> EngineCoroutine[None]:
        """Answer the last question again, on a branch of its own; a seed counts on with each answer.

        Raises ChatError; UsageError where the answer would be the same.
        """
        s = self._settings
        s = replace(s, temperature=s.temperature if temperature is None else temperature)
        with store_errors(self._store.home):
            before, question = self._question(chat)
            older = self._store.chats.replies(chat, question.id)
        if not s.temperature and any(m.stopped != "cancelled" and m.stats["model"] == s.model for m in older):
            raise UsageError("at temperature 0 the answer would be the same", "give a temperature, for example 0.8")
        s = replace(s, seed=None if s.seed is None else s.seed + len(older))
        yield from self._reply(question, before, s)

    def summarize(self, chat: str) -> EngineCoroutine[None]:
        """Put a summary, made by the model, in the place of what was said; what was said stays in the chat.

        Of a history that does not fit the window by itself the older half is left out, until it fits, and told.
        """
        turns = history(said := answered(self._store.chats.messages(chat)))
        while True:
            try:
                transcript = "\n\n".join(f"{asked}\n{replied}" for asked, replied in turns)
                work = self._opener.open([], [transcript], _SUMMARIZE, keep=False)
                break
            except TooLong:
                if len(turns) < 2:
                    raise
                yield Note(f"the oldest {len(turns) // 2:,} of {len(turns):,} answers are left out of the summary")
                turns = turns[len(turns) // 2 :]
        yield work.plan
        try:
            logits = yield from read(work)
            assert logits is not None, "the instruction is always left to be read"
            yield from answer(work, logits, self._opener.model.tokenizer, self._settings)
        except Cancelled:
            pass
        shut(work)
        if work.stopped == "cancelled":
            raise Cancelled
        with store_errors(self._store.home):
            self._store.chats.append(chat, said[-1].id, SUMMARY, work.said, stopped=work.stopped)
        yield Note("what was said before is remembered as a summary from here on")

    def _reply(self, question: Message, before: Sequence[Message], settings: Settings) -> EngineCoroutine[None]:
        with store_errors(self._store.home):
            chat = self._store.chats.get(question.chat)
            documents = None if chat.settings.get("library") else self._documents(chat)
        for about in chat.documents:
            if about.removed:
                yield Note(f"{about.name} was removed from the library: the answer does without it")
        of = Conversation(chat.id, history(before), chat.settings.get("keep", ""))
        begun = yield from self._begin(documents, question.text, of)
        work = begun.work
        message, failed = None, None
        try:
            with suppress(Cancelled):  # an answer that is cancelled stays as far as it came
                yield from self._answer(begun, question.text, settings)
        finally:  # also when who listens has gone
            try:
                message = self._remember(question, work)
            except StoreError as e:
                failed = str(e)
            shut(work)
        yield from map(Note, work.notes)
        report = work.answered(settings.model) | {"chat": chat.id, "message": message}
        yield Done(report, failed or work.failed)

    def _remember(self, question: Message, work: Request) -> int | None:
        """Store the answer, then its pages; the message's id, None where nothing was said."""
        if not work.said and work.stopped == "cancelled":
            return None
        report = work.answered(self._settings.model)
        stats = {field: report[field] for field in ("model", "mode", "tokens", "seconds")}
        stats["kv"] = {field: report["kv"][field] for field in ("codec", "keeper", "window")}
        with store_errors(self._store.home):
            chats = self._store.chats
            message = chats.append(
                question.chat, question.id, "assistant", work.said, report["citations"], stats, work.stopped
            ).id
            settle(self._opener.model, work, chats.branch_of(message), self._cancelled)
        return message

    def _documents(self, chat: Chat) -> list[StoredDocument]:
        documents, rows = self._store.documents, {d.id: d for d in self._store.documents.all()}
        return [
            StoredDocument(rows[d.id], documents.text(d.id), documents.spans(d.id))
            for d in chat.documents
            if not d.removed
        ]

    def _question(self, chat: str, message: int | None = None) -> tuple[list[Message], Message]:
        """A question (None: the last of the branch shown), and what was said before it. Raises ChatError."""
        said = self._store.chats.messages(chat, message)
        while said and said[-1].role != "user":
            said.pop()
        if not said:
            raise ChatError("nothing was asked in this chat yet", "ask something first")
        return said[:-1], said[-1]


def answered(said: Sequence[Message]) -> list[Message]:
    """A branch up to its last answer."""
    return list(said[:-1] if said and said[-1].role == "user" else said)


def history(said: Sequence[Message]) -> list[Exchange]:
    """The turns of a branch that the model is told; a summary stands for all before it."""
    turns, asked = list[Exchange](), ""
    for message in said:
        if message.role == "user":
            asked = message.text
        elif message.role == SUMMARY:
            turns = [(_SUMMARIZE, message.text)]
        else:
            turns.append((asked, message.text))
    return turns
