"""Workers of a Ray cluster: one per GPU, or per group of cores, on this machine or others.

Ray restarts a worker that dies, and its document is computed again.
"""

import logging
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

from localctx.engine.coroutine import consume
from localctx.engine.events import Event, Note
from localctx.errors import Cancelled, DocumentError, UsageError, UserError
from localctx.network import refuse_offline
from localctx.session import Session
from localctx.settings import Settings, load_settings
from localctx.store.documents import StoredDocument
from localctx.version import __version__
from localctx.workflows.summary_task import SummaryTask

JOBS_PER_WORKER = 2  # one runs and one waits here, so that a worker's death costs only one document
MAX_TRIES = 3  # per document, if its worker dies
DEFAULT_CORES = 4  # of a worker
CONNECT_TIMEOUT, START_TIMEOUT = 10, 120  # seconds to reach a cluster, and until its workers have started
OBJECT_STORE_BYTES = 200 << 20  # RAM of this machine that passes texts to its workers

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",  # otherwise Ray reports workers that died on stdout
}
_LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # it listens on the loopback only,
    "RAY_AUTH_MODE": "token",  # and needs a token: a process that can connect to Ray can run any code
    "RAY_worker_niceness": "0",
}


class RayWorker:
    """A process of the cluster with its own Session. Its model is loaded for the first document."""

    def __init__(self, settings: Settings, home: Path | None) -> None:
        self._session = Session(replace(settings, home=home or load_settings().home))

    def version(self) -> str:
        """Return the worker's localctx version."""
        return __version__

    def summarize(
        self, document: StoredDocument, task: SummaryTask, persist: bool
    ) -> tuple[dict[str, Any], list[Note]]:
        """Do ``task`` for a document. Returns the result of ``SummarizeWorkflow.summarize``, and notes for the user."""
        events = list[Event]()
        with self._session.workflows.summaries() as summarizing:
            result = consume(self._session.run(summarizing.summarize(document, task, persist)), events.append)
        return result, [event for event in events if isinstance(event, Note)]


class RayCluster:
    """A context manager that starts up to ``max_workers`` workers on a Ray cluster.

    ``address`` is ``local`` (a cluster started here for the duration of the context), ``auto`` (the cluster this
    machine belongs to), or ``ray://host:10001``. A worker gets a GPU if the cluster has any, else ``cpus`` cores, or
    ``settings.threads``. ``home`` is the data folder of all workers, or None if each has its own. Raises UsageError for
    another address, and UserError if the cluster or its workers cannot be reached.
    """

    def __init__(
        self,
        settings: Settings,
        address: str = "local",
        cpus: int = 0,
        home: Path | None = None,
        max_workers: int = 1 << 20,
    ) -> None:
        if address not in ("local", "auto") and not address.startswith("ray://"):
            raise UsageError(f"{address} is not an address of workers", "use local, auto or ray://HOST:10001")
        self._settings, self._address, self._cpus, self._max_workers = settings, address, cpus, max_workers
        self._home = settings.home if address == "local" else home
        self._workers, self._idle = list[Any](), Queue[Any]()
        self._stopped = False
        self._resources = ExitStack()

    def __enter__(self) -> "RayCluster":
        with ExitStack() as resources:
            _connect(self._address, resources)
            resources.callback(self.cancel)
            self._start()
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._resources.close()

    @property
    def max_parallel(self) -> int:
        """The number of threads that can usefully call ``summarize`` at the same time."""
        return JOBS_PER_WORKER * len(self._workers)

    def cancel(self) -> None:
        """Kill the workers. Any thread may call this method. From then on, ``summarize`` raises Cancelled."""
        import ray

        self._stopped = True
        for worker in self._workers:
            with suppress(Exception):  # the cluster may have ended
                ray.kill(worker)

    def summarize(
        self,
        document: StoredDocument,
        task: SummaryTask,
        persist: bool = False,
        on_note: Callable[[Event], None] = lambda event: None,
    ) -> dict[str, Any]:
        """Do ``task`` for a document with the next idle worker, and wait for the result. Any thread may call this
        method. ``on_note`` is called with each note for the user.

        Returns and raises the same as ``SummarizeWorkflow.summarize``. Also raises DocumentError if each worker that
        computed the document died, Cancelled, and UserError if Ray fails.
        """
        import ray
        from ray.exceptions import RayActorError, RayError, RayTaskError

        worker = self._idle.get()
        try:
            if self._stopped:  # Ray would restart the worker
                raise Cancelled
            result, notes = ray.get(worker.summarize.remote(document, task, persist))
        except RayTaskError as e:
            raise e.cause from e
        except (RayError, ConnectionError) as e:
            if self._stopped:
                raise Cancelled from e
            if isinstance(e, RayActorError):
                problem = f"{document[0].name}: its worker died {MAX_TRIES} times"
                raise DocumentError(problem, "check whether workers have enough memory, and run this again") from e
            raise UserError(f"Ray failed ({_first_line(e)})", "run this again to continue") from e
        finally:
            self._idle.put(worker)
        for note in notes:
            on_note(note)
        return result

    def _start(self) -> None:
        """Start as many workers as the cluster has room for."""
        import ray

        settings, count, resources = _worker_share(ray.nodes(), self._settings, self._cpus)
        start = ray.remote(max_restarts=-1, max_task_retries=MAX_TRIES - 1, **resources)(RayWorker).remote
        self._workers = [start(settings, self._home) for _ in range(min(count, self._max_workers))]
        by_version = {w.version.remote(): w for w in self._workers}
        started, missing = ray.wait(list(by_version), num_returns=len(by_version), timeout=START_TIMEOUT)
        if not started:
            problem = f"no worker started within {START_TIMEOUT} s"
            raise UserError(problem, "wait until the cluster has room, or lower --ray-cpus")
        for version in missing:
            ray.kill(by_version[version])
        for version in started:
            _check_version(version)
        self._workers = [by_version[version] for version in started]
        for worker in self._workers:
            self._idle.put(worker)


def _connect(address: str, resources: ExitStack) -> None:
    """Connect to the cluster, or start one. Closing ``resources`` ends the connection, and a cluster that was
    started.
    """
    refuse_offline("Ray connects to other machines", "leave out --workers, or --offline")
    os.environ |= _QUIET
    local = dict[str, Any]()
    if address == "local":
        short = None if sys.platform == "win32" else "/tmp"  # the folder has sockets, whose paths must be short
        folder = tempfile.mkdtemp(prefix="localctx-", dir=short)
        resources.callback(shutil.rmtree, folder, ignore_errors=True)
        os.environ |= {**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # read when ray is imported
        local = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES, "_temp_dir": folder}
    elif address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address
    try:
        import ray
    except ImportError as e:
        raise UsageError("Ray is not installed", "pip install 'localctx[ray]'") from e
    try:
        _check_reachable(address)
        resources.callback(ray.shutdown)
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **local)
    except (OSError, RuntimeError, ValueError) as e:
        remedy = "check that it runs there, with the same versions of Python and Ray"
        raise UserError(f"the workers of {address} cannot be reached ({_first_line(e)})", remedy) from e


def _check_reachable(address: str) -> None:
    """Raise OSError if the cluster does not answer: Ray would retry for minutes."""
    if address not in ("local", "auto"):
        url = urlsplit(address if "//" in address else f"//{address}")
        socket.create_connection((url.hostname or "", url.port or 10001), CONNECT_TIMEOUT).close()


def _worker_share(nodes: list[dict[str, Any]], s: Settings, cpus: int) -> tuple[Settings, int, dict[str, Any]]:
    """Return a worker's settings, the number of workers that fit on the machines, and the Ray resources of each
    worker.
    """
    resources = [n["Resources"] for n in nodes if n["Alive"]]
    gpus = sum(int(h.get("GPU", 0)) for h in resources)
    if s.device.startswith("cuda") or (s.device == "auto" and gpus):
        if not gpus:
            raise UserError("the cluster has no GPU", "leave out --device")
        return replace(s, device="cuda"), gpus, {"num_gpus": 1, "num_cpus": cpus or 1}
    cores = [int(h.get("CPU", 0)) for h in resources]
    each = cpus or s.threads or min(DEFAULT_CORES, max(cores))
    count = sum(n // each for n in cores) if each else 0
    if not count:
        raise UserError(f"no machine has {each or 1} cores for a worker", "lower --ray-cpus, or --threads")
    return replace(s, device="cpu", threads=each), count, {"num_cpus": each}


def _check_version(version: Any) -> None:
    """Raise UserError if a worker has another version of localctx, or none."""
    import ray
    from ray.exceptions import RayError

    try:
        has = ray.get(version)
    except RayError as e:
        has = f"none that works: {_last_line(e)}"
    if has != __version__:
        remedy = f"pip install 'localctx[ray]=={__version__}' there, for the same Python"
        raise UserError(f"the workers need localctx {__version__}, and have {has}", remedy)


def _first_line(e: Exception) -> str:
    return str(e).partition("\n")[0].partition(". ")[0] or type(e).__name__


def _last_line(e: Exception) -> str:
    return ([type(e).__name__, *filter(None, str(e).splitlines())])[-1].strip()
