"""Renders questions of a chat, and the answer that is being generated, as HTML."""

from dataclasses import dataclass, field
from typing import Any

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
from localctx.serving.worker import Queued
from localctx.ui import render
from localctx.ui.answers.evidence import EvidencePlace, links, place_of, quotation
from localctx.ui.answers.markdown import to_html
from localctx.ui.everyday import in_everyday_words, words
from localctx.ui.job_events import progress_line


@dataclass
class StreamingAnswer:
    """An answer that is being generated, as a tab shows it.

    ``before`` is the HTML above the answer, with the question. ``quoted`` are the places of the answer's quotations.
    While every passage is asked, ``found`` has the answers from passages.
    """

    chat: str
    before: str
    text: str = ""
    quoted: list[EvidencePlace] = field(default_factory=list)
    found: list[tuple[str, EvidencePlace]] = field(default_factory=list)
    status: str = ""
    plan: Planned | None = None
    notes: list[str] = field(default_factory=list)
    full: bool = False

    @property
    def status_lines(self) -> str:
        """The HTML of the current work, in one line, and of the notes."""
        notes = "".join(render.note(in_everyday_words(note)) for note in self.notes)
        return self.status + notes

    @property
    def html(self) -> str:
        """The HTML of the answer so far: the text, and below it the answers from passages and the quotations."""
        said = f'<div class="lc-said">{to_html(self.text.strip())}</div>' if self.text.strip() else ""
        found = "".join(f"<li>{render.escape(answer)} {place.link}</li>" for answer, place in self.found)
        found = f'<ul class="lc-passages">{found}</ul>' if found else ""
        quoted = quotation(self.quoted[0]) + links(self.quoted[1:], self.quoted[:1]) if self.quoted else ""
        shown = said + found + quoted
        return f'<div class="lc-answer" data-testid="bot">{shown}</div>' if shown else ""

    def handle(self, event: Any) -> None:
        """Update the answer with one event of the job that generates it."""
        match event:
            case Queued():
                self.status = progress_line(event) or self.status
            case Progress():
                self.status = render.progress_bar(event, self.plan)
            case Planned():
                self.plan, self.status = event, render.plan_line(event)
            case WholeOffered():
                pass  # buttons below the finished answer offer it
            case Note():
                self.notes.append(event.text)
            case Evicted():
                self.status = render.note(f"Left out by the attention limit: {words(event.tokens)}")
            case Quoted():
                self.quoted.append(_as_cited(event.citation))
            case NearestPassage():
                self.quoted = []  # the card of the stored answer shows the nearest passage
            case PassageAnswered():
                self.found.append((" ".join(event.answer.split()), _as_cited(event.citation)))
            case Token():
                self.found = []  # the text that follows has the answers from passages in groups
                self.text, self.status = self.text + event.text, render.note("Answering …")
            case Done():
                report = event.report.to_json()
                # the card of the stored answer shows time and tokens
                self.chat, self.status = report["chat"], ""
                self.notes += [event.failed] if event.failed else []


def _as_cited(citation: dict[str, Any]) -> EvidencePlace:
    return place_of(citation, lambda document: None)


def question_html(text: str, actions: str = "", message: int | str = "new") -> str:
    """Returns the HTML of a question, with its row of ``actions`` once it is stored."""
    said = f'<div class="lc-asked" data-testid="user">{render.escape(text)}</div>'
    return f'<div class="lc-question" data-question="{message}">{said}{actions}</div>'
