"""Renders two lists as HTML: all chats, grouped by the day of their last use, and the chats that a search found."""

from collections.abc import Collection, Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby

from localctx.store.chat_search import FoundChat
from localctx.store.chats import Chat
from localctx.ui.render import escape

ON_CLICK = """
const rename = (row) => {
    const button = row.querySelector('.lc-chat'), box = document.createElement('input')
    const end = (keep) => {
        if (!box.isConnected) return
        box.replaceWith(button)
        const title = box.value.trim()
        if (keep && title) trigger('edit', { index: 0, value: `rename ${button.dataset.chat}\\n${title}` })
    }
    box.value = button.firstChild.textContent
    box.setAttribute('aria-label', 'Title')
    box.addEventListener('blur', () => end(true))
    box.addEventListener('keydown', (event) => {
        if (event.key === 'Enter') box.blur()
        if (event.key === 'Escape') { event.preventDefault(); end(false); button.focus() }
    })
    button.replaceWith(box)
    box.select()
}
element.addEventListener('click', event => {
    const row = event.target.closest('li'), does = event.target.closest('[data-does]')
    if (!does) return event.target.closest('.lc-chat') && trigger('select', { index: 0, value: row.dataset.row })
    does.closest('details').open = false
    const [kind, action] = does.dataset.does.split(' ')
    if (action === 'rename') rename(row)
    else trigger(kind, { index: 0, value: `${action} ${row.dataset.row}` })
})
"""  # data-does of an element has two words: the event to trigger, and the action at the start of its value
_GROUPS = ((0, "Today"), (1, "Yesterday"), (7, "Last 7 days"))  # most days since the last use of a chat
_MENU = {"edit rename": "Rename", "download Markdown": "Export as Markdown", "download JSON": "Export as JSON"}
_SUMMARIZE, _DELETE = {"apply summarize": "Summarize its documents"}, {"edit delete": "Delete"}


def chat_list(chats: Sequence[Chat], current: str | None, answering: Collection[str] = ()) -> str:
    """Returns a button for each chat, under headings such as Today.

    ``chats`` are sorted by last use, latest first. ``current`` is the id of the open chat. Chats in ``answering`` (ids)
    are marked, because they have a running answer.
    """
    today = date.today()
    groups = groupby(chats, lambda chat: _day_group(today, chat.used))
    html = "".join(f"<h2>{name}</h2><ul>{''.join(_rows(group, current, answering))}</ul>" for name, group in groups)
    return f'<nav class="lc-chats" aria-label="Chats">{html}</nav>' if html else ""


def found_chats(found: Sequence[FoundChat], words: str) -> str:
    """Returns a button for each chat found by ``words``, with the text around the match."""
    if not words.strip():
        return ""
    rows = "".join(_row(f.chat, f.said) for f in found)
    html = f"<ul>{rows}</ul>" if rows else f"<p>No chat has “{escape(words.strip())}” in it.</p>"
    return f'<nav class="lc-chats lc-found" aria-label="Chats found">{html}</nav>'


def _rows(chats: Iterator[Chat], current: str | None, answering: Collection[str]) -> Iterator[str]:
    for chat in chats:
        attributes = ' aria-current="true"' * (chat.id == current)
        yield _row(chat, "answering …" * (chat.id in answering), attributes, _menu(chat))


def _row(chat: Chat, below: str, attributes: str = "", menu: str = "") -> str:
    small = f"<small>{escape(below)}</small>" if below else ""
    button = (
        f'<button type="button" class="lc-chat" data-chat="{chat.id}"{attributes}>{escape(chat.title)}{small}</button>'
    )
    return f'<li data-row="{chat.id}">{button}{menu}</li>'


def _menu(chat: Chat) -> str:
    items = _MENU | (_SUMMARIZE if any(not d.removed for d in chat.documents) else {}) | _DELETE
    buttons = "".join(f'<button type="button" data-does="{does}">{label}</button>' for does, label in items.items())
    summary = f'<summary aria-label="More for {escape(chat.title)}" title="More">⋯</summary>'
    return f'<details class="lc-more lc-menu">{summary}<div>{buttons}</div></details>'


def _day_group(today: date, used: float) -> str:
    """Returns the name of the group of days, such as Yesterday, for ``used``, a time in seconds since 1970. Days are in
    local time.
    """
    age = today - datetime.fromtimestamp(used).date()
    return next((name for days, name in _GROUPS if age <= timedelta(days)), "Older")
