"""Conversation: a chat as it is shown: what was said and what it stands on, and an answer on its way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from localctx.engine.events import Done, Evicted, Note, Planned, Progress, Quoted, Token
from localctx.serving.worker import Queued
from localctx.store.chats import SUMMARY, Message
from localctx.store.store import Store
from localctx.ui import render
from localctx.ui.job_events import picture


@dataclass(frozen=True)
class ChatOpened:
    """The chat that is worked in, as soon as there is one."""

    chat: str


@dataclass
class StreamingAnswer:
    """An answer on its way, as a tab shows it; ``before`` is what the conversation shows above it.

    ``waits``: what was typed, until it is in a chat; ``quoted``: what is shown before ``said``.
    """

    chat: str
    before: list[Any]
    waits: str = ""
    said: str = ""
    quoted: str = ""
    status: str = ""
    plan: str = ""
    notes: list[str] = field(default_factory=list)
    used: int = 0
    window: int = 0
    full: bool = False

    @property
    def lines(self) -> str:
        """What will be done, what is being done, what should be known."""
        plan = render.note(self.plan, "plan") if self.plan else ""
        return plan + self.status + "".join(map(render.note, self.notes))

    def hear(self, event: Any) -> None:
        """Take one event in."""
        match event:
            case ChatOpened():
                self.chat, self.waits = event.chat, ""
            case Queued() | Progress():
                self.status = picture(event) or self.status
            case Planned():
                self.plan, self.used, self.window = render.plan_line(event), event.tokens, event.window
            case Note():
                self.notes.append(event.text)
            case Evicted():
                self.status = render.note(f"{event.keeper} has dropped {event.tokens:,} tokens")
            case Quoted():
                self.quoted = render.quotation(event.citation)
            case Token():
                self.said, self.used, self.status = self.said + event.text, self.used + 1, render.note("answering ...")
            case Done():
                report = event.report.to_json()
                self.chat, self.status = report["chat"], render.note(render.stats_line(report), "done")
                self.notes += [event.failed] if event.failed else []


def parts(m: Message, store: Store) -> Iterator[Any]:
    """A message as the conversation shows it; an answer is followed by what it stands on."""
    if m.role == "user":
        yield {"role": "user", "content": render.said(m.text)}
        return
    text = m.text.strip() if m.role != SUMMARY else f"(summary of what was said before)\n{m.text.strip()}"
    from_passages = m.stats and m.stats.get("mode") == "retrieve"
    quoted = render.quotation(m.citations[0]) if from_passages and m.citations else ""
    yield {"role": "assistant", "content": render.said(quoted + (text or "(nothing was said)"))}
    if m.stats:
        below = render.sources(m.citations, lambda d: _text(store, d))
        cost = render.escape(render.stats_line(m.stats | {"stopped": m.stopped}))
        yield {"role": "assistant", "content": gr.HTML(f'{below}<small class="lc-cost">{cost}</small>')}


def owners(messages: Sequence[Message]) -> list[int]:
    """For each part that is shown, the place of the message that it is of."""
    return [i for i, m in enumerate(messages) for _ in range(2 if m.role != "user" and m.stats else 1)]


def _text(store: Store, document: str) -> str | None:
    return store.documents.text(document) if store.documents.has(document) else None


def gauge(stats: dict[str, Any] | None) -> str:
    """How much of the window an answer with these ``stats`` used."""
    if not stats or "kv" not in stats:
        return ""
    return render.gauge(stats["tokens"]["prompt"] + stats["tokens"]["longest"], stats["kv"]["window"])
