"""Tries questions about documents before they are suggested, so that a suggested question has an answer.

A question is tried as it would be asked. Only an adapter rates answers, so without one nobody knows whether an answer
was found, and questions are suggested untried. If a question takes long, no other is tried until the document is opened
again: a missing suggestion is better than one that fails.
"""

import time
from collections.abc import Generator, Sequence
from typing import Any

from localctx.engine.coroutine import AwaitedForward, EngineCoroutine, map_events
from localctx.engine.events import Done, Event
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.request_report import AnswerReport
from localctx.errors import Cancelled, NothingFound, TooLong
from localctx.library.citations.sentence_sources import is_unsure
from localctx.library.wording.no_answer import is_no_answer
from localctx.models.adapter_folders import READER, find_adapter
from localctx.settings import Settings
from localctx.store.store import store_errors
from localctx.workflows.ahead.suggested_questions import COUNT, SuggestedQuestions
from localctx.workflows.answer.ask import AskWorkflow
from localctx.workflows.summary_task import digest

CANDIDATES = 8  # questions made by rules, of which up to COUNT are suggested if they are tried
VERSION = 2  # of trying; part of the key of stored tries
MAX_SECONDS = 5.0  # for one question
MAX_SLOW = 2  # questions that take longer, after which no other is tried; the first may, as it restores the pages


Suggesting = Generator[Event | AwaitedForward | SuggestedQuestions, Any, None]
"""An engine coroutine that also yields SuggestedQuestions."""


def rates_answers(settings: Settings) -> bool:
    """Returns True if answers with these settings are rated by a reader, and every question reads the text only once.
    The model is not loaded. Raises ModelError for an unknown adapter.
    """
    if not settings.is_greedy or settings.careful == "off" or settings.mode == "everywhere":
        return False
    folder = find_adapter(settings.adapter, settings.model)
    return folder is not None and (folder / READER).exists()


def try_questions(
    builder: RequestBuilder,
    ask: AskWorkflow,
    documents: Sequence[str],
    candidates: Sequence[str],
    until: str = "",
    may_ask: bool = True,
) -> Suggesting:
    """Ask ``candidates`` about stored documents (ids) one by one, until COUNT of them were found. Yields each time all
    that were found. Whether a question was found is stored with the first document, so it is tried once.

    ``until`` is a mark in the only document; the text after the mark is not read. Unless ``may_ask``, only earlier
    tries are used. Raises UserError, Cancelled.
    """
    store, recipe = builder.runtime.store, _recipe(builder, documents, until)
    with store_errors(store.home):
        tried: dict[str, bool] = (store.results.get(documents[0], recipe) or {}).get("tried", {})
    found, slow = list[str](), 0
    for question in candidates:
        if question not in tried:
            if not may_ask or slow == MAX_SLOW:
                continue
            started = time.perf_counter()
            tried[question] = yield from _is_found(ask, documents, question, until)
            slow += time.perf_counter() - started > MAX_SECONDS
            with store_errors(store.home):
                store.results.put(documents[0], recipe, {"tried": tried})
        if tried[question]:
            found.append(question)
            yield SuggestedQuestions(tuple(found))
        if len(found) == COUNT:
            return


def _recipe(builder: RequestBuilder, documents: Sequence[str], until: str) -> str:
    """Returns the key of stored tries: a hash of what decides whether a question is found."""
    s, adapter = builder.runtime.settings, builder.runtime.adapter
    model = [builder.fingerprint.hex(), *(adapter.recipe if adapter else ()), *s.reading_key]
    answered = [s.answers, s.careful, s.repeats, s.max_tokens, s.passages, s.embedder, s.blend]
    return digest(["tried questions", str(VERSION), *model, *map(str, answered), until, *documents])


def _is_found(ask: AskWorkflow, documents: Sequence[str], question: str, until: str) -> EngineCoroutine[bool]:
    done = list[Done]()
    try:
        asking = ask.ask(documents, question, until=until)
        yield from map_events(asking, lambda event: done.append(event) if isinstance(event, Done) else None)
    except (NothingFound, TooLong):
        return False
    report = done[0].report
    assert isinstance(report, AnswerReport), "a question was asked"
    if report.stopped == "cancelled":
        raise Cancelled
    return _has_answer(report)


def _has_answer(report: AnswerReport) -> bool:
    """Returns True if the window would show the answer as found: complete, cited and supported."""
    supports = {sentence["support"] for sentence in report.sentences}
    quoted = any(citation["source"] == "quote" for citation in report.citations)
    supported = bool(report.citations) or "supported" in supports
    given = report.stopped == "eos" and not is_no_answer(report.answer)
    return given and supported and not is_unsure(report.answer, supports, quoted)
