"""Loads the model while the user types the first question."""

from collections.abc import Generator, Iterator
from math import isfinite
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.engine.events import Note
from localctx.errors import Cancelled
from localctx.models.catalog import FALLBACK, title_of
from localctx.serving.worker import Queued
from localctx.ui import render
from localctx.ui.answers.conversation import StreamingAnswer
from localctx.ui.everyday import words
from localctx.ui.job_events import error_text, redraws
from localctx.ui.window import AppWindow, Updates, tab_id

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.session import Session


def _ready_line(session: "Session") -> str:
    """Returns the line that is shown when the model is loaded: the longest possible prompt, and advice if it is the
    demonstration model.
    """
    from localctx.engine.planning.cache_plan import longest_prompt

    advice = " It is a demonstration, often wrong: choose a larger one above." * (session.settings.model == FALLBACK)
    longest = longest_prompt(session.settings, session.model)
    at_once = words(longest) if isfinite(longest) else "any length"
    return f"{title_of(session.settings.model)} is ready. It can read {at_once} at once.{advice}"


def load_model(window: AppWindow, status: gr.HTML, request: gr.Request) -> Iterator[Updates]:
    """Download and load the model. Yields updates that show the progress in ``status``."""

    def job(session: "Session") -> Generator[Any, None, None]:
        yield Note(_ready_line(session))

    yield gr.skip()
    if window.has_job(tab_id(request)):
        return  # a question was asked meanwhile, and its job loads the model
    answer = StreamingAnswer("", "")
    try:
        events = (event for event in window.submit(tab_id(request), job) if not isinstance(event, Queued))
        for _ in redraws(events, answer.handle):
            yield {status: answer.status}
        answer.status = ""
        yield {status: answer.status_lines}
    except Cancelled:
        yield {status: ""}
    except Exception as e:
        yield {status: render.note(error_text(e), "error")}
