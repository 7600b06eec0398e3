"""Renders a chat for the conversation: stored messages with their sources, and the answer being generated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import gradio as gr

from localctx.engine.events import (
    Done,
    Evicted,
    NearestPassage,
    Note,
    PassageAnswered,
    Planned,
    Progress,
    Quoted,
    Token,
    WholeOffered,
)
from localctx.library.citations.cite import likeliest_sentence
from localctx.library.citations.support import AnswerSentence, check_by_citations
from localctx.serving.worker import Queued
from localctx.store.chats import SUMMARY, Message
from localctx.store.store import Store
from localctx.ui import message_actions, render
from localctx.ui.everyday import in_everyday_words, words
from localctx.ui.job_events import progress_line

NEAR = 1000  # characters searched before and after a quoted answer for its sentence


@dataclass
class StreamingAnswer:
    """An answer being generated, as a tab shows it. ``before`` holds the parts shown above it.

    ``quoted`` is shown before the answer's ``text``: a quotation or, while every passage is asked (``everywhere``),
    the passages' answers. ``nearest`` is shown after the text. ``used`` and ``window`` count tokens.
    """

    chat: str
    before: list[Any]
    text: str = ""
    quoted: str = ""
    nearest: str = ""
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
        return self.plan + self.status + "".join(render.note(in_everyday_words(note)) for note in self.notes)

    def handle(self, event: Any) -> None:
        """Update the answer with one event of its job."""
        match event:
            case Queued() | Progress():
                self.status = progress_line(event) or self.status
            case Planned():
                self.plan, self.everywhere = render.plan_line(event), event.mode == "everywhere"
                if event.mode not in ("everywhere", "summarize", "table"):  # their prompts are not what was read
                    self.used, self.window = event.tokens, event.window
            case WholeOffered():
                pass  # buttons offer it after the answer
            case Note():
                self.notes.append(event.text)
            case Evicted():
                self.status = render.note(f"Left out by the attention limit: {words(event.tokens)}")
            case Quoted():
                self.quoted = render.quotation(event.citation)
            case NearestPassage():
                self.nearest = render.nearest(event.citation)
            case PassageAnswered():
                self.quoted += render.passage_answer(event)
            case Token():
                self.quoted = "" if self.everywhere else self.quoted  # the report groups the passages' answers
                self.text, self.used, self.status = self.text + event.text, self.used + 1, render.note("Answering …")
            case Done():
                report = event.report.to_json()
                self.chat, self.plan, self.status = report["chat"], "", ""  # the stored message shows the cost
                self.notes += [event.failed] if event.failed else []


def message_parts(m: Message, store: Store, versions: Sequence[int] = (), last: bool = False) -> Iterator[Any]:
    """Yield the conversation parts of a message. Sources and cost follow an answer.

    Any message with several ``versions`` gets a choice of them. The ``last`` answer of a chat can be continued.
    """
    actions = message_actions.below(m, versions, last)
    if m.role == "user":
        yield {"role": "user", "content": render.chat_text(m.text)}
        yield from ({"role": "user", "content": gr.HTML(html)} for html in [actions] if html)
        return
    text = m.text.strip() if m.role != SUMMARY else f"(summary of what was said before)\n{m.text.strip()}"
    nearest, cited = _nearest(m)
    from_passages = m.stats and m.stats.get("mode") == "retrieve"
    quoted = render.quotation(_in_its_sentence(cited[0], store)) if from_passages and cited else ""
    checked = checked_sentences(m)
    said = render.answer(m.text.strip(), checked) if checked else render.chat_text(text or "(empty answer)")
    yield {"role": "assistant", "content": render.chat_text(quoted) + said}
    if not m.stats:
        yield from ({"role": "assistant", "content": gr.HTML(html)} for html in [actions] if html)
    else:
        below = render.sources(cited, cache(partial(_text, store)), m.text.strip(), checked, nearest)
        cost = render.stats_line(m.stats | {"stopped": m.stopped})
        yield {"role": "assistant", "content": gr.HTML(actions + below + cost)}


def _nearest(m: Message) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the nearest passage of an unanswered question, and the answer's citations.

    Older messages store the nearest passage as a citation.
    """
    if m.stopped == "unanswered" and m.citations:
        return m.citations[0], []
    return m.stats.get("nearest"), m.citations


def checked_sentences(m: Message) -> list[AnswerSentence]:
    """Return the sentences of an answer with their sources.

    Old answers were stored without them: their sentences are checked against their citations.
    """
    if m.role != "assistant" or (m.stats and m.stats.get("mode") == "everywhere"):
        return []
    if "sentences" in m.stats:
        return [AnswerSentence.from_json(sentence) for sentence in m.stats["sentences"]]
    return check_by_citations(m.text.strip(), m.citations)


def _in_its_sentence(citation: dict[str, Any], store: Store) -> dict[str, Any]:
    """Return the citation of a quoted answer with its quote widened to the whole sentence."""
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
    """Return the context window gauge for an answer's ``stats``; "" if they have no single prompt."""
    if not stats or "kv" not in stats or stats.get("mode") in ("everywhere", "summarize", "table"):
        return ""
    return render.gauge(stats["tokens"]["prompt"] + stats["tokens"]["longest"], stats["kv"]["window"])
