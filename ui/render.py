"""HTML of figures and texts. Every text is escaped: nothing that a document or a model says becomes markup."""

import html
import re
from collections.abc import Callable, Sequence
from typing import Any

from localctx.engine.events import PassageAnswered, Planned, Progress
from localctx.errors import format_bytes
from localctx.library.cite import BY_WORDS

MAX_QUOTE = 600  # characters of the quotation before an answer
AROUND = 240  # characters shown before and after a quote
_HOW_FOUND = {"attention": "attended to", "words": "has words of the answer"}
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])|&(?=[A-Za-z#])")
_TEMPLATE = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})  # gradio fills templates


def escape(text: object) -> str:
    """Return ``text`` as HTML that shows it literally."""
    return html.escape(str(text)).translate(_TEMPLATE)


def chat_text(text: str) -> str:
    """Return ``text`` for a message of a gr.Chatbot without Markdown; ``html.unescape`` restores it.

    The Chatbot takes messages for HTML. Only what HTML would interpret is escaped, because a message can be edited.
    """
    return _MARKUP.sub(lambda match: html.escape(match.group()), text)


def plan_line(p: Planned) -> str:
    """Return in one line what an answer will read, at what cost, and why."""
    how = {"full": "reading everything", "everywhere": "asking every passage"}.get(p.mode, "reading passages")
    eta = f", about {p.seconds:.0f} s" if p.seconds and p.seconds >= 1 else ""
    kv = f"{format_bytes(p.kv_bytes)} of KV in {p.codec}"
    return f"{how}: {p.tokens:,} tokens, {p.reused:,} of them kept from before, {kv}{eta} ({p.reason})"


def progress_bar(p: Progress) -> str:
    """Return a progress bar with its figures; if the total is unknown, only the name of the phase."""
    if not p.total:
        return f'<div class="lc-status" role="status"><span class="lc-busy"></span>{escape(p.phase)} ...</div>'
    figures = [f"{p.done:,} / {p.total:,} {p.unit}"]
    figures += [f"{p.reused:,} reused"] if p.reused else []
    figures += [f"{p.rate:,.0f} a second"] if p.rate else []
    figures += [f"{p.eta:.0f} s left"] if p.eta is not None else []
    return (
        f'<div class="lc-status" role="status">{escape(p.phase)}: {", ".join(figures)}'
        f'<progress max="{p.total}" value="{p.done}" aria-label="{escape(p.phase)}"></progress></div>'
    )


def note(text: str, kind: str = "note") -> str:
    """Return a status line of a ``kind``: note, plan, done or error."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="lc-status lc-{kind}" role="{role}">{escape(text)}</div>'


def stats_line(report: dict[str, Any]) -> str:
    """Return in one line what an answer cost and why it ended early, if it did."""
    tokens, seconds = report["tokens"], report["seconds"]
    parts = [f"reused {tokens['reused']:,} / {tokens['prompt']:,} tokens"]
    if seconds.get("first_token"):
        parts.append(f"first token after {seconds['first_token']:.2f} s")
    if seconds.get("decode") and tokens["generated"] > 1:
        parts.append(f"{(tokens['generated'] - 1) / seconds['decode']:.1f} tokens a second")
    if report["stopped"] == "cancelled":
        parts.append("stopped")
    elif report["stopped"] == "repeated":
        parts.append("the answer repeated itself and was ended there (a larger model helps: Settings)")
    elif report["stopped"] == "length":
        parts.append("the answer reached its length limit (Settings: longest answer)")
    return ", ".join(parts)


def gauge(used: int, window: int) -> str:
    """Return a ring of how much of the window is used, in tokens: amber from three quarters, red from nine tenths."""
    if not window:
        return ""
    share = min(1.0, used / window)
    level = "red" if share >= 0.9 else "amber" if share >= 0.75 else "green"
    around = 2 * 3.14159 * 15
    return (
        f'<div class="lc-gauge lc-{level}" role="img" aria-label="{used:,} of {window:,} tokens of the window used">'
        f'<svg viewBox="0 0 36 36" width="40" height="40" aria-hidden="true"><circle cx="18" cy="18" r="15"/>'
        f'<circle class="lc-arc" cx="18" cy="18" r="15" stroke-dasharray="{share * around:.1f} {around:.1f}"/></svg>'
        f"<span>{used:,} / {window:,}<small>tokens of the window</small></span></div>"
    )


def quotation(citation: dict[str, Any]) -> str:
    """Return the quoted source of an answer and its place, as plain text to be shown before the answer."""
    words = " ".join(citation["quote"].split())
    if len(words) > MAX_QUOTE:
        words = words[:MAX_QUOTE].rsplit(None, 1)[0] + " …"
    return f"“{words}”\n({place(citation)})\n\n"


def passage_answer(p: PassageAnswered) -> str:
    """Return a passage's answer and its place as a line of plain text, while other passages are asked."""
    return f"{' '.join(p.answer.split())} ({place(p.citation)})\n\n"


def place(c: dict[str, Any]) -> str:
    """Return document, page and heading of a citation."""
    return ", ".join(filter(None, [c["name"], c["page"] and f"page {c['page']}", c["heading"]]))


def sources(citations: Sequence[dict[str, Any]], text_of: Callable[[str], str | None]) -> str:
    """Return citations as numbered chips; each opens to the quote, marked in its surroundings.

    ``text_of`` returns a document's text by its id, None if it was deleted.
    """
    chips = [_chip(i, c, text_of(c["document"])) for i, c in enumerate(citations, 1)]
    note = f"<small>{escape(BY_WORDS)}</small>" if any(c["source"] == "words" for c in citations) else ""
    return f'<div class="lc-sources" aria-label="Sources">{"".join(chips)}{note}</div>' if chips else ""


def _chip(number: int, c: dict[str, Any], text: str | None) -> str:
    where = place(c)
    start, end = c["start"], c["end"]
    if text is None or text[start:end] != c["quote"]:
        before, after = "", ""
    else:
        before, after = text[max(0, start - AROUND) : start], text[end : end + AROUND]
    how = _HOW_FOUND.get(c["source"], "answered from")
    return (
        f'<details class="lc-chip"><summary><b>{number}</b> {escape(where)}</summary>'
        f"<blockquote>{escape(before)}<mark>{escape(c['quote'])}</mark>{escape(after)}</blockquote>"
        f"<small>{how}, characters {start:,} to {end:,}, weight {c['weight']:.2f}</small></details>"
    )
