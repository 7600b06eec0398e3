"""Renders the documents above the question box as HTML: a chip with the state of each document, and one line below the
chips.
"""

from collections.abc import Sequence

from localctx.document_parts import count_parts
from localctx.ui import render
from localctx.ui.everyday import about_words, in_everyday_words
from localctx.ui.reading.source_list import CHARACTERS_OF_A_WORD, length_in_words
from localctx.ui.running.read_documents import ReadDocument
from localctx.ui.running.tab_reading import ReadingState

MAX_CHIPS = 6  # documents that are shown as chips; the others are counted
MAY_ASK = "You can ask already."
STOPPED = "Not read ahead. It is read when you ask."
NO_MODEL = "It is read as soon as there is a model that can: choose one above."
READ, READ_WHOLE = "Ready", "Ready. Ask anything."


def card(state: ReadingState) -> str:
    """Returns the chips of the documents, and the line below the chips; "" if the chat has no documents."""
    if not state.documents:
        return ""
    chips = "".join(_chip(i, d, state) for i, d in list(state.distinct.items())[:MAX_CHIPS])
    more = len(state.distinct) - MAX_CHIPS
    chips += f"<li>and {more:,} more</li>" if more > 0 else ""
    errors = dict.fromkeys(in_everyday_words(d.error) for d in state.documents if d.error)
    failed = "".join(f'<p class="lc-bad" role="alert">{render.escape(error)}</p>' for error in errors)
    shown = f'<ul class="lc-docs" aria-label="Documents">{chips}</ul>{failed}{_line(state)}'
    return f'<div class="lc-ready">{shown}</div>'


def facts(d: ReadDocument, state: ReadingState) -> str:
    """Returns a document's length and state in words."""
    return " · ".join(filter(None, [length(d), _sign(d, state)[1].lower()]))


def _chip(index: int, d: ReadDocument, state: ReadingState) -> str:
    """Returns a document's chip. A click opens the document; a file in the question box can be removed by the chip."""
    name = render.escape(d.name or "…")
    sign, told = _sign(d, state)
    told = ". ".join(filter(None, [d.name, length(d), told]))
    opens = render.opener(d.document, d.name)
    shown = f'<button type="button" {opens}>{name}</button>' if d.document else f"<span>{name}</span>"
    remove = (
        f'<button type="button" class="lc-remove" data-remove="{index}" aria-label="Remove {name}">&times;</button>'
    )
    taken = remove if index < len(state.wanted.files) else ""
    css = "lc-doc lc-doc-failed" if d.error else "lc-doc"
    return f'<li class="{css}" title="{render.escape(told)}">{sign}{shown}{taken}</li>'


def _sign(d: ReadDocument, state: ReadingState) -> tuple[str, str]:
    """Returns the sign of a document's state as HTML, and the state in words."""
    if d.error:
        return '<i class="lc-sign-bad" aria-hidden="true">!</i>', "Could not be read"
    if state.ready or d.read:
        return '<i class="lc-sign-ok" role="img" aria-label="read">✓</i>', READ
    if state.phase in ("parsing", "reading"):
        share = f'<small role="status">{state.percent} %</small>' if state.percent else ""
        return f'<i class="lc-spin" aria-hidden="true"></i>{share}', "Being read"
    return '<i aria-hidden="true">·</i>', "Not read yet"


def _line(state: ReadingState) -> str:
    """Returns the line below the chips. If the chat has messages and no new file, only errors are shown."""
    if state.phase == "failed" and state.error:
        return render.note(in_everyday_words(state.error), "error")
    if state.ready and state.ready.failed:
        return render.note(in_everyday_words(state.ready.failed), "error")
    if state.wanted.has_messages and not state.wanted.files:
        return ""
    passages = state.ready and not state.ready.whole
    if state.is_ready:
        return f'<p class="lc-ready-line" role="status">{READ if passages else READ_WHOLE}</p>'
    told = {"stopped": STOPPED, "no model": NO_MODEL, "parsing": _opening(state), "reading": _reading(state)}
    return f'<p class="lc-ready-line" role="status">{told[state.phase]}</p>' if told.get(state.phase) else ""


def _opening(state: ReadingState) -> str:
    p = state.progress
    pages = f": page {p.done:,} of {p.total:,}" if p and p.unit == "pages" and p.total else ""
    return f"Opening{pages} …"


def _reading(state: ReadingState) -> str:
    p = state.progress
    left = f", about {render.duration(p.eta)} left" if p and p.eta is not None and p.eta >= 1 else ""
    return f"Reading {_amount(list(state.distinct.values()))}{left}. {MAY_ASK}"


def _amount(documents: Sequence[ReadDocument]) -> str:
    """Returns the total length of the documents in words for the user."""
    kinds = {d.part for d in documents if d.parts}
    if len(kinds) == 1 and all(d.parts for d in documents if not d.error):
        return count_parts(kinds.pop(), sum(d.parts for d in documents))
    return about_words(sum(d.characters for d in documents) / CHARACTERS_OF_A_WORD)


def length(d: ReadDocument) -> str:
    """Returns the length of a document in words for the user."""
    return length_in_words(d.part, d.parts, d.characters)
