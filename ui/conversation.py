"""A chat as the conversation shows it: its messages with their sources, and an answer that is being generated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from localctx.engine.events import Done, Evicted, Note, PassageAnswered, Planned, Progress, Quoted, Token
from localctx.library.cite import likeliest_sentence
from localctx.serving.worker import Queued
from localctx.store.chats import SUMMARY, Message
from localctx.store.store import Store
from localctx.ui import render
from localctx.ui.job_events import progress_line

NEAR = 1000  # characters before and after a quoted answer among which its sentence is looked for


@dataclass(frozen=True)
class ChatOpened:
    """An event: the id of the chat that a job works in, yielded as soon as the chat exists."""

    chat: str


@dataclass
class StreamingAnswer:
    """An answer that is being generated, as a tab shows it. ``before`` are the parts shown above it.

    ``unsent`` is the typed question until a chat has it; ``quoted`` is shown before the answer's ``text``: a quotation
    or, while every passage is asked (``everywhere``), what they answered; ``used`` and ``window`` count tokens.
    """

    chat: str
    before: list[Any]
    unsent: str = ""
    text: str = ""
    quoted: str = ""
    status: str = ""
    plan: str = ""
    notes: list[str] = field(default_factory=list)
    used: int = 0
    window: int = 0
    full: bool = False
    everywhere: bool = False

    @property
    def status_lines(self) -> str:
        """HTML of the plan, the current status, and the notes."""
        plan = render.note(self.plan, "plan") if self.plan else ""
        return plan + self.status + "".join(map(render.note, self.notes))

    def handle(self, event: Any) -> None:
        """Update the answer with one event of its job."""
        match event:
            case ChatOpened():
                self.chat, self.unsent = event.chat, ""
            case Queued() | Progress():
                self.status = progress_line(event) or self.status
            case Planned():
                self.plan, self.everywhere = render.plan_line(event), event.mode == "everywhere"
                if not self.everywhere:  # no prompt has the tokens of all passages
                    self.used, self.window = event.tokens, event.window
            case Note():
                self.notes.append(event.text)
            case Evicted():
                self.status = render.note(f"{event.keeper} has dropped {event.tokens:,} tokens")
            case Quoted():
                self.quoted = render.quotation(event.citation)
            case PassageAnswered():
                self.quoted += render.passage_answer(event)
            case Token():
                self.quoted = "" if self.everywhere else self.quoted  # the report groups what came before it
                self.text, self.used, self.status = self.text + event.text, self.used + 1, render.note("answering ...")
            case Done():
                report = event.report.to_json()
                self.chat, self.status = report["chat"], render.note(render.stats_line(report), "done")
                self.notes += [event.failed] if event.failed else []


def message_parts(m: Message, store: Store) -> Iterator[Any]:
    """Yield a message as parts of the conversation; an answer is followed by its sources and cost."""
    if m.role == "user":
        yield {"role": "user", "content": render.chat_text(m.text)}
        return
    text = m.text.strip() if m.role != SUMMARY else f"(summary of what was said before)\n{m.text.strip()}"
    from_passages = m.stats and m.stats.get("mode") == "retrieve"
    quoted = render.quotation(_in_its_sentence(m.citations[0], store)) if from_passages and m.citations else ""
    yield {"role": "assistant", "content": render.chat_text(quoted + (text or "(empty answer)"))}
    if m.stats:
        below = render.sources(m.citations, lambda d: _text(store, d))
        cost = render.escape(render.stats_line(m.stats | {"stopped": m.stopped}))
        yield {"role": "assistant", "content": gr.HTML(f'{below}<small class="lc-cost">{cost}</small>')}


def message_indices(messages: Sequence[Message]) -> list[int]:
    """Return, for each part shown, the index of its message."""
    return [i for i, m in enumerate(messages) for _ in range(2 if m.role != "user" and m.stats else 1)]


def _in_its_sentence(citation: dict[str, Any], store: Store) -> dict[str, Any]:
    """Return the citation with the sentence around a quoted answer in place of the answer's own words."""
    start, end, text = citation["start"], citation["end"], _text(store, citation["document"])
    if citation["source"] != "quote" or text is None or text[start:end] != citation["quote"]:
        return citation
    before = max(0, start - NEAR)
    near = text[before : end + NEAR]
    _, _, (first, last) = likeliest_sentence(near, [(start - before, end - before)], "")
    return citation | {"quote": near[first:last]}


def _text(store: Store, document: str) -> str | None:
    return store.documents.text(document) if store.documents.has(document) else None


def window_gauge(stats: dict[str, Any] | None) -> str:
    """Return the gauge of the window that an answer with these ``stats`` used; "" without stats."""
    if not stats or "kv" not in stats or stats.get("mode") == "everywhere":
        return ""
    return render.gauge(stats["tokens"]["prompt"] + stats["tokens"]["longest"], stats["kv"]["window"])
