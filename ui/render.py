"""Renders numbers and texts as HTML. Every text is escaped, so that no document or model output becomes markup."""

import html
from typing import Any

from localctx.engine.events import Planned, Progress
from localctx.engine.request_report import dropped_tokens
from localctx.errors import format_bytes
from localctx.ui.everyday import in_everyday_words, phase_name

_READS = {
    "full": "Reading the full document",
    "everywhere": "Asking every passage",
    "compared": "Asking each document",
    "table": "Computing over all rows of the table",
    "summarize": "Summarizing the whole document",
    "extract": "Choosing key sentences of the document",
}
_MAIN_PHASES = ("reading", "asking")  # the phases that the words of _READS describe
_ENDED = {
    "cancelled": "Stopped",
    "repeated": "The answer repeated itself and was ended there: a larger model helps",
    "length": "It reached the length limit (Settings: Longest answer)",
}
_TEMPLATE = str.maketrans({"$": "&#36;", "{": "&#123;", "}": "&#125;", "`": "&#96;"})  # gradio fills in templates


def escape(text: object) -> str:
    """Returns ``text`` as HTML that shows it literally."""
    return without_templates(html.escape(str(text)))


def without_templates(markup: str) -> str:
    """Returns ``markup`` (HTML) with the special characters of gradio's templates escaped, so that gradio does not fill
    them in.
    """
    return markup.translate(_TEMPLATE)


def opener(document: str, name: str, start: int = 0, end: int = 0) -> str:
    """Returns the HTML attributes by which an element opens a document at the characters ``start..end``; see
    viewer.js.
    """
    where = f'data-document="{escape(document)}" data-start="{start}" data-end="{end}"'
    return f'class="lc-open-source" {where} data-name="{escape(name)}"'


def plan_line(p: Planned) -> str:
    """Returns a plan as HTML: a line that says how much will be read and for how long. Numbers and the reason can be
    expanded below the line.
    """
    seconds = f"about {duration(p.seconds)}" if p.seconds and p.seconds >= 1 else ""
    share = f"{_share(p.reused, p.tokens)} already read" if p.reused else ""
    brackets = ", ".join(filter(None, (seconds, share)))
    line = f"{_what(p)} ({brackets})" if brackets else _what(p)
    return f'<div class="lc-status lc-plan" role="status">{escape(line)}{_details(_figures(p))}</div>'


def _what(p: Planned) -> str:
    return _READS.get(p.mode, "Looking for the passages")


def _figures(p: Planned) -> str:
    figures = f"{p.tokens:,} tokens, {p.reused:,} of them kept from before; {format_bytes(p.kv_bytes)} of memory"
    return f"{figures} at {p.codec} precision. Why: {in_everyday_words(p.reason)}."


def progress_bar(p: Progress, plan: Planned | None = None) -> str:
    """Returns a progress bar with the amount done and the time left. If the total is unknown, returns only the name of
    the phase. If the progress is that of a ``plan``, its figures can be expanded, and its words name the main phases.
    """
    is_main = p.phase.partition(" ")[0] in _MAIN_PHASES
    name = escape(_what(plan) if plan and is_main else phase_name(p.phase))
    css, details = ("lc-status lc-plan", _details(_figures(plan))) if plan else ("lc-status", "")
    if not p.total:
        return f'<div class="{css}" role="status">{name} …{details}</div>'
    figures = [_done(p)]
    figures += [f"{_share(p.reused, p.total)} already read"] if p.reused else []
    figures += [f"about {duration(p.eta)} left"] if p.eta is not None else []
    shown = f"{name}: {', '.join(figures)}{details}{bar(p.done, p.total, name)}"
    return f'<div class="{css}" role="status">{shown}</div>'


def phase_share(p: Progress) -> str:
    """Returns text with the name of a phase and the amount done."""
    return phase_name(p.phase) + (f": {_done(p)}" if p.total else " …")


def bar(done: float, total: float, name: str, kind: str = "") -> str:
    """Returns a progress bar without text.

    If ``kind`` is ``failing``, the bar is red. ``name`` is escaped HTML for screen readers.
    """
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
    """Returns a rounded percentage. It is 100 % only if everything is done, and 0 % only if nothing is done."""
    percent = 100 * part / whole if whole else 0.0
    return f"{min(99, max(1, round(percent))) if 0 < percent < 100 else round(percent)} %"


def duration(seconds: float) -> str:
    """Returns a time as text in seconds, minutes or hours, such as ``40 s`` or ``1.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h".replace(".0 ", " ")


def _details(text: str) -> str:
    return f" <details><summary>Details</summary> <small>{escape(text)}</small></details>"


def note(text: str, kind: str = "note") -> str:
    """Returns a status line as HTML. The ``kind`` is ``note``, ``done`` or ``error``."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="lc-status lc-{kind}" role="{role}">{escape(text)}</div>'


def answer_details(stats: dict[str, Any]) -> list[str]:
    """Returns sentences for the user about an answer: the time, how much was read, how much was left out, and why the
    answer ended early.
    """
    tokens, seconds = stats["tokens"], stats["seconds"]
    first, read = seconds.get("first_token"), f"{_share(tokens['reused'], tokens['prompt'])} already read"
    lines = [f"Started after {duration(first)}, {read}" if first else read.capitalize()]
    lines += [_ENDED[stats["stopped"]]] if stats["stopped"] in _ENDED else []
    if dropped := dropped_tokens(stats.get("kv", {}).get("evicted", ()), tokens["prompt"]):
        seen = _share(tokens["prompt"] - dropped, tokens["prompt"])
        lines.append(f"It saw {seen} of the text: the passages most like the question")
    if stats.get("mode") == "retrieve":
        lines.append("Based on a few passages, not the whole document")
    lines.append(f"{tokens['reused']:,} of {tokens['prompt']:,} tokens were kept from before")
    if seconds.get("decode") and tokens["generated"] > 1:
        lines.append(f"{(tokens['generated'] - 1) / seconds['decode']:.1f} tokens a second")
    return lines
