"""Parsing in a child process with limits, so that a bomb or a crash costs one file and one clear message."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from localctx.errors import Cancelled, DocumentError
from localctx.library.text_builder import Mark

HEARD = 0.2  # seconds within which a wish to stop is heard
_ROOT = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class SandboxLimits:
    """What one parse may take: CPU seconds, for the file and again for each page that is read optically; wall-clock
    seconds without a word; bytes of memory beside the file, and more for what reads optically; characters of text.
    """

    seconds: int = 60
    wall: int = 180
    memory: int = 1 << 30
    optical: int = 2 << 30
    characters: int = 64 << 20


@dataclass(frozen=True)
class Parsed:
    """What a parser made of a file: its format, its text, and where its parts begin."""

    format: str
    text: str
    marks: list[Mark]


def parse(
    what: str,
    data: bytes,
    progress: Callable[[int, int], None],
    limits: SandboxLimits | None = None,
    ocr: str = "auto",
    cancelled: Callable[[], bool] = lambda: False,
) -> Parsed:
    """Parse a ``pdf``, ``zip`` (Word or EPUB) or ``html`` (as UTF-8). ``progress`` hears of pages done, of all.

    Pages of a PDF are read optically if ``ocr`` is ``on``, where they have no text if ``auto``, or not (``off``).
    Raises DocumentError, whose problem lacks the file's name, and Cancelled soon after ``cancelled`` says so. Whatever
    ends it, the child is dead afterwards.
    """
    limits = limits or SandboxLimits()
    with _child(limits.wall, cancelled) as (child, heard):
        _send(child, {"what": what, "ocr": ocr}, data, limits)
        for answer in _answers(child, limits):
            heard()
            if "done" not in answer:
                return _accepted(answer)
            progress(int(answer["done"]), int(answer["total"]))
        code = child.wait()
        raise Cancelled if cancelled() else _death(code, limits)


@contextmanager
def _child(wall: int, cancelled: Callable[[], bool]) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """A fresh interpreter that imports one parser, from where we would: without ``site`` it starts in half the time.

    It has a session of its own: Ctrl-C reaches it through us alone. It is killed when ``cancelled``, and ``wall``
    seconds after its last word: call what comes with it when one is heard.
    """
    start = f"import sys; sys.path[:] = {[_ROOT, *sys.path]!r}; from localctx.library.parse_child import main; main()"
    command, pipe = [sys.executable, "-I", "-S", "-c", start], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True) as child:
        watch = _Watch(wall, child.kill, cancelled)
        watch.start()
        try:
            yield child, watch.heard
        finally:
            watch.ended.set()
            child.kill()
            with suppress(BrokenPipeError):
                _pipes(child)[0].close()


class _Watch(threading.Thread):
    """Kills what was not heard of for ``wall`` seconds, or was ``cancelled``."""

    def __init__(self, wall: int, kill: Callable[[], None], cancelled: Callable[[], bool] = lambda: False) -> None:
        super().__init__(daemon=True)
        self.ended, self._wall, self._cancelled, self._kill = threading.Event(), wall, cancelled, kill
        self.heard()

    def heard(self) -> None:
        self._deadline = time.monotonic() + self._wall

    def run(self) -> None:
        while not self.ended.wait(HEARD):
            if time.monotonic() >= self._deadline or self._cancelled():
                self._kill()
                break


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert child.stdin
    assert child.stdout
    return child.stdin, child.stdout


def _send(child: subprocess.Popen[bytes], request: dict[str, Any], data: bytes, limits: SandboxLimits) -> None:
    request = {**request, "bytes": len(data), **asdict(limits)}
    ours, _ = _pipes(child)
    with suppress(BrokenPipeError):  # it died: what it left to read, and its exit, tell why
        ours.write(json.dumps(request).encode() + b"\n")
        ours.write(data)
        ours.flush()


def _answers(child: subprocess.Popen[bytes], limits: SandboxLimits) -> Iterator[dict[str, Any]]:
    """What the child says, line by line; nothing of what a broken parser might say beyond the limit."""
    most = 4 * limits.characters + (1 << 20)
    while line := _pipes(child)[1].readline(most):
        try:
            yield json.loads(line)
        except ValueError:
            return


def _accepted(answer: dict[str, Any]) -> Parsed:
    """What the child made of the file. Raises DocumentError with what it says instead."""
    if "problem" in answer:
        raise DocumentError(_one_line(answer["problem"]), _one_line(answer["remedy"]))
    return Parsed(answer["format"], answer["text"], [(start, kind, label) for start, kind, label in answer["marks"]])


def _one_line(words: str) -> str:
    """Messages of parsers quote the file: nothing of it may steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in words).split())[:300]


def _death(code: int, limits: SandboxLimits) -> DocumentError:
    """Why the child died without an answer."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):  # of its own clock, or ours
        return DocumentError(f"takes more than {limits.seconds} s to read", "split it into parts, or do not trust it")
    return DocumentError(f"makes its reader crash (exit {code})", "open it elsewhere and save it anew")
