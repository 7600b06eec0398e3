"""Documents computed by workers on Ray: on each GPU, or on some cores, of this machine or of a cluster.

Files, results and the store stay with whom the batch is of. A worker that dies is started again, and does its documents
again.
"""

import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

from localctx.batch.jobs import DocumentJob
from localctx.batch.run_batch import Batch, Outcome
from localctx.engine.coroutine import CoroutineRunner, consume
from localctx.engine.events import Event, Note, Progress
from localctx.errors import Cancelled, DocumentError, UsageError, UserError
from localctx.session import Session
from localctx.settings import Settings, load_settings
from localctx.store.documents import StoredDocument
from localctx.version import __version__
from localctx.workflows.summary_task import SummaryTask

AT_ONCE = 2  # documents for each worker: it has one, and the next lies ready here, lest it die with the first
TRIES = 3  # of a document whose worker dies
CORES = 4  # of a worker, where nobody says how many
REACH, START = 10, 120  # seconds for a cluster to be reached, and for its workers to be there
STORE = 200 << 20  # bytes of RAM of this machine through which texts pass to its workers

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # what it says of workers that died would be on stdout
}
_LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # it listens on the loopback alone,
    "RAY_AUTH_MODE": "token",  # and there only to us: who reaches Ray can run anything
    "RAY_worker_niceness": "0",
}

Hear = Callable[[Event], None]
Told = Generator[tuple[DocumentJob | None, Event | Outcome], None, None]


class RayWorker:
    """A process of the cluster that has a Session, whose model is loaded for the first document."""

    def __init__(self, settings: Settings, home: Path | None) -> None:
        self._session = Session(replace(settings, home=home or load_settings().home))

    def version(self) -> str:
        """Of localctx, as it has it."""
        return __version__

    def of(self, held: StoredDocument, task: SummaryTask, keep: bool) -> tuple[dict[str, Any], list[Note]]:
        """What ``Summarizing.of`` gives, and the notes on the way."""
        heard = list[Event]()
        with self._session.workflows.summaries() as summarizing:
            result = consume(self._session.run(summarizing.summarize(held, task, keep)), heard.append)
        return result, [event for event in heard if isinstance(event, Note)]


class RayCluster:
    """At most ``most`` workers at an ``address``: ``local`` (started here, gone at the end), ``auto`` (the cluster this
    machine is of), ``ray://host:10001``. A context manager.

    A worker has a GPU where there are any, else ``cpus`` cores, or ``settings.threads``. ``home`` is the data folder of
    all workers; None: each its own. Raises UsageError, and UserError where the cluster or its workers cannot be had.
    """

    def __init__(
        self, settings: Settings, address: str = "local", cpus: int = 0, home: Path | None = None, most: int = 1 << 20
    ) -> None:
        if address not in ("local", "auto") and not address.startswith("ray://"):
            raise UsageError(f"{address} is no address of workers", "use local, auto or ray://HOST:10001")
        self._settings, self._address, self._cpus, self._most = settings, address, cpus, most
        self._home = settings.home if address == "local" else home
        self._workers, self._idle = list[Any](), Queue[Any]()
        self._stopped = False
        self._held = ExitStack()

    def __enter__(self) -> "RayCluster":
        with ExitStack() as held:
            _connect(self._address, held)
            held.callback(self.cancel)
            self._start()
            self._held = held.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    @property
    def seats(self) -> int:
        """How many threads may call ``of`` with use."""
        return AT_ONCE * len(self._workers)

    def cancel(self) -> None:
        """End the workers, from any thread; ``of`` then raises Cancelled."""
        import ray

        self._stopped = True
        for worker in self._workers:
            with suppress(Exception):  # the cluster may have gone
                ray.kill(worker)

    def of(
        self, held: StoredDocument, task: SummaryTask, keep: bool = False, hear: Hear = lambda event: None
    ) -> dict[str, Any]:
        """What ``Summarizing.of`` gives, from the next worker that is idle; from any thread, which waits.

        ``hear`` is told notes. Raises what ``Summarizing.of`` raises, DocumentError where workers die of the document,
        Cancelled, UserError where Ray fails.
        """
        import ray
        from ray.exceptions import RayActorError, RayError, RayTaskError

        worker = self._idle.get()
        try:
            if self._stopped:  # Ray would start anew
                raise Cancelled
            result, notes = ray.get(worker.of.remote(held, task, keep))
        except RayTaskError as e:
            raise e.cause from e
        except (RayError, ConnectionError) as e:
            if self._stopped:
                raise Cancelled from e
            if isinstance(e, RayActorError):
                problem = f"{held[0].name}: the worker that had it died {TRIES} times"
                raise DocumentError(problem, "see whether it has too little memory, and run this again") from e
            raise UserError(f"Ray failed ({_first(e)})", "run this again to go on") from e
        finally:
            self._idle.put(worker)
        for note in notes:
            hear(note)
        return result

    def _start(self) -> None:
        """Start the workers that have a place now."""
        import ray

        settings, count, needs = _share(ray.nodes(), self._settings, self._cpus)
        start = ray.remote(max_restarts=-1, max_task_retries=TRIES - 1, **needs)(RayWorker).remote
        self._workers = [start(settings, self._home) for _ in range(min(count, self._most))]
        called = {w.version.remote(): w for w in self._workers}
        there, missing = ray.wait(list(called), num_returns=len(called), timeout=START)
        if not there:
            raise UserError(f"no worker began in {START} s", "wait until the cluster has room, or lower --ray-cpus")
        for one in missing:
            ray.kill(called[one])
        for one in there:
            _meet(one)
        self._workers = [called[one] for one in there]
        for worker in self._workers:
            self._idle.put(worker)


class RayGenerator:
    """Does the jobs of a batch on a cluster, as many at once as it takes. Files are read, and results written, in the
    thread that asks for outcomes.
    """

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._waiting = dict[Future[Any], tuple[DocumentJob, CoroutineRunner[Outcome]]]()
        self._left = deque[DocumentJob]()
        self._later = list[DocumentJob]()

    def of(self, held: StoredDocument, task: SummaryTask, keep: bool) -> Generator[Any, Any, dict[str, Any]]:
        """``Summarizing.of`` of the cluster, as steps: what is waited for, and notes."""
        notes = list[Event]()
        result: dict[str, Any] = yield self._pool.submit(self._cluster.of, held, task, keep, notes.append)
        yield from notes
        return result

    def run(self, batch: Batch, jobs: Iterable[DocumentJob]) -> Told:
        """Do ``jobs`` of a batch that was given ``of``: what is told of each on the way, and what became of it.

        Raises what ``RayCluster`` and ``Batch.work`` raise.
        """
        yield None, Progress("workers", 0, 1)
        self._left.extend(jobs)
        with self._cluster, ThreadPoolExecutor(self._cluster.seats) as self._pool:
            there = self._cluster.seats // AT_ONCE
            yield None, Progress("workers", there, there)
            try:
                while self._left or self._waiting:
                    while self._left and len(self._waiting) < self._cluster.seats:
                        yield from self._begin(batch, self._left.popleft())
                    yield from self._next()
            except BaseException:
                self._cluster.cancel()
                raise

    def _begin(self, batch: Batch, job: DocumentJob) -> Told:
        running = CoroutineRunner(batch.work(job))
        running.resume()
        return self._on(job, running)

    def _next(self) -> Told:
        """On with those whose result is there, or the next to come."""
        for future in wait(self._waiting, return_when=FIRST_COMPLETED).done:
            job, running = self._waiting.pop(future)
            try:
                result = future.result()
            except Exception as e:
                running.fail(e)
            else:
                running.resume(result)
            yield from self._on(job, running)

    def _on(self, job: DocumentJob, running: CoroutineRunner[Outcome]) -> Told:
        while not running.ended:
            got: Any = running.yielded
            if isinstance(got, Future):
                self._waiting[got] = job, running
                return
            yield job, got
            running.resume()
        if running.result.again and self._waiting:
            self._later.append(job)
            return
        yield job, running.result
        self._left.extend(self._later)
        self._later.clear()


def _connect(address: str, held: ExitStack) -> None:
    """Reach the cluster, or start one, until ``held`` is closed."""
    os.environ |= _QUIET
    local = dict[str, Any]()
    if address == "local":
        folder = tempfile.mkdtemp(prefix="localctx-", dir="/tmp")  # sockets lie in it: their names must be short
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        os.environ |= {**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # read when ray is imported
        local = {"include_dashboard": False, "object_store_memory": STORE, "_temp_dir": folder}
    elif address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    try:
        import ray
    except ImportError as e:
        raise UsageError("Ray is not installed", "pip install 'localctx[ray]'") from e
    try:
        _probe(address)
        held.callback(ray.shutdown)
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **local)
    except (OSError, RuntimeError, ValueError) as e:
        remedy = "see that it runs there, with this version of Python and Ray"
        raise UserError(f"the workers of {address} cannot be reached ({_first(e)})", remedy) from e


def _probe(address: str) -> None:
    """Raises OSError for a cluster that does not answer: Ray would go on trying for minutes."""
    if address not in ("local", "auto"):
        where = urlsplit(address if "//" in address else f"//{address}")
        socket.create_connection((where.hostname or "", where.port or 10001), REACH).close()


def _share(nodes: list[dict[str, Any]], s: Settings, cpus: int) -> tuple[Settings, int, dict[str, Any]]:
    """Settings of a worker, how many of them the machines have room for, and what each is given of Ray's resources."""
    have = [n["Resources"] for n in nodes if n["Alive"]]
    gpus = sum(int(h.get("GPU", 0)) for h in have)
    if s.device.startswith("cuda") or (s.device == "auto" and gpus):
        if not gpus:
            raise UserError("the cluster has no GPU", "leave out --device")
        return replace(s, device="cuda"), gpus, {"num_gpus": 1, "num_cpus": cpus or 1}
    cores = [int(h.get("CPU", 0)) for h in have]
    each = cpus or s.threads or min(CORES, max(cores))
    count = sum(n // each for n in cores) if each else 0
    if not count:
        raise UserError(f"no machine has {each or 1} cores for a worker", "lower --ray-cpus, or --threads")
    return replace(s, device="cpu", threads=each), count, {"num_cpus": each}


def _meet(version: Any) -> None:
    """Raises UserError where a worker has no localctx, or another."""
    import ray
    from ray.exceptions import RayError

    try:
        has = ray.get(version)
    except RayError as e:
        has = f"none that works: {_last(e)}"
    if has != __version__:
        remedy = f"pip install 'localctx[ray]=={__version__}' there, for the same Python"
        raise UserError(f"the workers need localctx {__version__}, and have {has}", remedy)


def _first(e: Exception) -> str:
    return str(e).partition("\n")[0].partition(". ")[0] or type(e).__name__


def _last(e: Exception) -> str:
    return ([type(e).__name__, *filter(None, str(e).splitlines())])[-1].strip()
