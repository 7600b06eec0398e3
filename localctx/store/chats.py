"""Chats: stores conversations about documents, as trees of messages. A branch is the path from a first message to a
leaf.
"""

import json
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from localctx.errors import ChatError

SUMMARY = "summary"  # the role of a message that summarizes, and replaces, all messages before it
UNTITLED = "New chat"
_BELOW = """WITH RECURSIVE below(id) AS (
    VALUES(?) UNION SELECT messages.id FROM messages JOIN below ON parent = below.id
)"""
_ABOVE = """WITH RECURSIVE above(id, parent, depth) AS (
    SELECT id, parent, 0 FROM messages WHERE id = ?
    UNION ALL SELECT messages.id, messages.parent, depth + 1 FROM messages JOIN above
    ON messages.id = above.parent AND messages.id < above.id
)"""
# the given name, if one of the document's files has it
_NAMED = "SELECT files.name FROM files WHERE files.document = {} AND files.name = {} LIMIT 1"


@dataclass(frozen=True)
class ChatDocument:
    """A document of a chat. If it was ``removed`` from the library, ``name`` is the name that the chat recorded."""

    id: str
    name: str
    removed: bool


@dataclass(frozen=True)
class Chat:
    """A stored conversation. ``leaf`` is the id of the last message of the branch that is shown, or None if there is no
    message.
    """

    id: str
    title: str
    documents: tuple[ChatDocument, ...]
    settings: dict[str, Any]
    leaf: int | None
    created: float
    used: float

    @property
    def removed_documents(self) -> str:
        """The names of the chat's documents, if all of them were removed from the library, so that the chat can no
        longer answer. Empty otherwise, and always empty for a chat about the library or a collection.
        """
        gone = [d.name for d in self.documents if d.removed]
        wider = self.settings.get("library") or self.settings.get("collection")
        return "" if wider or len(gone) < len(self.documents) else ", ".join(gone)


@dataclass(frozen=True)
class Message:
    """One message of a chat. ``stopped`` says how an answer ended, such as ``eos`` (complete), ``length`` or
    ``cancelled`` (``text`` is partial). ``stopped`` is empty for a question.
    """

    id: int
    chat: str
    parent: int | None
    role: str
    text: str
    citations: list[dict[str, Any]]
    stats: dict[str, Any]
    stopped: str
    created: float

    @property
    def unfinished(self) -> bool:
        """True for an answer that was cut at the length limit or cancelled, and can be continued.

        Only answers in the modes ``full`` and ``retrieve`` can be continued: an answer in another mode is combined from
        several generated texts.
        """
        cut = self.role == "assistant" and self.stopped in ("length", "cancelled") and bool(self.text)
        return cut and self.stats.get("mode") in ("full", "retrieve")


class Chats:
    """The chats in a store."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def create(self, title: str, documents: Sequence[str] = (), settings: dict[str, Any] | None = None) -> Chat:
        """Create a chat about stored documents, given by id, and return it."""
        chat, now = secrets.token_hex(8), time.time()
        with self._db.atomic():
            row = {"id": chat, "title": _line(title), "settings": json.dumps(settings or {}), "leaf": None}
            self._db.table("chats").insert({**row, "created": now, "used": now})
            for document in documents:
                self.add_document(chat, document)
        return self.get(chat)

    def restart(self, chat: str, settings: dict[str, Any]) -> Chat:
        """Create a new, empty chat about the documents of another chat, and return it."""
        return self.create("", [d.id for d in self.get(chat).documents], settings)

    def get(self, chat: str) -> Chat:
        """Returns the chat with this id. Raises ChatError if it was deleted."""
        if found := self.stored(chat):
            return found
        raise _deleted()

    def stored(self, chat: str) -> Chat | None:
        """Returns the chat with this id, or None if it was deleted."""
        rows = self._db.query("SELECT * FROM chats WHERE id = ?", [chat])
        return next(map(self._chat, rows), None)

    def all(self) -> list[Chat]:
        """Returns every chat, most recently used first."""
        return [self._chat(row) for row in self._db.query("SELECT * FROM chats ORDER BY used DESC, id")]

    def find(self, query: str) -> Chat:
        """Returns the one chat with this id, id prefix or title. Raises ChatError if no chat matches, or several."""
        prefix = query if len(query) > 3 else "never"  # a shorter prefix is ambiguous
        matches = [c for c in self.all() if c.title == query or c.id.startswith(prefix)]
        if not matches:
            raise ChatError(f"there is no chat {query!r}", "begin a new one")
        if len(matches) > 1:
            raise ChatError(f"{query!r} names {len(matches)} chats", f"say which: {', '.join(c.id for c in matches)}")
        return matches[0]

    def add_document(self, chat: str, document: str, name: str = "") -> None:
        """Add a stored document to a chat. If the document was read from several files, ``name`` is the name of the
        file that the user meant; if empty, the document's own name is used.
        """
        last = "SELECT coalesce(max(position), -1) FROM chat_documents WHERE chat = :chat"
        self._db.execute(
            f"""INSERT INTO chat_documents (chat, position, document, name)
            SELECT :chat, ({last}) + 1, id, coalesce(({_NAMED.format(":document", ":name")}), name) FROM documents
            WHERE id = :document AND id NOT IN (SELECT document FROM chat_documents WHERE chat = :chat)""",
            {"chat": chat, "document": document, "name": name},
        )

    def set_documents(self, chat: str, documents: Sequence[str]) -> None:
        """Replace a chat's documents by these stored ones, in this order. Raises ChatError if the chat was deleted.

        Documents that were removed from the library stay listed until ``forget_removed``.
        """
        with self._db.atomic():
            names = {document.id: document.name for document in self.get(chat).documents}
            stored = "SELECT id FROM documents"
            self._db.execute(f"DELETE FROM chat_documents WHERE chat = ? AND document IN ({stored})", [chat])
            for document in documents:
                self.add_document(chat, document, names.get(document, ""))

    def forget_removed(self, chat: str) -> None:
        """Remove from a chat the documents that were removed from the library."""
        gone = "document NOT IN (SELECT id FROM documents)"
        self._db.execute(f"DELETE FROM chat_documents WHERE chat = ? AND {gone}", [chat])

    def set(self, chat: str, settings: dict[str, Any]) -> None:
        """Change these ``settings`` of a chat; the chat's other settings stay."""
        self._db.table("chats").update(chat, {"settings": json.dumps(self.get(chat).settings | settings)})

    def last(self) -> Chat:
        """Returns the most recently used chat. Raises ChatError if there is none."""
        if not (chats := self.all()):
            raise ChatError("there is no chat yet", "begin one: localctx chat FILE...")
        return chats[0]

    def rename(self, chat: str, title: str) -> None:
        """Rename a chat. Raises ChatError if it was deleted."""
        self.get(chat)
        self._db.table("chats").update(chat, {"title": _line(title)})

    def remove(self, chat: str) -> None:
        """Remove a chat and its messages. The caller must remove the chat's caches first."""
        for table, column in (("messages", "chat"), ("chat_documents", "chat"), ("chats", "id")):
            self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", [chat])

    def append(
        self,
        chat: str,
        parent: int | None,
        role: str,
        text: str,
        citations: Iterable[dict[str, Any]] = (),
        stats: dict[str, Any] | None = None,
        stopped: str = "",
    ) -> Message:
        """Add a message after the message ``parent`` (None: as a first message). The chat then shows the branch that
        ends with the new message.
        """
        assert parent is None or self.message(parent).chat == chat, "a message of another chat"
        now = time.time()
        row = {"chat": chat, "parent": parent, "role": role, "text": text, "stopped": stopped, "created": now}
        more = {"citations": json.dumps(list(citations)), "stats": json.dumps(stats or {})}
        with self._db.atomic():
            message: Any = self._db.table("messages").insert({**row, **more}).last_pk
            self._db.table("chats").update(chat, {"leaf": message, "used": now})
        return self.message(message)

    def extend(
        self, message: int, text: str, citations: Iterable[dict[str, Any]], stats: dict[str, Any], stopped: str
    ) -> Message:
        """Replace the text of an answer that was continued by ``text``, the whole answer. Returns the changed message.
        Raises ChatError if the chat was deleted.
        """
        chat = self.message(message).chat
        more = {"citations": json.dumps(list(citations)), "stats": json.dumps(stats)}
        with self._db.atomic():
            self._db.table("messages").update(message, {"text": text, "stopped": stopped, **more})
            self._db.table("chats").update(chat, {"used": time.time()})
        return self.message(message)

    def edit(self, message: Message, text: str) -> Message:
        """Add an edited version of a message as the start of a new branch, and show that branch. The old version stays.
        Returns the new message.
        """
        return self.append(message.chat, message.parent, message.role, text)

    def message(self, message: int) -> Message:
        """Returns the message with this id. Raises ChatError if there is none, because the chat was deleted."""
        for row in self._db.query("SELECT * FROM messages WHERE id = ?", [message]):
            return _message(row)
        raise _deleted()

    def messages(self, chat: str, leaf: int | None = None) -> list[Message]:
        """Returns the messages of the branch that ends at ``leaf`` (None: the branch shown), first to last."""
        leaf = self.get(chat).leaf if leaf is None else leaf
        rows = self._db.query(
            f"{_ABOVE} SELECT messages.* FROM above JOIN messages USING (id) ORDER BY depth DESC", [leaf]
        )
        return [_message(row) for row in rows]

    def citing(self, document: str) -> list[Message]:
        """Returns the answers in all chats that cite a document, oldest first."""
        where = "role = 'assistant' AND instr(citations, ?)"
        return [
            _message(row) for row in self._db.query(f"SELECT * FROM messages WHERE {where} ORDER BY id", [document])
        ]

    def quoting(self, document: str) -> list[Chat]:
        """Returns the chats, most recently used first, that are about a document or have a message that cites the
        document. Chats without messages are left out.
        """
        rows = self._db.query(
            """SELECT DISTINCT chat FROM messages WHERE instr(citations, :document)
            OR chat IN (SELECT chat FROM chat_documents WHERE document = :document)""",
            {"document": document},
        )
        found = {row["chat"] for row in rows}
        return [chat for chat in self.all() if chat.id in found]

    def recent_stats(self, count: int) -> list[dict[str, Any]]:
        """Returns the statistics of the last ``count`` answers in all chats, latest first. Cancelled answers are left
        out.
        """
        rows = self._db.query(
            "SELECT stats FROM messages WHERE role = 'assistant' AND stopped <> 'cancelled' ORDER BY id DESC LIMIT ?",
            [count],
        )
        return [json.loads(row["stats"]) for row in rows]

    def tree(self, chat: str) -> list[Message]:
        """Returns all messages of all branches, oldest first."""
        return [_message(row) for row in self._db.query("SELECT * FROM messages WHERE chat = ? ORDER BY id", [chat])]

    def replies(self, chat: str, parent: int | None) -> list[Message]:
        """Returns the messages that follow ``parent`` (None: the first messages), oldest first."""
        rows = self._db.query("SELECT * FROM messages WHERE chat = ? AND parent IS ? ORDER BY id", [chat, parent])
        return [_message(row) for row in rows]

    def versions(self, chat: str) -> dict[int | None, list[int]]:
        """Returns, for the id of each message with replies, the ids of its replies, oldest first. Replies to the same
        message are versions of each other. The key None has the ids of the first messages.
        """
        following: dict[int | None, list[int]] = {}
        for row in self._db.query("SELECT id, parent FROM messages WHERE chat = ? ORDER BY id", [chat]):
            following.setdefault(row["parent"], []).append(row["id"])
        return following

    def branches(self, chat: str) -> list[Message]:
        """Returns the last message of each branch of a chat, newest first."""
        messages = self.tree(chat)
        parents = {m.parent for m in messages}
        return [m for m in reversed(messages) if m.id not in parents]

    def select(self, message: Message) -> Message:
        """Show the newest branch that contains ``message``. Returns the last message of that branch."""
        (row,) = self._db.query(f"{_BELOW} SELECT max(id) AS leaf FROM below", [message.id])
        self._db.table("chats").update(message.chat, {"leaf": row["leaf"]})
        return self.message(row["leaf"])

    def branch_of(self, message: int) -> int:
        """Returns the id of the branch that contains ``message``: the id of the last edited message on the path to
        ``message``, or of the first message if none was edited.

        The id stays the same while the branch grows. The KV cache of a branch is stored under this id, so an edit
        starts another cache.
        """
        rows = self._db.query(
            f"""{_ABOVE} SELECT above.id FROM above JOIN messages USING (id) WHERE above.parent IS NULL OR EXISTS
            (SELECT 1 FROM messages AS older WHERE older.parent = above.parent AND older.id < above.id)
            ORDER BY depth LIMIT 1""",
            [message],
        )
        return next(iter(rows))["id"]

    def _chat(self, row: dict[str, Any]) -> Chat:
        named = _NAMED.format("chat_documents.document", "chat_documents.name")
        rows = self._db.query(
            f"""SELECT document AS id, coalesce(({named}), documents.name, chat_documents.name) AS name,
            documents.id IS NULL AS gone FROM chat_documents LEFT JOIN documents ON documents.id = document
            WHERE chat = ? ORDER BY position""",
            [row["id"]],
        )
        documents = tuple(ChatDocument(d["id"], d["name"], bool(d["gone"])) for d in rows)
        known = {name: value for name, value in row.items() if name != "checksum"}
        return Chat(**{**known, "settings": json.loads(row["settings"]), "documents": documents})


def _deleted() -> ChatError:
    return ChatError("this chat was deleted", "begin a new one")


def _message(row: dict[str, Any]) -> Message:
    known = {name: value for name, value in row.items() if name != "checksum"}
    return Message(**{**known, "citations": json.loads(row["citations"]), "stats": json.loads(row["stats"])})


def _line(title: str) -> str:
    """Returns a title as one line; an empty title becomes UNTITLED."""
    return " ".join(title.split()) or UNTITLED
