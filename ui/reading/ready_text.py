"""HTML of the card above the question box: documents, how far they are read, and the time saved."""

from typing import TYPE_CHECKING

from localctx.document_parts import count_parts
from localctx.ui import render
from localctx.ui.everyday import about_words, in_everyday_words
from localctx.ui.running.tab_reading import ReadDocument, ReadingState

if TYPE_CHECKING:
    from localctx.workflows.ahead.readiness import Readiness

CHARACTERS_OF_A_WORD = 6  # rough average for English text, with the space
MAX_LISTED = 5  # documents listed by name
MAY_ASK = "You can ask already: your question comes first."
STOPPED = "Not read ahead. It will be read when you ask."
NO_MODEL = "It will be read as soon as there is a model that can: choose one above."


def card(state: ReadingState) -> str:
    """Return the card; "" if the chat has no documents."""
    if not state.documents:
        return ""
    listed = [] if _is_short(state) else [_document(d) for d in state.documents[:MAX_LISTED]]
    if listed and (more := len(state.documents) - MAX_LISTED) > 0:
        listed.append(f"<li>and {more:,} more</li>")
    documents = f'<ul class="lc-ready-documents">{"".join(listed)}</ul>' if listed else ""
    return f'<div class="lc-ready{" lc-is-ready" if state.ready else ""}">{documents}{_line(state)}</div>'


def ready_sentence(ready: "Readiness") -> str:
    """Return a sentence about ready documents, with the measured figures if there are any."""
    if not ready.whole:
        start = f", and start in about {_seconds(ready.starts)}" if ready.starts is not None else ""
        return f"Ready: answers come from the passages that fit the question{start}."
    parts = [f"answers start in about {_seconds(ready.starts)}"] if ready.starts is not None else []
    if ready.saved is not None and ready.saved >= 1:
        parts.append(f"{_seconds(max(ready.saved, ready.read))} of reading saved")
    return f"Ready: {', '.join(parts) or 'already read'}."


def offer_label(way: str, seconds: float | None) -> str:
    """Return the label of a button that offers to answer from whole documents."""
    what = {"summarize": "Summarize the whole document", "everywhere": "Ask every passage"}[way]
    if seconds is None:
        return what
    return f"{what} (about {_seconds(seconds) if seconds < 90 else f'{seconds / 60:.0f} min'})"


def _is_short(state: ReadingState) -> bool:
    """True for a chat with messages whose documents are all ready and none new: one line is enough."""
    return state.wanted.begun and not state.wanted.files and state.ready is not None


def _line(state: ReadingState) -> str:
    match state.phase:
        case "failed" if state.error:
            return render.note(in_everyday_words(state.error), "error")
        case _ if state.ready:
            return _ready_line(state, state.ready)
        case "stopped":
            return render.note(STOPPED)
        case "no model":
            return render.note(NO_MODEL)
        case "parsing" | "reading":
            return _progress(state)
    return ""


def _ready_line(state: ReadingState, ready: "Readiness") -> str:
    """Return the line for ready documents, with an error and the progress of further reading."""
    sentence = ready_sentence(ready)
    if _is_short(state) and ready.whole and not ready.read:
        sentence = "Ready: already read."
    failed = render.note(in_everyday_words(ready.failed), "error") if ready.failed else ""
    on = render.progress_bar(state.progress) if state.phase == "reading" and state.progress else ""
    return f'<p class="lc-ready-line" role="status">{render.escape(sentence)}</p>{failed}{on}'


def _progress(state: ReadingState) -> str:
    asking = f"<small>{MAY_ASK}</small>" if state.phase == "reading" else ""
    if state.progress:
        return render.progress_bar(state.progress) + asking
    what = "Opening" if state.phase == "parsing" else "Reading"
    return f'<div class="lc-status" role="status">{what} …</div>{asking}'


def _document(document: ReadDocument) -> str:
    name = render.escape(document.name or "…")
    about = render.escape(in_everyday_words(document.error) if document.error else _length(document))
    css = ' class="lc-ready-failed" role="alert"' if document.error else ""
    return f"<li{css}><b>{name}</b> <span>{about}</span></li>"


def _length(document: ReadDocument) -> str:
    if document.parts:
        return count_parts(document.part, document.parts)
    return about_words(document.characters / CHARACTERS_OF_A_WORD) if document.characters else ""


def _seconds(seconds: float) -> str:
    return f"{max(1, round(seconds)):,} s" if seconds < 120 else f"{seconds / 60:.0f} min"
