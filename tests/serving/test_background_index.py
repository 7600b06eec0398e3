"""Documents become searchable in the background: other work comes first, and a stop or a deletion ends it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import pytest
from ask_in_process import PLAIN, session
from clock import wait_until

from localctx.library.search.indexing import WORDS_AT_ONCE
from localctx.serving.background_index import BackgroundIndexer, IndexStatus
from localctx.serving.worker import EngineWorker, Queued
from localctx.settings import load_settings
from localctx.store.store import Store

PARAGRAPHS = 3 * WORDS_AT_ONCE


class GatedEmbedder:
    """An embedder without a model, that embeds only as far as a test lets it."""

    name = "gated"

    def __init__(self) -> None:
        self.gate, self.waiting = threading.Semaphore(0), threading.Event()

    def embed(self, texts: list[str]) -> np.ndarray:
        self.waiting.set()
        self.gate.acquire(timeout=60)
        return np.ones((len(texts), 4), np.float32) / 2

    def embed_query(self, query: str) -> np.ndarray:
        return np.ones(4, np.float32) / 2


@pytest.fixture
def embedder(monkeypatch) -> GatedEmbedder:
    gated = GatedEmbedder()
    monkeypatch.setattr("localctx.engine.runtime.load_embedder", lambda *_: gated)
    return gated


@pytest.fixture
def settings(home, tiny_model):
    return load_settings(home=home, model=str(tiny_model), **{**PLAIN, "embedder": "all-minilm-l6-v2"})


@pytest.fixture
def long(home, tiny_model, tmp_path) -> str:
    """A long document that was stored and not indexed; its id."""
    text = "\n\n".join(
        f"River {i} is {i + 1} km long. " + "It flows through the wide plain. " * 8 for i in range(PARAGRAPHS)
    )
    (tmp_path / "long.txt").write_text(text)
    with session(home, tiny_model) as s, s.workflows.library() as library:
        (added,) = library.add([str(tmp_path / "long.txt")])
    return added.id


@pytest.fixture
def worker(settings) -> Iterator[EngineWorker]:
    with closing(EngineWorker(settings, "library")) as worker:
        yield worker


@pytest.fixture
def indexer(settings, worker, embedder) -> Iterator[BackgroundIndexer]:
    with closing(BackgroundIndexer(lambda: settings, worker, lambda _: False)) as indexer:
        yield indexer
        indexer.stop()
        embedder.gate.release(1000)


def state(home, document: str) -> tuple[bool, int, int]:
    """Whether the words are indexed, and the numbers of chunks and of those with vectors."""
    with closing(Store(home)) as store:
        return store.index.has(document), *store.index.coverage("gated", [document])


def run(worker: EngineWorker, work: Callable) -> list:
    def job(session):
        yield work(session)

    return [event for event in worker.submit(job) if not isinstance(event, Queued)]


def test_all_is_indexed_and_the_progress_never_goes_back(home, long, indexer, embedder):
    seen, show = [], indexer._show
    indexer._show = lambda progress: (seen.append(progress), show(progress))
    embedder.gate.release(PARAGRAPHS)
    indexer.wake()
    wait_until(lambda: indexer.status.progress is None and state(home, long)[2] == PARAGRAPHS)
    assert state(home, long) == (True, PARAGRAPHS, PARAGRAPHS)
    done = [progress.done for progress in seen]
    assert len(done) > 10
    assert done == sorted(done)
    assert {progress.phase for progress in seen} == {"indexing"}


def test_a_search_does_not_wait_for_the_index(home, long, indexer, worker, embedder):
    indexer.wake()
    assert embedder.waiting.wait(60)  # words are indexed, and the first vectors are computed
    searching = threading.Thread(target=lambda: found.extend(run(worker, search)))
    found: list = []

    def search(session):
        with session.workflows.library() as library:
            return library.search("river 7", wait=False)

    searching.start()
    wait_until(lambda: worker.load[0] > 0)
    embedder.gate.release(1)  # the step that runs
    searching.join(60)
    ((result, why),) = found
    assert result.passages
    assert why is None
    assert result.words_only > PARAGRAPHS - 10
    embedder.gate.release(PARAGRAPHS)
    wait_until(lambda: state(home, long)[2] == PARAGRAPHS)  # it went on by itself


def test_it_waits_while_a_question_is_answered(settings, home, long, worker, embedder):
    busy, looks = threading.Event(), list[int]()
    busy.set()
    embedder.gate.release(10_000)

    def is_busy(_: object) -> bool:
        looks.append(1)
        return busy.is_set()

    with closing(BackgroundIndexer(lambda: settings, worker, is_busy)) as indexer:
        indexer.wake()
        wait_until(lambda: len(looks) > 3)
        assert state(home, long) == (False, 0, 0)
        busy.clear()
        wait_until(lambda: state(home, long)[2] == PARAGRAPHS)


def test_a_data_folder_that_is_not_there_has_nothing_to_index(settings, home, worker):
    with closing(BackgroundIndexer(lambda: settings, worker)) as indexer:
        indexer.wake()
        wait_until(lambda: not indexer._wanted)
        assert indexer._thread.is_alive()
        assert indexer.status == IndexStatus()
    assert not home.exists()


def test_why_it_cannot_look_for_work_is_told_and_it_goes_on_when_it_is_woken(settings, home, long, worker, embedder):
    faults = [PermissionError("the folder is closed")]

    def is_busy(_: object) -> bool:
        if faults:
            raise faults.pop()
        return False

    embedder.gate.release(PARAGRAPHS)
    with closing(BackgroundIndexer(lambda: settings, worker, is_busy)) as indexer:
        indexer.wake()
        wait_until(lambda: indexer.status.problem)
        assert "PermissionError" in indexer.status.problem
        indexer.wake()
        wait_until(lambda: state(home, long)[2] == PARAGRAPHS)
        assert indexer.status.problem == ""


def test_it_can_be_stopped_and_goes_on_where_it_was(home, long, indexer, worker, embedder):
    embedder.gate.release(5)
    indexer.wake()
    wait_until(lambda: state(home, long)[2] == 5)
    indexer.stop()
    assert indexer.status.stopped
    embedder.gate.release(PARAGRAPHS)
    wait_until(lambda: not worker.busy)
    done = state(home, long)[2]
    assert 5 <= done < PARAGRAPHS
    assert not worker.busy
    assert state(home, long)[2] == done
    indexer.wake()
    assert not indexer.status.stopped
    wait_until(lambda: state(home, long)[2] == PARAGRAPHS)


def test_deleting_the_document_ends_it(home, long, indexer, embedder):
    embedder.gate.release(5)
    indexer.wake()
    wait_until(lambda: state(home, long)[2] == 5)
    with indexer.leaving_out([long]), closing(Store(home)) as store:
        store.delete("document", long)
    embedder.gate.release(PARAGRAPHS)
    wait_until(lambda: indexer.status.progress is None)
    assert state(home, long) == (False, 0, 0)
    with closing(Store(home)) as store:
        assert store.db.table("chunks").count == store.db.table("vectors").count == 0


def test_a_search_says_what_is_not_searchable_yet(home, long, tiny_model, monkeypatch):
    monkeypatch.setattr("localctx.workflows.manage_library.INSTANT", 10)
    with session(home, tiny_model) as s, s.workflows.library() as library:
        steps = library.index_steps([long])
        next(steps)
        result, why = library.search("river", wait=False)
        assert why == "1 document is not searchable yet (33 %)"
        assert [d.name for d in result.unsearchable] == ["long.txt"]
        assert result.passages
        steps.close()
        result, why = library.search("river")  # it waits
        assert (result.unsearchable, why) == ((), None)
