"""Renders the rows of actions below questions and answers as HTML. conversation.js handles the clicks."""

from collections.abc import Sequence

from localctx.engine.request_report import BY_WORDS
from localctx.store.chats import Message
from localctx.ui import render
from localctx.ui.render import escape

PREVIOUS, NEXT = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
RETRY = ' aria-label="Try again" title="Answer again"'
_KINDS = {"user": "question", "summary": "summary"}
_WAYS = {"everywhere": "Search the whole text", "summarize": "Summarize the whole document"}
_COPY = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M9 9h11v11H9zM5 15H4V4h11v1"/></svg>'
_EDIT = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M4 20h4L19 9l-4-4L4 16zM13 7l4 4"/></svg>'
_DOTS = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M5 12h.01M12 12h.01M19 12h.01" stroke-width="3"/></svg>'
_AGAIN = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M20 11a8 8 0 1 0-2 6M20 5v6h-6"/></svg>'
_PARTIAL = "Based on the passages that fit the question, not on all of the text."


def question_row(m: Message, versions: Sequence[int]) -> str:
    """Returns the actions of a question: copy, edit, and switch between its ``versions`` (ids, in order)."""
    edit = f'<button type="button" data-do="edit" data-message="{m.id}" aria-label="Edit" title="Edit">{_EDIT}</button>'
    return f'<div class="lc-actions">{_choice(m, versions)}{_copy(m.text)}{edit}</div>'


def answer_row(m: Message, versions: Sequence[int], last: bool, state: str, copied: str) -> str:
    """Returns the actions of an answer: offers, and one row with copy, retry, versions and details.

    ``state`` is the state of the answer's card, and ``copied`` the text to copy. Only the ``last`` answer has offers
    and retry.
    """
    again = _button(_AGAIN, "retry", f"retry-{m.parent}", RETRY) if last else ""
    row = _copy(copied) + again + _choice(m, versions) + _details(m)
    return f'{_offers(m, state) if last else ""}<div class="lc-actions">{row}</div>'


def retry_offer(m: Message, last: bool) -> str:
    """Returns the HTML that is shown in place of a missing answer. The ``last`` question of a chat can be tried
    again.
    """
    again = f'<p class="lc-offers">{_button("Try again", "retry", f"retry-{m.id}", RETRY)}</p>' if last else ""
    return f'<div class="lc-answer lc-stopped" data-testid="bot"><p class="lc-told">Stopped.</p>{again}</div>'


def _offers(m: Message, state: str) -> str:
    """Returns buttons that offer further actions after the last answer of a chat, such as a summary or continuing the
    answer.
    """
    offered = dict(m.stats.get("offered", {}))
    if state == "missing" and m.stats.get("mode") != "everywhere":
        offered.setdefault("everywhere", None)
    buttons = [_button(_offer(way, offered[way]), way, way) for way in _WAYS if way in offered]
    buttons += [_button("Continue", f"continue {m.id}", f"continue-{m.id}")] if m.unfinished else []
    is_partial = offered and state != "missing" and m.stats.get("mode") != "extract"
    why = f"<small>{_PARTIAL}</small>" if is_partial else ""
    return f'<p class="lc-offers">{why}{"".join(buttons)}</p>' if buttons else ""


def _offer(way: str, seconds: float | None) -> str:
    return _WAYS[way] + (f" (about {render.duration(max(1, seconds))})" if seconds is not None else "")


def _details(m: Message) -> str:
    """Returns the button with three dots. It shows the time of an answer, and how much was read for it."""
    if "tokens" not in m.stats:
        return ""
    told = render.answer_details(m.stats | {"stopped": m.stopped})
    told += [BY_WORDS[:1].upper() + BY_WORDS[1:]] if any(c["source"] == "words" for c in m.citations) else []
    lines = "".join(f"<li>{escape(line)}</li>" for line in told)
    summary = f'<summary aria-label="Details" title="Details">{_DOTS}</summary>'
    return f'<details class="lc-more">{summary}<ul class="lc-cost">{lines}</ul></details>'


def _copy(text: str) -> str:
    label = ' aria-label="Copy" title="Copy"'
    return f'<button type="button" data-do="copy" data-text="{escape(text)}"{label}>{_COPY}</button>'


def _choice(m: Message, versions: Sequence[int]) -> str:
    if len(versions) < 2:
        return ""
    at, kind = list(versions).index(m.id), _KINDS.get(m.role, "answer")
    previous = _step(PREVIOUS, f"Previous version of this {kind}", versions[at - 1] if at else None, m.parent, kind)
    following = versions[at + 1] if at + 1 < len(versions) else None
    after = _step(NEXT, f"Next version of this {kind}", following, m.parent, kind)
    count = f'<span aria-label="version {at + 1} of {len(versions)}">{at + 1}/{len(versions)}</span>'
    return (
        f'<span class="lc-versions" role="group" aria-label="Versions of this {kind}">{previous}{count}{after}</span>'
    )


def _step(sign: str, label: str, version: int | None, parent: int | None, kind: str) -> str:
    more = f' aria-label="{label}" title="{label}"' + (" disabled" if version is None else "")
    return _button(sign, f"version {version}", f"{kind} {parent} {sign}", more)


def _button(text: str, action: str, key: str, more: str = "") -> str:
    return f'<button type="button" data-action="{escape(action)}" data-key="{escape(key)}"{more}>{text}</button>'
