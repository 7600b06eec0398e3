"""``--server``: what ``summarize`` does with a server that has the model."""

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import MACHINE, plain
from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.batch.jobs import DocumentJob
    from localctx.batch.remote_generator import Find
    from localctx.batch.remote_server import RemoteServer
    from localctx.batch.run_batch import Batch, Outcome
    from localctx.engine.events import Event
    from localctx.library.search import Passage, SearchResult
    from localctx.session import Session
    from localctx.settings import Settings
    from localctx.store.documents import StoredDocument
    from localctx.workflows.summarize import SummarizeWorkflow

TOGETHER = 8  # documents a server is asked about at a time
HERE_ONLY = (*MACHINE, "kv", "keep", "beams", "blend", "keep_pages", "workers")  # flags about the model here
Told = Generator[tuple["DocumentJob", "Event | Outcome"], None, None]


def server_options(command: Callable) -> Callable:
    """The flags that send the model's work to a server."""
    for option in (
        click.option(
            "--together",
            type=click.IntRange(1, 256),
            metavar="N",
            help="Most documents at a time (as memory holds; 8 with --server).",
        ),
        click.option("--server-model", metavar="NAME", help="Which of that server's models (the only one)."),
        click.option(
            "--server",
            metavar="URL",
            help="Let an OpenAI-compatible server do the model's work. Its key: LOCALCTX_SERVER_KEY.",
        ),
    ):
        command = option(command)
    return command


def refuse_flags_elsewhere(flags: dict[str, Any]) -> None:
    """Raises UsageError for flags that mean nothing to a server."""
    if said := [name for name in HERE_ONLY if flags.get(name) is not None]:
        flag = f"--{said[0].replace('_', '-')}"
        raise UsageError(f"{flag} is about the model here, and --server asks another", "leave one of them out")


def find_there(url: str | None, model: str | None, together: int | None) -> "RemoteBatch | None":
    """The server at ``url``, if one is named. Raises UsageError."""
    if not url and model:
        raise UsageError("--server-model is one of a server's", "say which with --server")
    if url is None:
        return None
    from localctx.batch.remote_server import KEY, RemoteServer, ServerAddress

    return RemoteBatch(
        RemoteServer(ServerAddress.parse(url), os.environ.get(KEY, "").strip()), model, together or TOGETHER
    )


@dataclass(frozen=True)
class _Worker:
    work: "Callable[[DocumentJob], Generator[Event, None, Outcome]]"
    cancel: Callable[[], object]


class RemoteBatch:
    """A server that is asked about so many documents ``together``, by its ``model``, or the only one."""

    def __init__(self, server: "RemoteServer", model: str | None, together: int) -> None:
        self._server, self._model, self._together = server, model, together
        self._stop = threading.Event()

    def work_off(
        self, settings: "Settings", jobs: "list[DocumentJob]", open_batch: "Callable[[SummarizeWorkflow, Any], Batch]"
    ) -> Told:
        """What is told of the jobs, and what becomes of each. Raises UserError, Cancelled."""
        from localctx.batch.remote_generator import settings_elsewhere
        from localctx.batch.worker_threads import run_in_threads
        from localctx.cli.terminal import stopping
        from localctx.session import Session

        self._say_where()
        with stopping(self._cancel):
            yield from ((jobs[0], event) for event in self._find(settings))
            settings = settings_elsewhere(settings, self._server.model)
            lock = threading.Lock()
            with Session(settings) as searching, searching.workflows.library() as shelving:
                find = _one_by_one(searching, shelving.search)
                worker = lambda: self._worker(settings, find, lambda s: open_batch(s, lock))  # noqa: E731
                yield from run_in_threads(worker, jobs, min(self._together, len(jobs)), self._stop)

    def _cancel(self) -> bool:
        heard = not self._stop.is_set()
        self._stop.set()
        return heard

    def _find(self, settings: "Settings") -> "Iterator[Event]":
        from localctx.batch.server_client import ServerClient

        with self._server.wire(self._stop.is_set) as wire:
            yield from ServerClient(self._server, wire, settings).find(self._model)

    @contextmanager
    def _worker(
        self, settings: "Settings", find: "Find", open_batch: "Callable[[SummarizeWorkflow], Batch]"
    ) -> "Iterator[_Worker]":
        """Who reads documents and asks the server about them, in a thread of its own."""
        from localctx.batch.remote_generator import RemoteGenerator
        from localctx.batch.server_client import ServerClient
        from localctx.session import Session

        with Session(settings) as session, self._server.wire(self._stop.is_set) as wire:
            caller = ServerClient(self._server, wire, settings)
            with session.workflows.summaries(lambda held: RemoteGenerator(caller, settings, held, find)) as summarizing:
                batch = open_batch(summarizing)
                yield _Worker(lambda job: session.run(batch.work(job)), session.cancel)

    def _say_where(self) -> None:
        address = self._server.address
        if not address.near:
            how = "" if address.secret else ", unencrypted"
            print(plain(f"localctx: the documents are sent to {address.host}{how}"), file=sys.stderr)


def _one_by_one(session: "Session", search: "Callable[..., tuple[SearchResult, str | None]]") -> "Find":
    """Searching a document for several threads: one encoder of words is enough."""
    from localctx.store.store import store_errors

    turn = threading.Lock()

    def find(held: "StoredDocument", question: str, top: int) -> "tuple[list[Passage], str | None]":
        with turn:
            with store_errors(session.settings.home):
                session.store.documents.add(*held)
            found, doubt = search(question, [held[0].id], top)
            return found.passages, doubt

    return find
