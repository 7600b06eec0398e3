"""Follow: the events of a job on their way, as pictures, and what went wrong in words."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from localctx.engine.events import Note, Planned, Progress
from localctx.errors import Cancelled, UserError
from localctx.serving.worker import EventStream, Queued
from localctx.ui import render

BEAT = 0.1  # seconds between two pictures of what goes on


def follow(events: Iterable[Any], hear: Callable[[Any], None]) -> Iterator[None]:
    """Let ``hear`` have the events; yields when it is time for another picture. Raises what they raise."""
    drawn = 0.0
    for event in events:
        hear(event)
        if time.monotonic() - drawn >= BEAT:
            drawn = time.monotonic()
            yield


def pictures(turn: EventStream) -> Iterator[str]:
    """Pictures of a job that has a bar and an end; the last says how it ended: its last Note, or why it failed."""
    said, now = render.note("done", "done"), ""

    def hear(event: Any) -> None:
        nonlocal said, now
        if isinstance(event, Note):
            said = render.note(event.text, "done")
        now = picture(event) or now

    try:
        for _ in follow(turn, hear):
            yield now
    except Cancelled:
        said = render.note("stopped")
    except Exception as e:
        said = render.note(in_words(e), "error")
    yield said


def picture(event: Any) -> str:
    """What an event says of how far a job is; empty where it says nothing of that."""
    match event:
        case Progress():
            return render.progress_bar(event)
        case Planned():
            return render.note(render.plan_line(event))
        case Note():
            return render.note(event.text)
        case Queued() if event.place:
            return render.note(f"waiting: {event.place} before you")
    return ""


def in_words(e: Exception) -> str:
    """What went wrong, for the person at the window."""
    return str(e) if isinstance(e, UserError) else f"a fault of localctx, please report it: {e!r}"
