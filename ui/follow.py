"""Follow: a job's events as lines of HTML, for pages whose work has a bar and an end."""

import time
from collections.abc import Iterator
from typing import Any

from localctx.desk import Turn, Waiting
from localctx.engine.events import Note, Progress
from localctx.errors import Cancelled, UserError
from localctx.ui import render

BEAT = 0.1  # seconds between two pictures of a bar


def follow(turn: Turn) -> Iterator[str]:
    """Pictures of a job as it goes on; the last says how it ended: its last Note, or why it failed."""
    said, drawn = render.note("done", "done"), 0.0
    try:
        for event in turn:
            if isinstance(event, Note):
                said = render.note(event.text, "done")
            if time.monotonic() - drawn >= BEAT and (picture := _picture(event)):
                drawn = time.monotonic()
                yield picture
    except Cancelled:
        said = render.note("stopped")
    except UserError as e:
        said = render.note(str(e), "error")
    except Exception as e:
        said = render.note(f"a fault in localctx, please report it: {e!r}", "error")
    yield said


def _picture(event: Any) -> str:
    match event:
        case Progress():
            return render.progress_bar(event)
        case Note():
            return render.note(event.text)
        case Waiting() if event.place:
            return render.note(f"waiting: {event.place} before you")
    return ""
