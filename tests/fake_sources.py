"""Stand-ins for where models come from: a wheel in a folder for pip, and a hub on this machine."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def silent(phase: str, done: int, total: int) -> None:
    """Progress that nobody looks at."""


def stop_at(phase: str, enough: int = 0) -> Callable[[str, int, int], None]:
    """Progress during which the user presses Ctrl-C, once ``phase`` has done ``enough``."""

    def progress(now: str, done: int, total: int) -> None:
        if now == phase and done >= enough:
            raise KeyboardInterrupt

    return progress


def write_wheel(folder: Path, member: bytes) -> Path:
    """The wheel of ``llm-tiny`` 1.0 with ``llm_tiny/tiny.gguf`` in it, as pip takes it from ``--find-links folder``."""
    info = "llm_tiny-1.0.dist-info"
    path = folder / "llm_tiny-1.0-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("llm_tiny/tiny.gguf", member)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-tiny\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Hub(ThreadingHTTPServer):
    """Serves the files of one model, ``org/tiny``; ``org/gated`` wants a licence accepted first.

    ``asked`` has the name of each file that was asked for. While ``go`` is not set, it stops in the middle of each
    safetensors file.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files, self.go = files, Event()
        self.asked: list[str] = []
        self.go.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is what the tests are about."""


@contextmanager
def running_hub(files: dict[str, bytes]) -> Iterator[Hub]:
    server = Hub(files)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.go.set()
        server.shutdown()
        server.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        path, files = self.path.split("?")[0], self.server.files
        sizes = {name: len(content) for name, content in files.items()}
        if path.startswith("/api/models/org/tiny/tree/"):
            self._send(json.dumps([{"type": "file", "path": n, "size": s, "oid": "0" * 40} for n, s in sizes.items()]))
        elif path.startswith("/api/models/org/tiny/"):
            siblings = [{"rfilename": n, "size": s, "blobId": "0" * 40} for n, s in sizes.items()]
            self._send(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings, "private": False}))
        elif (name := path.removeprefix(f"/org/tiny/resolve/{COMMIT}/")) in files:
            self._send_file(name)
        elif path.startswith("/api/models/org/gated/"):
            self._head(403, 0, {"X-Error-Code": "GatedRepo"})
        else:
            self._head(404, 0, {"X-Error-Code": "RepoNotFound"})

    do_GET = do_HEAD

    def _send(self, said: str) -> None:
        self._head(200, len(said), {"Content-Type": "application/json"})
        self.wfile.write(said.encode())

    def _send_file(self, name: str) -> None:
        content = self.server.files[name]
        tag = f'"{hashlib.sha256(content).hexdigest()}"'
        self._head(200, len(content), {"ETag": tag, "X-Repo-Commit": COMMIT})
        if self.command == "GET":
            self.server.asked.append(name)
            self._send_slowly(content) if name.endswith("safetensors") else self.wfile.write(content)

    def _send_slowly(self, content: bytes) -> None:
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        self.server.go.wait(30)
        self.wfile.write(content[len(content) // 2 :])

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
