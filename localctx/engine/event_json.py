"""Encodes events as lines of JSON and decodes them, so that one process can show the events of another. Errors are
encoded as lines too.
"""

import json
from dataclasses import asdict
from typing import Any

from localctx import errors
from localctx.engine.events import (
    Done,
    Event,
    Evicted,
    NearestPassage,
    Note,
    PassageAnswered,
    Planned,
    Progress,
    Quoted,
    SentenceChecked,
    Token,
    WholeOffered,
)
from localctx.engine.request_report import (
    AnswerReport,
    ComparedReport,
    EverywhereReport,
    KVReport,
    PrepareReport,
    TokenCounts,
)
from localctx.errors import Cancelled, UserError, make_error

EVENTS = {
    kind.__name__: kind
    for kind in (
        *(Planned, Progress, Note, WholeOffered, Evicted, Quoted),
        *(NearestPassage, PassageAnswered, SentenceChecked, Token, Done),
    )
}
"""Event classes by the name in a line."""


def event_to_line(event: Event) -> str:
    """Returns an event as a line of JSON."""
    return json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"


def error_to_line(error: UserError | Cancelled) -> str:
    """Returns an error as a line of JSON. It is sent after the events, as the last line."""
    if isinstance(error, Cancelled):
        return json.dumps({"error": "Cancelled"}) + "\n"
    known = next(kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__))
    return json.dumps({"error": known, "problem": error.problem, "remedy": error.remedy}) + "\n"


def event_from_line(line: str | bytes) -> Event:
    """Returns the event in a line of JSON. If the line holds an error, that error is raised. Raises ValueError for any
    other line.
    """
    try:
        value = json.loads(line)
        if "error" in value:
            raise _error(value)
        kind = EVENTS[value.pop("event")]
        return kind(**_REBUILT.get(kind, dict)(value))
    except (TypeError, KeyError, AttributeError) as e:
        raise ValueError(f"this line is no event: {line[:80]!r}") from e


def _error(value: dict[str, str]) -> Exception:
    if value["error"] == "Cancelled":
        return Cancelled()
    kind = getattr(errors, value["error"], UserError)
    return make_error(kind, value["problem"], value["remedy"])


def _evicted(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "ranges": tuple((start, stop) for start, stop in value["ranges"])}


def _done(value: dict[str, Any]) -> dict[str, Any]:
    report = value["report"]
    return {**value, "report": _answer_report(report) if "answer" in report else _prepare_report(report)}


def _answer_report(value: dict[str, Any]) -> AnswerReport:
    everywhere = EverywhereReport(**value["everywhere"]) if value["everywhere"] else None
    compared = ComparedReport(**value["compared"]) if value["compared"] else None
    parts = {"tokens": TokenCounts(**value["tokens"]), "kv": KVReport(**value["kv"])}
    return AnswerReport(**{**value, **parts, "everywhere": everywhere, "compared": compared})


def _prepare_report(value: dict[str, Any]) -> PrepareReport:
    return PrepareReport(**{**value, "kv": KVReport(**value["kv"]) if value["kv"] else None})


_REBUILT = {Evicted: _evicted, Done: _done}
"""Converters from JSON for events whose fields are not plain values."""
