"""Documents side by side: the same summaries as one after another, in the memory there is."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from in_memory_output import Kept

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Batch, Outcome
from localctx.batch.side_by_side import run_side_by_side
from localctx.errors import Cancelled
from localctx.kv.pool import Pool
from localctx.session import Session
from localctx.settings import load_settings
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

TASK = SummaryTask(length="12")
PAGES = 24  # of the tiny model, that the budget of the tests holds


@pytest.fixture
def settings(home, tiny_model, monkeypatch):
    for name, value in {**PLAIN, "model": tiny_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    monkeypatch.delenv("LOCALCTX_MAX_TOKENS")
    return TASK.adapted(load_settings())


@contextmanager
def running(settings, jobs, most) -> Iterator[tuple[Kept, Session, Iterator]]:
    kept = Kept()
    with Session(settings) as session, session.workflows.summaries() as summarizing:
        batch = Batch(summarizing, TASK, [kept], force=True)
        yield kept, session, run_side_by_side(batch.run, jobs, session.forward_each, session.runtime.cancelled, most)


def write(folder: Path, texts) -> list[DocumentJob]:
    folder.mkdir(exist_ok=True)
    jobs = []
    for i, text in enumerate(texts):
        file = folder / f"{i:03}.txt"
        file.write_text(text)
        jobs.append(DocumentJob(str(file), str(file), len(text)))
    return jobs


def story(i: int) -> str:
    return " ".join(f"Bridge {i} has arch {j} of stone." for j in range(1 + i % 7))


def test_two_hundred_documents_side_by_side_stay_within_the_memory_allowed(settings, tmp_path, monkeypatch):
    jobs = write(tmp_path / "texts", map(story, range(200)))
    with running(settings, jobs[:10], 1) as (alone, _, told):
        assert [job for job, what in told if isinstance(what, Outcome)] == jobs[:10], "in order"
    pools, peaks, together = [], [], []
    monkeypatch.setattr(Pool, "__init__", spied(Pool.__init__, pools))
    with running(settings, jobs, 64) as (kept, session, _):
        page = session.model.shape.page_bytes("int8")
        tail = 2 * 64 * sum(s.kv_heads * (s.k_dim + s.v_dim) for s in session.model.shape.layers) * 2
    with running(replace(settings, memory=str(PAGES * page + 4 * tail)), jobs, 64) as (kept, session, told):
        allowed, open_ones = session.settings.caps["memory"], set()
        for job, what in told:
            (open_ones.discard if isinstance(what, Outcome) else open_ones.add)(job)
            together.append(len(open_ones))
            peaks.append(sum(pool.device_tier.nbytes for pool in pools))
            assert not isinstance(what, Outcome) or what.status == "done", what
    assert len(kept.summaries) == 200
    assert {name: kept.summaries[name] for name in alone.summaries} == alone.summaries
    assert max(peaks) <= allowed, f"{max(peaks)} bytes of {allowed}"
    assert max(together) > 1
    assert max(together) < 64, "memory decides how many"


def spied(init, pools):
    def new(self, *args, **kwargs):
        init(self, *args, **kwargs)
        pools.append(self)

    return new


def test_a_cancel_is_heard_by_all_and_leaves_nothing_open(settings, tmp_path):
    jobs = write(tmp_path / "texts", (story(i) * 20 for i in range(6)))
    with running(settings, jobs, 6) as (kept, session, told):
        next(told)
        threading.Timer(0.2, session.cancel).start()
        with pytest.raises(Cancelled):
            list(told)
        assert sum(session.in_use.kv.values()) == 0
    assert len(kept.summaries) < 6


def test_a_fault_of_one_is_told_and_the_others_go_on(settings, tmp_path):
    jobs = write(tmp_path / "texts", [story(1), "", story(2)])
    with running(settings, jobs, 3) as (kept, _, told):
        ended = {job: what.status for job, what in told if isinstance(what, Outcome)}
    assert [ended[job] for job in jobs] == ["done", "failed", "done"]
    assert len(kept.summaries) == 2


def test_a_night_of_documents_that_were_done_before_is_gone_through():
    """Thirty thousand, every third of which is in work when it is first looked at."""
    jobs, seen = [DocumentJob(str(i), str(i), 1) for i in range(30_000)], set()

    def work(job):
        again = int(job.source) % 3 == 0 and job not in seen
        seen.add(job)
        yield from ()
        return Outcome(job, "skipped", retry=again)

    told = run_side_by_side(work, jobs, lambda feeds, cancelled: [], lambda: False)
    assert sorted(int(job.source) for job, _ in told) == list(range(30_000))
