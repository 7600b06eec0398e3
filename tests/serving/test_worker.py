"""EngineWorker: questions are answered together, each as it would be alone, and none waits for another's prefill."""

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

pytestmark = pytest.mark.slow

QUESTIONS = ("How long is river 3?", "And river 7?", "Which is longest?")


@pytest.fixture
def settings(home, sharp_model):
    return load_settings(home=home, model=str(sharp_model), **PLAIN)


@contextmanager
def open_worker(settings, max_parallel):
    with closing(EngineWorker(settings, "test", max_parallel)) as worker:
        yield worker


def asking(document, question):
    def job(session):
        yield from session.workflows.questions.ask([str(document)], question, persist=False)

    return job


def report(events):
    return next(e.report.to_json() for e in events if isinstance(e, Done))


def together(streams):
    """The events of streams, each heard in a thread of its own, and the order in which they ended."""
    heard, order = [[] for _ in streams], []

    def listen(i):
        heard[i].extend(streams[i])
        order.append(i)

    threads = [threading.Thread(target=listen, args=(i,)) for i in range(len(streams))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    return heard, order


def test_questions_answered_together_are_answered_as_alone(settings, document):
    with Session(settings) as session:
        alone = [report(session.stream(q, [str(document)], persist=False))["answer"] for q in QUESTIONS]
    with open_worker(settings, 4) as worker:
        heard, _ = together([worker.submit(asking(document, q)) for q in QUESTIONS])
    assert [report(events)["answer"] for events in heard] == alone


def test_a_short_question_does_not_wait_for_a_long_document(settings, document, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(130)))
    with open_worker(settings, 4) as worker:
        list(worker.submit(asking(document, "first, so that the model is there")))
        slow = worker.submit(asking(long, QUESTIONS[0]))
        events = iter(slow)
        next(e for e in events if isinstance(e, Progress) and e.phase == "reading")
        quick = worker.submit(asking(document, QUESTIONS[1]))
        (one, two), order = together([events, quick])
    assert order == [1, 0]
    assert report(one)["answer"]
    assert any(isinstance(e, Token) for e in two)


def test_a_worker_for_one_lets_the_others_wait_in_line(settings, document):
    with open_worker(settings, 1) as worker:
        streams = [worker.submit(asking(document, q)) for q in QUESTIONS]
        heard, order = together(streams)
    assert order == [0, 1, 2]
    assert max(e.position for e in heard[2] if isinstance(e, Queued)) >= 1


def test_a_question_waits_for_no_question_while_a_job_yields_to_it(settings):
    started, let_go = threading.Event(), threading.Event()

    def trial(session):
        started.set()
        assert let_go.wait(60)
        yield from ()

    with open_worker(settings, 4) as worker:
        trying = worker.submit(trial, yielding=True)
        assert started.wait(60)
        first, second = worker.submit(trial), worker.submit(trial)
        assert [worker.queue_position(stream) for stream in (first, second)] == [0, 1]
        let_go.set()
        list(first), list(second)
        assert trying.cancelled.is_set()


def test_one_is_stopped_and_the_others_go_on(settings, document):
    with open_worker(settings, 4) as worker:
        streams = [worker.submit(asking(document, q)) for q in QUESTIONS[:2]]
        streams[0].cancel()
        with pytest.raises(Cancelled):
            list(streams[0])
        assert report(streams[1])["answer"]


def test_a_mistake_costs_its_own_job_alone(settings, document):
    def wrong(session):
        raise UsageError("no", "never")
        yield

    def broken(session):
        yield from ()
        raise ZeroDivisionError

    with open_worker(settings, 4) as worker:
        good, bad, worse = (worker.submit(job) for job in (asking(document, QUESTIONS[0]), wrong, broken))
        with pytest.raises(UsageError):
            list(bad)
        with pytest.raises(ZeroDivisionError):
            list(worse)
        assert report(good)["answer"]


def test_another_model_leaves_no_session_with_the_one_before(settings, document, tiny_model):
    with open_worker(settings, 4) as worker:
        together([worker.submit(asking(document, q)) for q in QUESTIONS])
        before = [weakref.ref(slot.session.model) for slot in worker._slots if slot.session.in_use.weights]
        assert len(before) > 1
        worker.change_settings(replace(settings, model=str(tiny_model)))
        assert report(worker.submit(asking(document, QUESTIONS[0])))["model"] == str(tiny_model)
        gc.collect()
        assert [model() for model in before] == [None] * len(before)


def test_other_settings_count_from_the_next_job_on(settings, document):
    with open_worker(settings, 4) as worker:
        assert report(worker.submit(asking(document, QUESTIONS[0])))["tokens"]["generated"] > 3
        worker.change_settings(replace(settings, max_tokens=3))
        assert report(worker.submit(asking(document, QUESTIONS[0])))["tokens"]["generated"] == 3
        assert worker.in_use.weights > 0
