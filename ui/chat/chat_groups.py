"""Renders the list of chats as HTML, grouped by the day of their last use, and the chats that a search found."""

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby

from localctx.store.chat_search import FoundChat
from localctx.store.chats import Chat
from localctx.ui.render import escape

ON_CLICK = """
element.addEventListener('click', event => {
    const row = event.target.closest('[data-chat]')
    if (row) trigger('select', { index: 0, value: row.dataset.chat })
})
"""


def chat_list(chats: Sequence[Chat], current: str | None, answering: Collection[str] = ()) -> str:
    """Returns a button for each chat, under headings such as Today.

    ``chats`` are sorted by last use, latest first. ``current`` is the id of the open chat. Chats in ``answering`` (ids)
    are marked as being answered.
    """
    days = _Days(date.today())
    groups = groupby(chats, lambda chat: days.group(chat.used))
    html = "".join(f"<h2>{name}</h2><ul>{''.join(_rows(group, current, answering))}</ul>" for name, group in groups)
    return f'<nav class="lc-chats" aria-label="Chats">{html}</nav>' if html else ""


def found_chats(found: Sequence[FoundChat], words: str) -> str:
    """Returns a button for each chat found by ``words``, with the text around the match."""
    if not words.strip():
        return ""
    rows = "".join(_row(f.chat, f.said, "") for f in found)
    html = f"<ul>{rows}</ul>" if rows else f"<p>No chat has “{escape(words.strip())}” in it.</p>"
    return f'<nav class="lc-chats lc-found" aria-label="Chats found">{html}</nav>'


def _rows(chats: Iterator[Chat], current: str | None, answering: Collection[str]) -> Iterator[str]:
    for chat in chats:
        yield _row(chat, "answering …" * (chat.id in answering), ' aria-current="true"' * (chat.id == current))


def _row(chat: Chat, below: str, attributes: str) -> str:
    small = f"<small>{escape(below)}</small>" if below else ""
    text = f"{escape(chat.title)}{small}"
    return f'<li><button type="button" class="lc-chat" data-chat="{chat.id}"{attributes}>{text}</button></li>'


class _Days:
    """Names of groups of days, relative to ``today``."""

    def __init__(self, today: date) -> None:
        self._first = (
            (today, "Today"),
            (today - timedelta(days=1), "Yesterday"),
            (today - timedelta(days=7), "Last 7 days"),
        )

    def group(self, used: float) -> str:
        """Returns the group of a time in seconds since 1970, in local time."""
        day = datetime.fromtimestamp(used).date()
        return next((name for first, name in self._first if day >= first), "Older")
