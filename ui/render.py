"""Renders figures and texts as HTML. Every text is escaped, so that no document or model output becomes markup."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from localctx.document_parts import NEAREST, tell_part
from localctx.engine.events import PassageAnswered, Planned, Progress
from localctx.engine.request_report import BY_WORDS
from localctx.errors import format_bytes
from localctx.library.citations.excerpt import around, reflowed, words_to_mark
from localctx.library.citations.support import AnswerSentence, numbered_sources
from localctx.ui.everyday import in_everyday_words, phase_name, words

MAX_QUOTE = 600  # characters of the quotation before an answer
UNSUPPORTED = "No passage says this"
_HOW_FOUND = {
    "attention": "Passage the model focused on",
    "words": "Passage with words of the answer",
    "passage": "Passage that comes nearest",
    "quote": "The answer's own words",
}
_READS = {
    "full": "Reading the full document",
    "everywhere": "Asking every passage",
    "table": "Computing over all rows of the table",
    "summarize": "Summarizing the whole document",
}
_ENDED = {
    "cancelled": "Stopped",
    "repeated": "The answer repeated itself and was ended there: a larger model helps",
    "length": "It reached the length limit (Settings: Longest answer)",
}
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")
_TEMPLATE = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})  # gradio fills templates


def escape(text: object) -> str:
    """Return ``text`` as HTML that shows it literally."""
    return html.escape(str(text)).translate(_TEMPLATE)


def chat_text(text: str) -> str:
    """Return ``text`` for a message of a gr.Chatbot without Markdown; ``html.unescape`` restores it.

    The Chatbot renders messages as HTML. Only characters that HTML would interpret are escaped, because users can edit
    messages.
    """
    return _MARKUP.sub(lambda match: html.escape(match.group()), text)


def plan_line(p: Planned) -> str:
    """Return the HTML of a plan: what will be read and for how long, with figures and the reason folded below."""
    what = _READS.get(p.mode, "Reading the passages that fit the question")
    seconds = f"about {duration(p.seconds)}" if p.seconds and p.seconds >= 1 else ""
    share = f"{_share(p.reused, p.tokens)} already read" if p.reused else ""
    brackets = ", ".join(filter(None, (seconds, share)))
    figures = f"{p.tokens:,} tokens, {p.reused:,} of them kept from before; {format_bytes(p.kv_bytes)} of memory"
    line = f"{what} ({brackets})" if brackets else what
    return folded(line, f"{figures} at {p.codec} precision. Why: {in_everyday_words(p.reason)}.", "plan")


def progress_bar(p: Progress) -> str:
    """Return a progress bar with the amount done and the time left; without a total, only the phase's name."""
    name = escape(phase_name(p.phase))
    if not p.total:
        return f'<div class="lc-status" role="status">{name} …</div>'
    figures = [_done(p)]
    figures += [f"{_share(p.reused, p.total)} already read"] if p.reused else []
    figures += [f"about {duration(p.eta)} left"] if p.eta is not None else []
    return f'<div class="lc-status" role="status">{name}: {", ".join(figures)}{bar(p.done, p.total, name)}</div>'


def bar(done: float, total: float, name: str, kind: str = "") -> str:
    """Return the bar alone. The ``kind`` "failing" colours it red. ``name`` is escaped HTML for screen readers."""
    css = f' class="lc-{kind}"' if kind else ""
    return f'<progress{css} max="{total}" value="{done}" aria-label="{name}"></progress>'


def _done(p: Progress) -> str:
    match p.unit:
        case "bytes":
            return f"{format_bytes(p.done)} of {format_bytes(p.total)}"
        case "tokens" | "characters" | "passes":
            return _share(p.done, p.total)
    return f"{p.done:,} of {p.total:,}"


def _share(part: float, whole: float) -> str:
    """Return a percentage: 100 % only for the whole, 0 % only for nothing."""
    percent = 100 * part / whole if whole else 0.0
    return f"{min(99, max(1, round(percent))) if 0 < percent < 100 else round(percent)} %"


def duration(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def folded(line: str, details: str, kind: str) -> str:
    """Return a status line of a ``kind`` with details that open below it."""
    return (
        f'<div class="lc-status lc-{kind}" role="status">{escape(line)} '
        f"<details><summary>Details</summary> <small>{escape(details)}</small></details></div>"
    )


def note(text: str, kind: str = "note") -> str:
    """Return a status line of a ``kind``: note, plan, done or error."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="lc-status lc-{kind}" role="{role}">{escape(text)}</div>'


def stats_line(report: dict[str, Any]) -> str:
    """Return the HTML of an answer's cost: its time to first token and why it ended early, with figures folded."""
    tokens, seconds = report["tokens"], report["seconds"]
    read = f"{_share(tokens['reused'], tokens['prompt'])} already read"
    first = seconds.get("first_token")
    parts = [f"Started in {first:.1f} s ({read})" if first else read]
    parts += [_ENDED[report["stopped"]]] if report["stopped"] in _ENDED else []
    figures = [f"{tokens['reused']:,} of {tokens['prompt']:,} tokens were kept from before"]
    if seconds.get("decode") and tokens["generated"] > 1:
        figures.append(f"{(tokens['generated'] - 1) / seconds['decode']:.1f} tokens a second")
    return f'<div class="lc-cost">{folded(". ".join(parts), ", ".join(figures), "done")}</div>'


def gauge(used: int, window: int) -> str:
    """Return a small ring for the share of the context window in use (``used`` and ``window`` in tokens).

    It is amber from three quarters, red from nine tenths.
    """
    if not window:
        return ""
    share = min(1.0, used / window)
    level = "red" if share >= 0.9 else "amber" if share >= 0.75 else "green"
    around = 2 * 3.14159 * 15
    text = f"{_share(used, window)} of what the model can read at once"
    return (
        f'<div class="lc-gauge lc-{level}" role="img" aria-label="{text}" title="{words(used)} of {words(window)}">'
        f'<svg viewBox="0 0 36 36" width="20" height="20" aria-hidden="true"><circle cx="18" cy="18" r="15"/>'
        f'<circle class="lc-arc" cx="18" cy="18" r="15" stroke-dasharray="{share * around:.1f} {around:.1f}"/></svg>'
        f"<span>{text}</span></div>"
    )


def quotation(citation: dict[str, Any]) -> str:
    """Return a citation's quote and place as plain text, to be shown before the answer."""
    words = " ".join(citation["quote"].split())
    if len(words) > MAX_QUOTE:
        words = words[:MAX_QUOTE].rsplit(None, 1)[0] + " …"
    return f"“{words}”\n({place(citation)})\n\n"


def nearest(citation: dict[str, Any]) -> str:
    """Return the nearest passage of an unanswered question as plain text, to be shown below the answer."""
    return f"\n\n{NEAREST}:\n{quotation(citation).rstrip()}"


def passage_answer(p: PassageAnswered) -> str:
    """Return one passage's answer and place as a line of plain text, shown while other passages are asked."""
    return f"{' '.join(p.answer.split())} ({place(p.citation)})\n\n"


def place(c: dict[str, Any]) -> str:
    """Return the document, page and heading of a citation."""
    return ", ".join(filter(None, [c["name"], c["page"] and tell_part(c["page"]), c["heading"]]))


def answer(text: str, checked: Sequence[AnswerSentence]) -> str:
    """Return an answer as HTML for a message. The source's number, a link to its words, follows a supported sentence.

    Unsupported sentences are dimmed.
    """
    parts, at = list[str](), 0
    for sentence in checked:
        parts += [escape(text[at : sentence.start]), _sentence(text[sentence.start : sentence.end], sentence)]
        at = sentence.end
    return "".join([*parts, escape(text[at:])])


def _sentence(text: str, checked: AnswerSentence) -> str:
    if checked.support == "unsupported":
        told = f'<span class="lc-unseen"> ({UNSUPPORTED.lower()})</span>'
        return f'<span class="lc-unsupported" title="{UNSUPPORTED}">{escape(text)}{told}</span>'
    c = checked.source and asdict(checked.source)
    if not c:
        return escape(text)
    href = escape(f"#source/{c['document']}/{c['start']}/{c['end']}/{checked.number}")  # the conversation drops data-*
    what = f'<span class="lc-unseen">source </span>{checked.number}'
    return f'{escape(text)}<a class="lc-number lc-open-source" href="{href}" title="{escape(place(c))}">{what}</a>'


def sources(
    citations: Sequence[dict[str, Any]],
    text_of: Callable[[str], str | None],
    answer: str = "",
    checked: Sequence[AnswerSentence] = (),
    nearest: dict[str, Any] | None = None,
) -> str:
    """Return the sources of an answer as chips that open to their words.

    The numbered sources of its ``checked`` sentences come first, then other ``citations``, then the ``nearest`` passage
    of an unanswered question. ``text_of`` returns a document's text by its id, None if it was deleted.
    """
    numbered = [asdict(source) for source in numbered_sources(checked)]
    others = [c for c in citations if not any(_overlap(c, source) for source in numbered)]
    said = ["\n".join(answer[s.start : s.end] for s in checked if s.number == n + 1) for n in range(len(numbered))]
    chips = [_chip(c, text_of(c["document"]), n, said[n - 1]) for n, c in enumerate(numbered, 1)]
    chips += [_chip(c, text_of(c["document"]), None, answer) for c in others]
    chips += [_chip(nearest, text_of(nearest["document"]), None, "", f"{NEAREST}: ")] if nearest else []
    notes = [f"Dimmed: {UNSUPPORTED.lower()}."] if any(s.support == "unsupported" for s in checked) else []
    notes += [escape(BY_WORDS)] if any(c["source"] == "words" for c in others) else []
    below = "".join(f"<small>{note}</small>" for note in notes)
    return f'<div class="lc-sources" aria-label="Sources">{"".join(chips)}{below}</div>' if chips or notes else ""


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["document"] == other["document"] and one["start"] < other["end"] and other["start"] < one["end"]


def _chip(c: dict[str, Any], text: str | None, number: int | None, said: str, name: str = "") -> str:
    """Return the chip of one source: its ``name`` and place. It opens to the words in context.

    Words that the answer (``said``) uses are marked, else the whole quote.
    """
    start, end = c["start"], c["end"]
    if text is None or text[start:end] != c["quote"]:
        text, start, end = c["quote"], 0, len(c["quote"])
    first, last = around(text, start, end)
    shown, marks = reflowed(text[first:last]), words_to_mark(text, start, end, said) or [(start, end)]
    html, at = "", 0
    for a, b in [(a - first, b - first) for a, b in marks]:
        html += f"{escape(shown[at:a])}<mark>{escape(shown[a:b])}</mark>"
        at = b
    label = f"<b>{number}</b> {escape(place(c))}" if number else escape(name + place(c))
    at_words = f'data-document="{escape(c["document"])}" data-start="{c["start"]}" data-end="{c["end"]}"'
    button = f'<button type="button" class="lc-open-source" {at_words}>Show in the document</button>'
    how = "" if number or name else f"<small>{_HOW_FOUND.get(c['source'], _HOW_FOUND['passage'])}</small>"
    return (
        f'<details class="lc-chip" data-number="{number or ""}"><summary>{label}</summary>'
        f"<blockquote>{html}{escape(shown[at:])}</blockquote>{how}{button}</details>"
    )
