"""Events as lines of JSON: each one comes back as it was, and so do errors."""

import json
from dataclasses import replace
from typing import get_args

import pytest

from localctx import errors
from localctx.engine import events
from localctx.engine.event_json import EVENTS, error_to_line, event_from_line, event_to_line
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
from localctx.engine.request_report import AnswerReport, EverywhereReport, KVReport, PrepareReport, TokenCounts
from localctx.errors import Cancelled, OutOfKVMemory, UserError

CITATION = {"document": "d", "name": "a.txt", "page": None, "quote": "«é\u2028»", "start": 3, "weight": 0.25}
KV = KVReport(
    *("int8", "full", 12.5, {"device": 2}, {"device": 4096}, 0, 8192, 512),
    evicted=[{"start": 0, "stop": 64, "kept": 0.5}],
    map={"tiers": "ds"},
)
REPORT = AnswerReport(
    *("Yes.", ["Yes.", "No."], "full", "tiny", "eos", TokenCounts(9, 4, 5, 2, 1), [{"start": 1}], {"passages": 3}),
    *({"load": 0.5}, KV, {"kv": 4096}, [CITATION], [{"start": 0, "end": 4, "source": CITATION}]),
)
PREPARED = PrepareReport("d", "a.txt", "tiny", "eos", {"prompt": 9}, {"pages": 1}, {"prefill": 0.1}, KV)
EXAMPLES = [
    Planned("full", "it fits", 9, 4, 4096, None, 256, 8192, "int8", "full", {"device": 4096}, True),
    Progress("reading", 3, 9, 1, 2.5, 0.1),
    Note('two\nlines, "quotes" and \ud800'),
    WholeOffered("it is long", {"summarize": 3.5, "everywhere": None}),
    Evicted("h2o", 128, ((0, 64), (128, 192))),
    Quoted(CITATION),
    NearestPassage(CITATION),
    PassageAnswered("Ann", CITATION),
    SentenceChecked({"start": 0, "end": 4, "source": None}),
    Token("é", 7, 1),
    Done(REPORT, "the disk is full"),
    Done(replace(REPORT, everywhere=EverywhereReport(3, True, 2, groups=[{"answer": "Ann"}]), until={"tokens": 5})),
    Done(replace(REPORT, chat="c", message=3)),
    Done(replace(REPORT, citations=[], nearest=CITATION, stopped="unanswered")),
    Done(PREPARED),
    Done(replace(PREPARED, kv=None)),
]


@pytest.mark.parametrize("event", EXAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_comes_back_as_it_was(event):
    line = event_to_line(event)
    assert line.endswith("\n")
    assert len(line.splitlines()) == 1
    found = event_from_line(line)
    assert found == event
    assert type(found) is type(event)
    if isinstance(event, Done):
        assert found.report.to_json() == event.report.to_json()
    assert event_from_line(line.encode()) == event


def test_every_event_is_known_and_has_an_example():
    kinds = {*get_args(Event), *(k for k in vars(events).values() if isinstance(k, type) and issubclass(k, Note))}
    assert set(EVENTS.values()) == kinds == set(map(type, EXAMPLES))


@pytest.mark.parametrize(
    "kind",
    [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, UserError) and k is not OutOfKVMemory],
)
def test_an_error_comes_back_as_it_was(kind):
    with pytest.raises(kind, match="it is broken; mend it") as raised:
        event_from_line(error_to_line(kind("it is broken", "mend it")))
    assert type(raised.value) is kind
    assert (raised.value.problem, raised.value.remedy) == ("it is broken", "mend it")


def test_an_error_with_words_of_its_own_comes_back_with_them():
    error = OutOfKVMemory({"device": 1 << 20}, 1 << 21)
    with pytest.raises(OutOfKVMemory) as raised:
        event_from_line(error_to_line(error))
    assert str(raised.value) == str(error)


def test_an_error_of_another_module_comes_back_as_what_it_is_a_kind_of():
    class Odd(errors.ModelError):
        pass

    with pytest.raises(errors.ModelError, match="odd; help") as raised:
        event_from_line(error_to_line(Odd("odd", "help")))
    assert type(raised.value) is errors.ModelError


def test_a_cancel_comes_back_as_one():
    with pytest.raises(Cancelled):
        event_from_line(error_to_line(Cancelled()))


@pytest.mark.parametrize(
    "line",
    ["", "x", "[]", "3", "{}", '{"event": "Nothing"}', '{"event": "Token"}', '{"event": "Done", "report": {}}'],
)
def test_what_is_no_event_is_refused(line):
    with pytest.raises(ValueError, match=r"Expecting value|is no event"):
        event_from_line(line)


def test_an_unknown_error_is_an_error():
    with pytest.raises(UserError, match="p; r"):
        event_from_line(json.dumps({"error": "Unheard", "problem": "p", "remedy": "r"}))
    with pytest.raises(ValueError, match="no event"):  # a name of that module that is no error
        event_from_line(json.dumps({"error": "format_bytes", "problem": "p", "remedy": "r"}))
