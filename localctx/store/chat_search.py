"""Finds chats by the words of their titles and messages."""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlite_utils import Database

from localctx.store.chats import Chat, Chats

AROUND = 40  # characters shown before and after the first word found


@dataclass(frozen=True)
class FoundChat:
    """A chat that a search found. ``said`` is the text of a message around the first word found; it is empty if only
    the title has the words.
    """

    chat: Chat
    said: str


def find_chats(db: Database, chats: Chats, words: str, limit: int = 30) -> list[FoundChat]:
    """Returns at most ``limit`` chats with all ``words`` in their title or in one message, most recently used first.
    The result is empty if ``words`` has no words.
    """
    wanted = words.casefold().split()
    if not wanted:
        return []
    said = _said(db, wanted)
    found = (FoundChat(c, said.get(c.id, "")) for c in chats.all() if c.id in said or _has(c.title, wanted))
    return [each for each, _ in zip(found, range(limit), strict=False)]


def _said(db: Database, wanted: list[str]) -> dict[str, str]:
    return {chat: _place(text, wanted[0]) for chat, text in _messages(db) if _has(text, wanted)}


def _messages(db: Database) -> Iterator[tuple[str, str]]:
    """Yields (chat, text) of all messages, latest first, so that a chat's earliest match is the one shown."""
    for row in db.query("SELECT chat, text FROM messages ORDER BY id DESC"):
        yield row["chat"], row["text"]


def _has(text: str, wanted: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in wanted)


def _place(text: str, word: str) -> str:
    at = max(0, text.casefold().find(word))
    start, end = max(0, at - AROUND), at + len(word) + AROUND
    line = " ".join(text[start:end].split())
    return f"{'… ' * (start > 0)}{line}{' …' * (end < len(text))}"
