"""``summarize --server``: a batch whose text a server generates."""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import MACHINE_FLAGS
from localctx.cli.printing import print_error, printable_line
from localctx.cli.sections import option
from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.batch.jobs import DocumentJob
    from localctx.batch.remote_generator import FindPassages
    from localctx.batch.remote_server import RemoteServer
    from localctx.batch.run_batch import Batch, JobEvents, Outcome
    from localctx.engine.events import Event
    from localctx.library.search.search import Passage, SearchResult
    from localctx.session import Session
    from localctx.settings import Settings
    from localctx.store.documents import StoredDocument
    from localctx.workflows.summarize.summarize import SummarizeWorkflow

MAX_PARALLEL = 8  # documents sent to a server at a time
LOCAL_FLAGS = (
    *MACHINE_FLAGS,
    "kv",
    "keep",
    "beams",
    "blend",
    "keep_pages",
    "workers",
)  # these concern only the local model


def server_options(command: Callable) -> Callable:
    """Add the flags of a batch whose text a server generates."""
    for add in (
        option(
            "--together",
            type=click.IntRange(1, 256),
            metavar="N",
            help="Most documents at a time (8 with --server).",
            section="Other machines",
        ),
        option(
            "--server-model", metavar="NAME", help="The server's model, if it has several.", section="Other machines"
        ),
        option(
            "--server",
            metavar="URL",
            help="OpenAI-compatible server; key: LOCALCTX_SERVER_KEY.",
            section="Other machines",
        ),
    ):
        command = add(command)
    return command


def refuse_local_flags(flags: dict[str, Any]) -> None:
    """Raise UsageError for flags that have no effect on a server."""
    if given := [name for name in LOCAL_FLAGS if flags.get(name) is not None]:
        flag = f"--{given[0].replace('_', '-')}"
        raise UsageError(f"{flag} is about the local model, which --server does not use", "leave one of them out")


def remote_batch(url: str | None, model: str | None, max_parallel: int | None) -> "RemoteBatch | None":
    """Return a batch for the server at ``url``, or None without one. Raises UsageError."""
    if not url and model:
        raise UsageError("--server-model names a model of a server", "give its address with --server")
    if url is None:
        return None
    from localctx.batch.remote_server import KEY, RemoteServer, ServerAddress

    server = RemoteServer(ServerAddress.parse(url), os.environ.get(KEY, "").strip())
    return RemoteBatch(server, model, max_parallel or MAX_PARALLEL)


@dataclass(frozen=True)
class _ServerWorker:
    """A ``BatchWorker``."""

    run: "Callable[[DocumentJob], Generator[Event, None, Outcome]]"
    cancel: Callable[[], object]


class RemoteBatch:
    """Runs a batch with ``model`` of a server (None: its only one), up to ``max_parallel`` documents at a time."""

    def __init__(self, server: "RemoteServer", model: str | None, max_parallel: int) -> None:
        self._server, self._model, self._max_parallel = server, model, max_parallel
        self._stop = threading.Event()

    def run(
        self, settings: "Settings", jobs: "list[DocumentJob]", open_batch: "Callable[[SummarizeWorkflow, Any], Batch]"
    ) -> "JobEvents":
        """Run ``jobs``. Yields their events and outcomes. Raises UserError, Cancelled."""
        from localctx.batch.remote_generator import remote_settings
        from localctx.batch.worker_threads import run_in_threads
        from localctx.cli.terminal import cancel_on_interrupt
        from localctx.session import Session

        self._warn_if_remote()
        with cancel_on_interrupt(self._cancel):
            yield from ((jobs[0], event) for event in self._choose_model(settings))
            settings = remote_settings(settings, self._server.model)
            lock = threading.Lock()
            with Session(settings) as session, session.workflows.library() as workflow:
                find = _locked_search(session, workflow.search)
                worker = lambda: self._worker(settings, find, lambda s: open_batch(s, lock))  # noqa: E731
                yield from run_in_threads(worker, jobs, min(self._max_parallel, len(jobs)), self._stop)

    def _cancel(self) -> bool:
        was_running = not self._stop.is_set()
        self._stop.set()
        return was_running

    def _choose_model(self, settings: "Settings") -> "Iterator[Event]":
        from localctx.batch.server_client import ServerClient

        with self._server.connect(self._stop.is_set) as connection:
            yield from ServerClient(self._server, connection, settings).choose_model(self._model)

    @contextmanager
    def _worker(
        self, settings: "Settings", find: "FindPassages", open_batch: "Callable[[SummarizeWorkflow], Batch]"
    ) -> "Iterator[_ServerWorker]":
        """Open a session and a connection for one thread."""
        from localctx.batch.remote_generator import RemoteGenerator
        from localctx.batch.server_client import ServerClient
        from localctx.session import Session

        with Session(settings) as session, self._server.connect(self._stop.is_set) as connection:
            client = ServerClient(self._server, connection, settings)
            with session.workflows.summaries(
                lambda document: RemoteGenerator(client, settings, document, find)
            ) as summarizing:
                batch = open_batch(summarizing)
                yield _ServerWorker(lambda job: session.run(batch.run(job)), session.cancel)

    def _warn_if_remote(self) -> None:
        address = self._server.address
        address.refuse_offline()
        if not address.is_local:
            how = "" if address.encrypted else ", unencrypted"
            print_error(printable_line(f"localctx: the documents are sent to {address.host}{how}"))


def _locked_search(session: "Session", search: "Callable[..., tuple[SearchResult, str | None]]") -> "FindPassages":
    """Return a search in one document for several threads. They share one embedder, which one
    thread at a time may use.
    """
    from localctx.store.store import store_errors

    lock = threading.Lock()

    def find(document: "StoredDocument", question: str, top: int) -> "tuple[list[Passage], str | None]":
        with lock:
            with store_errors(session.settings.home):
                session.store.documents.add(*document)
            result, warning = search(question, [document[0].id], top)
            return result.passages, warning

    return find
