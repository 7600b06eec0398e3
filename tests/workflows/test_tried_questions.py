"""Questions that are tried before they are suggested: what is found is kept, what is not is dropped, each once."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from stored_documents import add

from localctx.engine.events import Done, Progress
from localctx.engine.request_report import AnswerReport, TokenCounts
from localctx.errors import Cancelled, NothingFound, TooLong
from localctx.settings import load_settings
from localctx.workflows.ahead import tried_questions
from localctx.workflows.ahead.suggested_questions import SuggestedQuestions
from localctx.workflows.ahead.tried_questions import rates_answers, try_questions

CITED = {"document": "d", "source": "quote", "quote": "The rent is 940 euros."}
TOKENS = TokenCounts(prompt=9, reused=0, prefilled=9, generated=3, longest=3)


def report(question: str) -> AnswerReport:
    """An answer that is what the question's first word says."""
    state = question.partition(" ")[0]
    stopped = state if state in ("unanswered", "cancelled", "length") else "eos"
    support = "unsupported" if state == "unsure" else "supported"
    given = {"answer": "940 euros", "answers": [], "mode": "full", "model": "m", "stopped": stopped, "tokens": TOKENS}
    given |= {"passages": [], "ranking": None, "seconds": {}, "kv": None, "memory": {}}
    return AnswerReport(**given, citations=[CITED] if stopped == "eos" else [], sentences=[{"support": support}])


class Ask:
    """Stands for AskWorkflow; ``asked`` are the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, documents, question, until=""):
        self.asked.append(question)
        yield Progress("reading", 1, 2)
        yield Done(report(question))


@pytest.fixture
def document(store) -> str:
    return add(store, "lease.txt")[0]


@pytest.fixture
def suggest(store, document):
    """A function that tries questions and returns what is suggested, one after the other."""

    def run(
        ask: Ask,
        *candidates: str,
        model: bytes = b"m",
        until: str = "",
        may_ask: bool = True,
        threshold: float = 0.5,
        others: Sequence[str] = (),
        **settings: Any,
    ) -> list[tuple[str, ...]]:
        adapter = SimpleNamespace(recipe=("reader", str(threshold)))
        runtime = SimpleNamespace(store=store, settings=load_settings(home=store.home, **settings), adapter=adapter)
        builder = SimpleNamespace(runtime=runtime, fingerprint=model)
        events = list(try_questions(builder, ask, [document, *others], candidates, until, may_ask))
        assert all(isinstance(event, SuggestedQuestions) for event in events), "nothing else is told of a try"
        return [event.questions for event in events]

    return run


def test_what_is_found_is_suggested_one_by_one_and_all_else_is_dropped(suggest):
    candidates = ("unanswered 1", "found 1", "unsure 1", "length 1", "found 2")
    assert suggest(Ask(), *candidates) == [("found 1",), ("found 1", "found 2")]


def test_after_three_are_found_no_other_is_asked(suggest):
    ask = Ask()
    assert suggest(ask, *(f"found {i}" for i in range(8)))[-1] == ("found 0", "found 1", "found 2")
    assert len(ask.asked) == 3


def test_a_question_is_tried_once_for_each_document_and_model(suggest):
    again = Ask()
    suggested = suggest(Ask(), "found 1", "unanswered 1")
    assert suggest(again, "found 1", "unanswered 1") == suggested
    assert again.asked == []


@pytest.mark.parametrize(
    "other",
    [
        {"model": b"another"},
        {"until": "40%"},
        {"threshold": 0.9},
        {"others": ["two"]},
        {"max_tokens": 7},
        {"answers": "quote"},
    ],
)
def test_it_is_tried_again_after_a_change_of_anything_that_decides(suggest, other):
    suggest(Ask(), "found 1")
    changed = Ask()
    suggest(changed, "found 1", **other)
    assert changed.asked == ["found 1"]


@pytest.mark.parametrize(
    "error", [NothingFound("no passage fits", "ask otherwise"), TooLong("it is too long", "ask less")]
)
def test_a_question_that_cannot_be_asked_is_dropped(suggest, error):
    class Refusing(Ask):
        def ask(self, documents, question, until=""):
            if question == "found 1":
                raise error
            return super().ask(documents, question, until)

    assert suggest(Refusing(), "found 1", "found 2") == [("found 2",)]


def test_an_answer_that_says_that_nothing_is_said_is_none(suggest, monkeypatch):
    nothing = lambda question, made=report: replace(made(question), answer="No, the document does not say.")  # noqa: E731
    monkeypatch.setattr("test_tried_questions.report", nothing)
    assert suggest(Ask(), "found 1") == []


def test_where_answers_start_late_only_earlier_tries_are_used(suggest):
    suggest(Ask(), "found 1")
    late = Ask()
    assert suggest(late, "found 0", "found 1", may_ask=False) == [("found 1",)]
    assert late.asked == []


def test_a_cancelled_try_says_nothing_and_the_next_run_goes_on_there(suggest, monkeypatch):
    with pytest.raises(Cancelled):
        suggest(Ask(), "found 1", "cancelled 2")
    monkeypatch.setattr("test_tried_questions.report", lambda question, made=report: made("found"))
    later = Ask()
    assert suggest(later, "found 1", "cancelled 2")[-1] == ("found 1", "cancelled 2")
    assert later.asked == ["cancelled 2"]


def test_after_a_second_slow_try_no_other_is_tried(suggest, monkeypatch):
    monkeypatch.setattr(tried_questions, "MAX_SECONDS", 0.0)
    ask = Ask()
    assert suggest(ask, "found 1", "unanswered 2", "found 3") == [("found 1",)]
    assert ask.asked == ["found 1", "unanswered 2"]


def test_only_settings_with_a_reader_rate_answers(tmp_path):
    def rated(**settings) -> bool:
        return rates_answers(load_settings(home=tmp_path, **{"careful": "auto", **settings}))

    assert rated(model="qwen2.5-coder-0.5b-instruct")
    assert not rated(model="qwen2.5-coder-0.5b-instruct", adapter="none")
    assert not rated(model="qwen2.5-coder-0.5b-instruct", careful="off")
    assert not rated(model="qwen2.5-coder-0.5b-instruct", temperature=0.7)
    assert not rated(model="qwen2.5-1.5b-instruct")
