"""Renders the events of a job as HTML lines, at a limited rate, and errors as text."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from localctx.engine.events import Note, Planned, Progress
from localctx.error_log import explain
from localctx.errors import Cancelled
from localctx.serving.worker import EventStream, Queued
from localctx.ui import render
from localctx.ui.everyday import in_everyday_words

REDRAW_INTERVAL = 0.1  # seconds between two updates sent to the browser


def redraws(events: Iterable[Any], handle: Callable[[Any], None]) -> Iterator[None]:
    """Pass each of ``events`` to ``handle``, and yield when the page should be redrawn.

    Yields at most once in REDRAW_INTERVAL seconds. Raises the errors that ``events`` raises.
    """
    drawn = 0.0
    for event in events:
        handle(event)
        if time.monotonic() - drawn >= REDRAW_INTERVAL:
            drawn = time.monotonic()
            yield


def progress_lines(stream: EventStream) -> Iterator[str]:
    """Yields a job's progress as HTML, and at the end the job's result: the text of its last Note, or the error."""
    result, line = render.note("Done", "done"), ""

    def handle(event: Any) -> None:
        nonlocal result, line
        if isinstance(event, Note):
            result = render.note(in_everyday_words(event.text), "done")
        line = progress_line(event) or line

    try:
        for _ in redraws(stream, handle):
            yield line
    except Cancelled:
        result = render.note("Stopped")
    except Exception as e:
        result = render.note(error_text(e), "error")
    yield result


def progress_line(event: Any) -> str:
    """Returns HTML for an event with a job's progress; "" for other events."""
    match event:
        case Progress():
            return render.progress_bar(event)
        case Planned():
            return render.plan_line(event)
        case Note():
            return render.note(in_everyday_words(event.text))
        case Queued() if event.position:
            others = "one question is" if event.position == 1 else f"{event.position} questions are"
            return render.note(f"Waiting: {others} before yours")
    return ""


def error_text(e: Exception) -> str:
    """Returns the text of an error in everyday words. Unexpected errors are logged."""
    return in_everyday_words(str(explain(e)))
