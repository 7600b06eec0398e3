"""Chats as Markdown and as JSON. Pure functions: text of messages and documents cannot change the structure."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from localctx.store.chats import Chat, Chats, Message

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#|!&~])")
_DEFINITION = re.compile(r"^([\s>*+-]*)\[(?=[^\]]*\]:)")  # of a link or footnote: it would count in all of the file
_ENDS = {
    "length": "cut at its longest",
    "cancelled": "stopped",
    "repeated": "ended where it repeated itself",
    "unanswered": "nothing answers it",
}


def transcript(chats: Chats, chat: Chat, as_json: bool) -> str:
    """Returns the content of an exported chat: all branches as JSON, or the branch shown as Markdown."""
    if as_json:
        return json.dumps(to_json(chat, chats.tree(chat.id)), ensure_ascii=False, indent=2) + "\n"
    return to_markdown(chat, chats.messages(chat.id))


def to_markdown(chat: Chat, messages: Sequence[Message]) -> str:
    """Returns one branch of a chat. Messages are quoted, so that a heading or an open fence ends with its message.
    Citations are footnotes with document, page or heading, and quoted text.
    """
    lines = [f"# {one_line(chat.title)}", ""]
    lines += [f"- {one_line(d.name)}{' (removed from the library)' if d.removed else ''}" for d in chat.documents]
    notes = list[str]()
    for message in messages:
        lines += ["", f"## {_heading(message)}", "", *_quoted(message.text)]
        if message.citations:
            marks = range(len(notes) + 1, len(notes) + 1 + len(message.citations))
            notes += [f"[^{n}]: {reference(c)}" for n, c in zip(marks, message.citations, strict=True)]
            lines += ["", " ".join(f"[^{n}]" for n in marks)]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def to_json(chat: Chat, messages: Sequence[Message]) -> dict[str, Any]:
    """Returns a chat with its messages (of one branch, or all), as one JSON object; times as ISO 8601 in UTC."""
    rows = [{**asdict(m), "created": _iso(m.created)} for m in messages]
    times = {"created": _iso(chat.created), "used": _iso(chat.used)}
    return {"format": "localctx chat", "version": 1, **asdict(chat), **times, "messages": rows}


def _heading(message: Message) -> str:
    title = {"user": "Question", "assistant": "Answer", "summary": "Summary of what was said before"}.get(
        message.role, one_line(message.role)
    )
    return f"{title} ({_ENDS[message.stopped]})" if message.stopped in _ENDS else title


def _quoted(text: str) -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield ("> " + _DEFINITION.sub(r"\1\\[", line)).rstrip()


def reference(citation: dict[str, Any]) -> str:
    """Returns a citation as one line: document, page or heading, and the quoted text."""
    page, heading = citation.get("page"), citation.get("heading")
    where = f", page {one_line(str(page))}" if page else f", {one_line(str(heading))}" if heading else ""
    quote = one_line(str(citation.get("quote") or ""))
    return f"{one_line(str(citation.get('name') or 'a document'))}{where}" + (f': "{quote}"' if quote else "")


def one_line(text: str) -> str:
    """Returns ``text`` as one line with every Markdown sign escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
