"""A server in this process at which commands ask, registered in its data folder."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ask_in_process import session

KEY = "the key of this run"
REPORT = {"seconds", "memory", "answered_by"}
"""The fields of a report that two answers to one question do not share."""


@dataclass
class RunningServer:
    """Where a server is, its data folder, its endpoint, its worker, and the settings that it has."""

    port: int
    home: Path
    endpoint: Any
    worker: Any
    settings: Any
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def ask_server(home: Path, model: Path, **settings) -> Iterator[RunningServer]:
    """A server of ``model`` that runs in threads of this process, without the OpenAI API."""
    import uvicorn

    from localctx.serving.ask_endpoint import AskEndpoint
    from localctx.serving.http import listen
    from localctx.serving.open_servers import registered
    from localctx.serving.worker import EngineWorker

    sock, stopping = listen("127.0.0.1", 0), threading.Event()
    with session(home, model, **settings) as s:
        worker = EngineWorker(s.settings, "asked", 4)
        endpoint = AskEndpoint(_nothing, worker, lambda: s.settings, KEY, stopping)
        server = uvicorn.Server(uvicorn.Config(endpoint, log_level="warning", ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        port = sock.getsockname()[1]
        while not server.started:
            threading.Event().wait(0.01)
        with registered(home, "127.0.0.1", port, KEY):
            yield RunningServer(port, home, endpoint, worker, s.settings, stopping)
        stopping.set()
        server.should_exit = True
        thread.join()
        with suppress(RuntimeError):
            worker.close()


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what differs between two answers to one question, and without where pages lie."""
    kept = {name: value for name, value in report.items() if name not in REPORT}
    return {**kept, "kv": {name: report["kv"][name] for name in ("codec", "keeper", "window", "chunk", "engine")}}


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"another application"})
