"""A batch on Ray: the same summaries, each once, whatever dies; and nothing left of the cluster."""

import json
import os
import pickle
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from ask_in_process import PLAIN, command, said, session, start
from batch_texts import counts, summaries, write_texts
from clock import seconds_since
from command_checks import assert_one_line
from required_extras import needs_ray

from localctx.batch import ray_cluster
from localctx.batch.jobs import plan_jobs
from localctx.batch.ray_cluster import RayCluster
from localctx.batch.ray_generator import RayGenerator
from localctx.batch.run_batch import Batch, Outcome
from localctx.engine.events import Note
from localctx.errors import ChatFull, DocumentError, ModelError, OutOfKVMemory, TooLong, UsageError, UserError
from localctx.settings import Settings
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

DOCUMENTS = 10


@pytest.fixture(autouse=True)
def small(home, monkeypatch, tiny_model):
    """The tiny model with one thread."""
    for name, value in {**PLAIN, "chunk": 512, "model": tiny_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    monkeypatch.delenv("LOCALCTX_MAX_TOKENS")


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder of short texts."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(DOCUMENTS):
        (folder / f"{i}.txt").write_text(f"River {i} is {i * 37} km long. " * 10)
    return folder


# Whole batches


class Started:
    """``localctx summarize --ray`` in a process of its own, and all the processes that come of it."""

    def __init__(self, *arguments: object) -> None:
        self._process, self._connection = start(
            command, dict(os.environ), ["summarize", *arguments, "--ray", "--length", "short"], None
        )
        self._top = psutil.Process(self._process.pid)
        self._seen = set[psutil.Process]()

    def workers(self, doing: str = "") -> list[psutil.Process]:
        """Those that live now."""
        self._seen |= set(self._top.children(recursive=True))
        return [p for p in self._seen if p.is_running() and name_of(p).startswith(f"ray::RayWorker{doing}")]

    def interrupt(self) -> None:
        self._top.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Exit code, stdout and stderr; nothing of it runs any more."""
        self.workers()
        (done,) = said(self._connection)
        self._process.join()
        assert not psutil.wait_procs(self._seen, timeout=10)[1], "processes of the cluster are left behind"
        return done


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def until(true, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "still not so"
        time.sleep(0.02)


@needs_ray
def test_a_worker_that_is_killed_is_started_again_and_every_summary_is_there_once(run, texts, tmp_path, monkeypatch):
    alone, out, lines = tmp_path / "alone", tmp_path / "out", tmp_path / "all.jsonl"
    assert run("summarize", texts, "-o", alone, "--length", "short", "-q").returncode == 0
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "other"))
    batch = Started(texts, "-o", out, "--jsonl", lines, "--ray-cpus", 1)
    until(lambda: len(list(out.glob("*.md"))) > 1)
    first, _ = batch.workers()
    first.kill()
    until(lambda: len(batch.workers()) == 2)
    code, printed, told = batch.end()
    assert (code, printed) == (0, ""), told
    assert f"{DOCUMENTS} done, 0 skipped, 0 failed" in told
    assert summaries(out) == summaries(alone)
    names = [json.loads(line)["name"] for line in lines.read_text().splitlines()]
    assert sorted(names) == sorted(f"{i}.txt" for i in range(DOCUMENTS))
    again = run("summarize", texts, "-o", out, "--jsonl", lines, "--length", "short", "--json")
    assert counts(again) == (0, DOCUMENTS, 0), "what workers did is not known to be done"


@needs_ray
def test_ctrl_c_ends_the_workers_and_their_cluster(texts, tmp_path):
    batch = Started(texts, "-o", tmp_path / "out", "--ray-cpus", os.cpu_count())
    until(lambda: batch.workers(".summarize"))
    batch.interrupt()
    start = time.monotonic()
    code, printed, told = batch.end()
    assert seconds_since(start) < 10
    assert (code, printed) == (130, "")
    assert told.endswith("localctx: stopped; run it again to continue\n")


@needs_ray
def test_what_is_wrong_on_a_worker_is_told_as_it_is_here(texts, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALCTX_MODEL", str(tmp_path / "none"))
    code, printed, told = Started(texts, "-q", "--ray-cpus", os.cpu_count()).end()
    assert (code, printed, told.count("\n")) == (1, "", 1)
    assert "none" in told.partition(";")[0]


# What cannot be had


def test_where_ray_is_not_installed_it_is_told(run, texts, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert_one_line(run("summarize", texts, "--ray", "-q"), 2, "Ray is not installed", "pip install")


@needs_ray
@pytest.mark.parametrize(
    ("address", "code", "problem", "remedy"),
    [
        ("ray://127.0.0.1:1", 1, "cannot be reached", "check that it runs"),
        ("ray://", 1, "cannot be reached", "check that it runs"),
        ("auto", 1, "cannot be reached", "check that it runs"),
        ("somewhere", 2, "not an address of workers", "ray://HOST"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_told_soon(run, texts, monkeypatch, address, code, problem, remedy):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    start = time.monotonic()
    assert_one_line(run("summarize", texts, "--workers", address, "-q"), code, problem, remedy)
    assert seconds_since(start) < 10


@needs_ray
def test_another_localctx_on_a_worker_is_told(monkeypatch):
    import ray
    from ray.exceptions import RayError

    def dies(version: object) -> str:
        raise RayError("Traceback\nModuleNotFoundError: No module named 'localctx'")

    for get, has in ((lambda version: "0.0.9", "0.0.9"), (dies, "No module")):
        monkeypatch.setattr(ray, "get", get)
        with pytest.raises(UserError, match=f"need localctx.*have.*{has}.*pip install"):
            ray_cluster._check_version(None)


# Shares of a cluster


@pytest.mark.parametrize(
    ("nodes", "settings", "cpus", "count", "needs", "threads"),
    [
        ([{"CPU": 2}], {}, 0, 1, {"num_cpus": 2}, 2),
        ([{"CPU": 2}], {}, 1, 2, {"num_cpus": 1}, 1),
        ([{"CPU": 0}, {"CPU": 9}, {"CPU": 16}], {}, 0, 6, {"num_cpus": 4}, 4),
        ([{"CPU": 9}, {"CPU": 16}], {"threads": 8}, 0, 3, {"num_cpus": 8}, 8),
        ([{"CPU": 64, "GPU": 2}, {"CPU": 8, "GPU": 1}], {}, 0, 3, {"num_gpus": 1, "num_cpus": 1}, 0),
        ([{"CPU": 64, "GPU": 2}], {"device": "cpu"}, 0, 16, {"num_cpus": 4}, 4),
        ([{"CPU": 64, "GPU": 2}], {"device": "cuda:1"}, 5, 2, {"num_gpus": 1, "num_cpus": 5}, 0),
    ],
)
def test_a_worker_is_given_a_gpu_or_some_cores_of_one_machine(nodes, settings, cpus, count, needs, threads):
    alive = [{"Alive": True, "Resources": n} for n in nodes]
    dead = {"Alive": False, "Resources": {"CPU": 99, "GPU": 9}}
    its, workers, given = ray_cluster._worker_share([*alive, dead], Settings(Path("x"), **settings), cpus)
    assert (workers, given, its.threads) == (count, needs, threads)
    assert its.device == ("cuda" if "num_gpus" in needs else "cpu")


@pytest.mark.parametrize(("settings", "cpus", "why"), [({}, 5, "5 cores"), ({"device": "cuda"}, 0, "no GPU")])
def test_what_no_machine_has_is_told(settings, cpus, why):
    with pytest.raises(UserError, match=why):
        ray_cluster._worker_share([{"Alive": True, "Resources": {"CPU": 4.0}}], Settings(Path("x"), **settings), cpus)


# Without Ray


@pytest.mark.parametrize("kind", [DocumentError, TooLong, ChatFull, ModelError, UsageError])
def test_an_error_comes_from_another_process_as_it_was(kind):
    for error in (kind("what", "do"), OutOfKVMemory({"disk": 5}, 7)):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), copy.problem, copy.remedy) == (str(error), error.problem, error.remedy)


class Fake:
    """A cluster of two workers in this process, which ``does`` documents."""

    max_parallel = 4

    def __init__(self, does) -> None:
        self._does, self.stopped, self.at_once, self.most = does, False, 0, 0

    def __enter__(self) -> "Fake":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def cancel(self) -> None:
        self.stopped = True

    def summarize(self, document, task, persist, on_note):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        time.sleep(0.02)
        self.at_once -= 1
        on_note(Note(f"about {document[0].name}"))
        self._does(document[0].name)
        return {"summary": document[0].name, "answers": [], "sections": [], "citations": [], "model": "m", "seconds": 1}


@contextmanager
def spread(home: Path, model: Path, folder: Path, does):
    fake = Fake(does)
    with session(home, model) as s, s.workflows.summaries() as summarizing:
        over = RayGenerator(fake)
        jobs = plan_jobs([str(folder)], bytes, lambda *passed: None)
        yield fake, over.run(Batch(summarizing, SummaryTask(), [], summarize=over.summarize), jobs)


def test_documents_are_given_to_all_workers_and_what_fails_is_one_of_them(home, tiny_model, texts):
    def does(name: str) -> None:
        if name == "3.txt":
            raise TooLong("it does not fit", "ask a shorter part")

    with spread(home, tiny_model, texts, does) as (fake, told):
        got = [what for _, what in told]
    done = {Path(o.job.path).name: o.status for o in got if isinstance(o, Outcome)}
    assert done == {f"{i}.txt": "failed" if i == 3 else "done" for i in range(DOCUMENTS)}
    assert sum(isinstance(one, Note) for one in got) == DOCUMENTS - 1
    assert 1 < fake.most <= fake.max_parallel
    assert not fake.stopped


@pytest.mark.parametrize("given_up", [False, True])
def test_what_is_wrong_with_all_documents_stops_the_workers(home, tiny_model, tmp_path, given_up):
    def does(name: str) -> None:
        if not given_up:
            raise ModelError("there is no such model", "name another")

    texts = write_texts(tmp_path / "texts")
    with spread(home, tiny_model, texts, does) as (fake, told):
        if given_up:
            next(one for _, one in told if isinstance(one, Outcome))
            told.close()
        else:
            with pytest.raises(ModelError):
                list(told)
    assert fake.stopped


def test_an_address_is_checked_before_anything_is_done():
    with pytest.raises(UsageError, match="not an address"):
        RayCluster(Settings(Path("x")), "http://127.0.0.1")
