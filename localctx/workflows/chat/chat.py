"""Answers the questions of chats, with the messages of the chat's branch as history. Stores the questions and answers.

A question is stored before the model is loaded. An answer, complete or cancelled, is stored before its pages are
persisted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Done, Note, Token
from localctx.engine.planning.cache_plan import refuse_eviction
from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import SUMMARIZE_CHAT
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, run_request
from localctx.errors import Cancelled, ChatError, TooLong, UsageError
from localctx.library.wording.small_talk import is_small_talk
from localctx.settings import Settings
from localctx.store.chats import SUMMARY, UNTITLED, Chat, Chats, Message
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.chat.asked_sources import AskedSources
from localctx.workflows.chat.chat_history import answered, history, last_question, messages_about, messages_until
from localctx.workflows.chat.stored_answer import StoreOutcome, answer_and_store, citations_of
from localctx.workflows.chat.whole_document import WholeDocumentWorkflow, WholeWay
from localctx.workflows.read_sources import store_sources
from localctx.workflows.read_until import locate_mark

TITLE_LENGTH = 60  # the first characters of the first question become the chat's title

FullChatAction = Literal["sink-window", "summarize", "new"]
"""What to do when a chat is full: evict its middle, replace its history by a summary, or begin a new chat."""


class ChatWorkflow:
    """Answers questions in the chats of the store.

    A chat whose settings have ``library`` is about the whole library; ``collection``, an id, adds the documents of that
    collection. ``until`` is a mark in the only document, such as ``40%``; the text after the mark is not read.
    Coroutines end with the event Done, whose report names the chat. They raise ChatFull if the documents fit into the
    prompt only without the history. ``make_room`` can then shorten the history and answer the question.
    """

    def __init__(self, builder: RequestBuilder, ask: AskWorkflow) -> None:
        self._builder, self._ask, self._runtime = builder, ask, builder.runtime
        self._whole = WholeDocumentWorkflow(builder, ask)

    def start(self, sources: Sequence[str]) -> Chat:
        """Create a chat about the files ``sources``, which are added to the library. Raises UserError."""
        documents = store_sources(self._runtime, sources)
        with store_errors(self._runtime.store.home):
            return self._chats.create("", documents, {"model": self._runtime.settings.model})

    def restart(self, chat: str) -> Chat:
        """Create a chat about the documents of another chat."""
        with store_errors(self._runtime.store.home):
            return self._chats.restart(chat, {"model": self._runtime.settings.model})

    def add_documents(self, chat: str, sources: Sequence[str]) -> None:
        """Add the files ``sources`` to a chat's documents. The next question then prefills the chat's history again,
        because it follows the documents.
        """
        documents = store_sources(self._runtime, sources)
        with store_errors(self._runtime.store.home), self._runtime.store.db.atomic():
            for document in documents:
                self._chats.add_document(chat, document)

    def ask(self, chat: str, text: str, until: str = "") -> EngineCoroutine[None]:
        """Answer ``text``, a question that continues the chat's current branch. ``until`` is a mark in the only
        document, such as ``40%``, ``page 12`` or words of the document. The text after the mark is not read.
        """
        with self._runtime.running():
            yield from self._ask_next(chat, text, until)

    def edit(self, chat: str, text: str, message: int | None = None, until: str = "") -> EngineCoroutine[None]:
        """Answer ``text`` in place of the question ``message`` (None: the last question), on a new branch.

        Raises ChatError.
        """
        with self._runtime.running():
            self._documents_asked(chat)
            with store_errors(self._runtime.store.home):
                before, old = last_question(self._chats, chat, message)
                question = self._chats.edit(old, text)
            yield from self._answer(question, before, self._runtime.settings, until)

    def make_room(self, chat: str, action: FullChatAction, until: str = "") -> EngineCoroutine[None]:
        """Make room in a chat that has become too long, then answer its last question. The ``action`` ``sink-window``
        evicts the middle of the chat, ``summarize`` replaces the history by a summary, and ``new`` answers in a new
        chat, which the report of Done names. Raises ChatError.
        """
        with self._runtime.running():
            yield from self._make_room(chat, action, until)

    def regenerate(self, chat: str, temperature: float | None = None, until: str = "") -> EngineCoroutine[None]:
        """Answer the last question again, on a new branch. Each new answer is sampled with the next seed.

        If ``temperature`` is None, the setting is used. Raises ChatError, and UsageError if the answer would be the
        same.
        """
        with self._runtime.running():
            yield from self._regenerate(chat, temperature, until)

    def ask_whole(self, chat: str, way: WholeWay, until: str = "") -> EngineCoroutine[None]:
        """Answer the last question again, on a new branch, from the chat's documents as a whole. ``way`` is
        ``summarize`` (write a summary), ``extract`` (extract key sentences) or ``everywhere`` (ask every passage).

        Raises ChatError, and UsageError if this way is not possible.
        """
        with self._runtime.running():
            self._documents_asked(chat)
            with store_errors(self._runtime.store.home):
                before, question = last_question(self._chats, chat)
            yield from self._answer(question, before, self._runtime.settings, until, way)

    def continue_answer(self, chat: str) -> EngineCoroutine[None]:
        """Continue the last answer of a chat's current branch, which was stopped or reached its length limit.

        The final report has the whole answer. Raises ChatError if the answer is complete.
        """
        with self._runtime.running():
            with store_errors(self._runtime.store.home):
                before, question = last_question(self._chats, chat)
                answer = self._chats.messages(chat)[-1]
            if not answer.unfinished:
                raise ChatError("the last answer is complete", "ask something else")
            until = (answer.stats.get("until") or {}).get("mark", "")
            yield from self._answer(question, before, self._runtime.settings, until, begun=answer)

    def summarize(self, chat: str) -> EngineCoroutine[None]:
        """Generate a summary that replaces the history in later prompts; the messages stay in the chat.

        If the history does not fit into the prompt, the older half is left out, as often as necessary, with a note.
        Raises Cancelled.
        """
        with self._runtime.running():
            yield from self._summarize(chat)

    @property
    def _chats(self) -> Chats:
        return self._runtime.store.chats

    def _ask_next(self, chat: str, text: str, until: str) -> EngineCoroutine[None]:
        documents = self._documents_asked(chat)
        if until:
            locate_mark(documents, until)  # before the question is stored
        with store_errors(self._runtime.store.home):
            before = self._chats.messages(chat)  # an unanswered question stays in the chat, but not in the history
            if not before and self._chats.get(chat).title == UNTITLED:
                self._chats.rename(chat, self._title(text, documents))
            question = self._chats.append(chat, before[-1].id if before else None, "user", text)
        yield from self._answer(question, before, self._runtime.settings, until)

    def _title(self, text: str, documents: Sequence[StoredDocument] | None) -> str:
        """Returns the title of a chat whose first question is ``text``. If another chat has this title, the name of the
        first document stands before it.
        """
        title = " ".join(text[:TITLE_LENGTH].split())
        is_taken = any(chat.title == title for chat in self._chats.all())
        return f"{documents[0].name}: {title}"[:TITLE_LENGTH] if is_taken and documents else title

    def _make_room(self, chat: str, action: FullChatAction, until: str) -> EngineCoroutine[None]:
        self._documents_asked(chat)
        if action == "sink-window":
            refuse_eviction(self._runtime.model, action)  # before it becomes the chat's setting
        with store_errors(self._runtime.store.home):
            _, question = last_question(self._chats, chat)
            if action == "sink-window":
                self._chats.set(chat, {"keep": action})
            elif action == "new":
                chat = self._chats.restart(chat, {"model": self._runtime.settings.model}).id
        if action == "sink-window":
            yield Note("from here on only the beginning and the end of this chat are seen")
            yield from self._regenerate(chat, None, until)
            return
        if action == "new":
            yield Note("this is a new chat about the same documents")
        else:
            yield Note("summarizing the chat")
            yield from map_events(self._summarize(chat), lambda event: None if isinstance(event, Token) else event)
        yield from self._ask_next(chat, question.text, until)

    def _regenerate(self, chat: str, temperature: float | None, until: str) -> EngineCoroutine[None]:
        s = self._runtime.settings
        s = replace(s, temperature=s.temperature if temperature is None else temperature)
        with store_errors(self._runtime.store.home):
            before, question = last_question(self._chats, chat)
            older = self._chats.replies(chat, question.id)
        read_alike = (m for m in older if (m.stats.get("until") or {}).get("mark", "") == until)
        if not s.temperature and any(m.stopped != "cancelled" and m.stats["model"] == s.model for m in read_alike):
            raise UsageError("at temperature 0 the answer would be the same", "give a temperature, for example 0.8")
        s = replace(s, seed=None if s.seed is None else s.seed + len(older))
        yield from self._answer(question, before, s, until)

    def _summarize(self, chat: str) -> EngineCoroutine[None]:
        self._runtime.load()
        messages, asked = answered(self._chats.messages(chat)), AskedSources.of(self._chats.get(chat))
        exchanges = history(messages_about(messages, asked))
        if not exchanges:
            raise ChatError("no answer of this chat is about the ticked documents", "tick the documents first")
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
        if request.result.stopped == "cancelled":
            raise Cancelled
        with store_errors(self._runtime.store.home):
            summary, end = (SUMMARY, request.text), request.result.stopped
            self._chats.append(chat, messages[-1].id, *summary, stats=asked.stats(), stopped=end)
        yield Note("from here on, a summary takes the place of the earlier messages")

    def _answer(
        self,
        question: Message,
        before: Sequence[Message],
        settings: Settings,
        until: str,
        way: WholeWay | None = None,
        begun: Message | None = None,
    ) -> EngineCoroutine[None]:
        chat, documents = self._chats.get(question.chat), self._documents_asked(question.chat)
        loaded = self._runtime.load()
        for document in chat.documents:
            if document.removed:
                yield Note(f"{document.name} was removed from the library: the answer does not use it")
        way = way or (None if begun else self._whole.way_of(documents, question.text))
        if way:
            request = yield from self._whole.open(documents, question.text, way, until)
        elif documents != [] and is_small_talk(question.text):  # else it is answered from documents or history
            alone = Conversation(begun=begun.text if begun else "")
            request = yield from self._ask.open_whole([], question.text, False, alone)
        else:
            request = yield from self._open(question.text, before, chat, documents, until, begun)
        request.seconds["load"] = loaded
        stored = StoreOutcome()
        answering = self._whole.answer(request, question.text, settings, citations_of(begun))
        asked = AskedSources.of(chat)
        storing = answer_and_store(self._runtime, request, question, asked, answering, stored, begun)
        yield from run_request(request, storing)
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
        begun: Message | None,
    ) -> EngineCoroutine[Request]:
        """Build the request that answers a question after the messages ``before``."""
        about_documents = documents != []
        chosen = messages_about(before, AskedSources.of(chat))
        known = messages_until(chosen, locate_mark(documents, until)) if until else chosen
        exchanges, all_chosen = history(known, about_documents), history(chosen, about_documents)
        if all_chosen != history(before, about_documents):
            yield Note("Earlier answers about unticked documents are not used")
        if exchanges != all_chosen:
            yield Note("Answers from a later place of the document are not used")
        keeper = chat.settings.get("keep", "")
        conversation = Conversation(chat.id, exchanges, keeper, begun=begun.text if begun else "")
        request = yield from self._ask.open(documents, question, True, conversation, until)
        if documents and request.plan.mode == "full" and not until:
            self._keep_order(chat, request)
        return request

    def _keep_order(self, chat: Chat, request: Request) -> None:
        """Store the order of documents in this request, so that later questions of the chat use the same order."""
        places = {document.id: place for place, document in enumerate(request.prompt.documents)}
        with store_errors(self._runtime.store.home), self._runtime.store.db.atomic():
            named = [d.id for d in self._chats.get(chat.id).documents if not d.removed]  # read again: some may be new
            order = sorted(named, key=lambda document: places.get(document, len(places)))
            if order != named:
                self._chats.set_documents(chat.id, order)

    def _documents_asked(self, chat: str) -> list[StoredDocument] | None:
        """Returns the documents of a chat, None for the whole library. Raises ChatError if all were removed."""
        with store_errors(self._runtime.store.home):
            found = self._chats.get(chat)
            if names := found.removed_documents:
                raise ChatError(
                    f"{names}: removed from the library, and this chat has no other document",
                    "add it to the chat again, or begin a new one",
                )
            return None if found.settings.get("library") else self._documents(found)

    def _documents(self, chat: Chat) -> list[StoredDocument]:
        """Returns the documents of a chat: the chat's own documents, then the current documents of its collection.
        Raises ChatError if the collection is empty or was deleted, and the chat has no other document.
        """
        documents, collection = self._runtime.store.documents, chat.settings.get("collection")
        names = {d.id: d.name for d in chat.documents if not d.removed}
        ids = [*names]
        ids += self._runtime.store.collections.documents(collection) if collection else []
        if collection and not ids:
            raise ChatError("the collection of this chat is empty or was deleted", "choose another one, or a document")
        rows = filter(None, (documents.named(d, names.get(d, "")) for d in dict.fromkeys(ids)))
        return [StoredDocument(row, documents.text(row.id), documents.spans(row.id)) for row in rows]
