"""The desk: questions are answered together, each as it would be alone, and nobody waits for another's reading."""

import gc
import threading
import weakref
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from ask_in_process import PLAIN

from localctx.engine.events import Done, Progress, Token
from localctx.errors import Cancelled, UsageError
from localctx.serving.worker import EngineWorker, Queued
from localctx.session import Session
from localctx.settings import load_settings

QUESTIONS = ("How long is river 3?", "And river 7?", "Which is longest?")


@pytest.fixture
def settings(home, sharp_model):
    return load_settings(home=home, model=str(sharp_model), **PLAIN)


@contextmanager
def open_desk(settings, most):
    with closing(EngineWorker(settings, "test", most)) as desk:
        yield desk


def asking(document, question):
    def job(session):
        yield from session.workflows.questions.ask([str(document)], question, persist=False)

    return job


def report(events):
    return next(e.report.to_json() for e in events if isinstance(e, Done))


def together(turns):
    """The events of turns, each heard in a thread of its own, and the order in which they ended."""
    heard, order = [[] for _ in turns], []

    def listen(i):
        heard[i].extend(turns[i])
        order.append(i)

    threads = [threading.Thread(target=listen, args=(i,)) for i in range(len(turns))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return heard, order


def test_questions_answered_together_are_answered_as_alone(settings, document):
    with Session(settings) as session:
        alone = [report(session.stream(q, [str(document)], persist=False))["answer"] for q in QUESTIONS]
    with open_desk(settings, 4) as desk:
        heard, _ = together([desk.take_turn(asking(document, q)) for q in QUESTIONS])
    assert [report(events)["answer"] for events in heard] == alone


def test_a_short_question_does_not_wait_for_a_long_document(settings, document, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(130)))
    with open_desk(settings, 4) as desk:
        list(desk.take_turn(asking(document, "first, so that the model is there")))
        slow = desk.take_turn(asking(long, QUESTIONS[0]))
        events = iter(slow)
        next(e for e in events if isinstance(e, Progress) and e.phase == "reading")
        quick = desk.take_turn(asking(document, QUESTIONS[1]))
        (one, two), order = together([events, quick])
    assert order == [1, 0]
    assert report(one)["answer"]
    assert any(isinstance(e, Token) for e in two)


def test_a_desk_for_one_lets_the_others_wait_in_line(settings, document):
    with open_desk(settings, 1) as desk:
        turns = [desk.take_turn(asking(document, q)) for q in QUESTIONS]
        heard, order = together(turns)
    assert order == [0, 1, 2]
    assert max(e.place for e in heard[2] if isinstance(e, Queued)) >= 1


def test_one_is_stopped_and_the_others_go_on(settings, document):
    with open_desk(settings, 4) as desk:
        turns = [desk.take_turn(asking(document, q)) for q in QUESTIONS[:2]]
        turns[0].cancel()
        with pytest.raises(Cancelled):
            list(turns[0])
        assert report(turns[1])["answer"]


def test_a_mistake_costs_its_own_turn_alone(settings, document):
    def wrong(session):
        raise UsageError("no", "never")
        yield

    def broken(session):
        yield from ()
        raise ZeroDivisionError

    with open_desk(settings, 4) as desk:
        good, bad, worse = (desk.take_turn(job) for job in (asking(document, QUESTIONS[0]), wrong, broken))
        with pytest.raises(UsageError):
            list(bad)
        with pytest.raises(ZeroDivisionError):
            list(worse)
        assert report(good)["answer"]


def test_another_model_leaves_no_chair_with_the_one_before(settings, document, tiny_model):
    with open_desk(settings, 4) as desk:
        together([desk.take_turn(asking(document, q)) for q in QUESTIONS])
        before = [weakref.ref(chair.session.model) for chair in desk._chairs if chair.session.in_use.weights]
        assert len(before) > 1
        desk.change(replace(settings, model=str(tiny_model)))
        assert report(desk.take_turn(asking(document, QUESTIONS[0])))["model"] == str(tiny_model)
        gc.collect()
        assert [model() for model in before] == [None] * len(before)


def test_other_settings_count_from_the_next_turn_on(settings, document):
    with open_desk(settings, 4) as desk:
        assert report(desk.take_turn(asking(document, QUESTIONS[0])))["tokens"]["generated"] > 3
        desk.change(replace(settings, max_tokens=3))
        assert report(desk.take_turn(asking(document, QUESTIONS[0])))["tokens"]["generated"] == 3
        assert desk.in_use.weights > 0
