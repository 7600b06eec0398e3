"""Exports chats as Markdown and JSON. In Markdown, text is quoted or escaped, so that it cannot change the structure of
the file.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from localctx.document_parts import NEAREST, tell_place
from localctx.store.chats import Chat, Chats, Message

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#|!&~])")
_DEFINITION = re.compile(r"^([\s>*+-]*)\[(?=[^\]]*\]:)")  # a link or footnote definition would apply to the whole file
_ENDS = {
    "length": "cut at its longest",
    "cancelled": "stopped",
    "repeated": "ended where it repeated itself",
    "unanswered": "nothing answers it",
}


def transcript(chats: Chats, chat: Chat, as_json: bool) -> str:
    """Export a chat as text: all branches as JSON, or the branch that is shown as Markdown."""
    if as_json:
        return json.dumps(to_json(chat, chats.tree(chat.id)), ensure_ascii=False, indent=2) + "\n"
    return to_markdown(chat, chats.messages(chat.id))


def to_markdown(chat: Chat, messages: Sequence[Message]) -> str:
    """Returns one branch of a chat as Markdown. Messages are quoted, so that an open code fence ends with its message.

    Citations are footnotes with document, place and quoted text. A footnote mark stands after the sentence that the
    citation supports, or below the answer if it supports no single sentence. An answer that no passage supports is
    followed by the nearest passage.
    """
    lines = [f"# {one_line(chat.title)}", ""]
    lines += [f"- {one_line(d.name)}{' (removed from the library)' if d.removed else ''}" for d in chat.documents]
    notes = list[str]()
    for message in messages:
        text, cited = _with_marks(message, len(notes))
        lines += ["", f"## {_heading(message)}", "", *_quoted(text)]
        others = [c for c in message.citations if not any(_overlap(c, source) for source in cited)]
        marks = range(len(notes) + len(cited) + 1, len(notes) + len(cited) + len(others) + 1)
        notes += [f"[^{n}]: {reference(c)}" for n, c in enumerate(cited + others, len(notes) + 1)]
        lines += ["", " ".join(f"[^{n}]" for n in marks)] if others else []
        lines += ["", f"{NEAREST}: {reference(nearest)}"] if (nearest := message.stats.get("nearest")) else []
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def to_json(chat: Chat, messages: Sequence[Message]) -> dict[str, Any]:
    """Returns a chat with the given messages as one JSON object. Times are in ISO 8601 format, in UTC."""
    rows = [{**asdict(m), "created": _iso(m.created)} for m in messages]
    times = {"created": _iso(chat.created), "used": _iso(chat.used)}
    return {"format": "localctx chat", "version": 1, **asdict(chat), **times, "messages": rows}


def _with_marks(message: Message, before: int) -> tuple[str, list[dict[str, Any]]]:
    """Returns a message's text with footnote marks after its supported sentences, and the passages that support them.

    ``before`` is the number of footnotes in earlier messages.
    """
    if not (sentences := [s for s in message.stats.get("sentences", ()) if s["source"]]):
        return message.text, []
    text, marked, at = message.text.strip(), "", 0
    for sentence in sentences:
        marked += f"{text[at : sentence['end']]}[^{before + sentence['number']}]"
        at = sentence["end"]
    sources = {sentence["number"]: sentence["source"] for sentence in sentences}
    return marked + text[at:], [sources[number] for number in sorted(sources)]


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["document"] == other["document"] and one["start"] < other["end"] and other["start"] < one["end"]


def _heading(message: Message) -> str:
    title = {"user": "Question", "assistant": "Answer", "summary": "Summary of what was said before"}.get(
        message.role, one_line(message.role)
    )
    return f"{title} ({_ENDS[message.stopped]})" if message.stopped in _ENDS else title


def _quoted(text: str) -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield ("> " + _DEFINITION.sub(r"\1\\[", line)).rstrip()


def reference(citation: dict[str, Any]) -> str:
    """Returns a citation as one line: document, place and quoted text."""
    page, heading = citation.get("page"), citation.get("heading")
    told = tell_place(str(page or ""), str(heading or ""))
    where = f", {one_line(told)}" if told else ""
    quote = one_line(str(citation.get("quote") or ""))
    return f"{one_line(str(citation.get('name') or 'a document'))}{where}" + (f': "{quote}"' if quote else "")


def one_line(text: str) -> str:
    """Returns ``text`` as one line with all Markdown characters escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
