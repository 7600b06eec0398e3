"""Parsing in a child process with limits, so that a bomb or a crash costs one file and one clear message."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from localctx.errors import DocumentError
from localctx.library.flow import Mark

_ROOT = str(Path(__file__).parents[2])


@dataclass(frozen=True)
class Limits:
    """What one parse may take: CPU and wall-clock seconds, bytes of memory beside the file, characters of text."""

    seconds: int = 60
    wall: int = 180
    memory: int = 1 << 30
    characters: int = 64 << 20


@dataclass(frozen=True)
class Parsed:
    """What a parser made of a file: its format, its text, and where its parts begin."""

    format: str
    text: str
    marks: list[Mark]


def parse(what: str, data: bytes, progress: Callable[[int, int], None], limits: Limits | None = None) -> Parsed:
    """Parse a ``pdf``, ``zip`` (Word or EPUB) or ``html`` (as UTF-8). ``progress`` hears of pages done, of all.

    Raises DocumentError, whose problem lacks the file's name. Whatever ends it, the child is dead afterwards.
    """
    limits = limits or Limits()
    with _child(limits.wall) as child:
        _send(child, what, data, limits)
        for answer in _answers(child, limits):
            if "done" not in answer:
                return _accepted(answer)
            progress(int(answer["done"]), int(answer["total"]))
        raise _death(child.wait(), limits)


@contextmanager
def _child(wall: int) -> Iterator[subprocess.Popen[bytes]]:
    """A fresh interpreter that imports one parser, from where we would: without ``site`` it starts in half the time.

    It has a session of its own: Ctrl-C reaches it through us alone.
    """
    start = f"import sys; sys.path[:] = {[_ROOT, *sys.path]!r}; from localctx.library.child import main; main()"
    command, pipe = [sys.executable, "-I", "-S", "-c", start], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True) as child:
        clock = threading.Timer(wall, child.kill)
        clock.daemon = True
        clock.start()
        try:
            yield child
        finally:
            clock.cancel()
            child.kill()
            with suppress(BrokenPipeError):
                _pipes(child)[0].close()


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert child.stdin
    assert child.stdout
    return child.stdin, child.stdout


def _send(child: subprocess.Popen[bytes], what: str, data: bytes, limits: Limits) -> None:
    request = {"what": what, "bytes": len(data), "seconds": limits.seconds, "memory": limits.memory}
    ours, _ = _pipes(child)
    with suppress(BrokenPipeError):  # it died: what it left to read, and its exit, tell why
        ours.write(json.dumps(request | {"characters": limits.characters}).encode() + b"\n")
        ours.write(data)
        ours.flush()


def _answers(child: subprocess.Popen[bytes], limits: Limits) -> Iterator[dict[str, Any]]:
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


def _death(code: int, limits: Limits) -> DocumentError:
    """Why the child died without an answer."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):  # of its own clock, or ours
        return DocumentError(f"takes more than {limits.seconds} s to read", "split it into parts, or do not trust it")
    return DocumentError(f"makes its reader crash (exit {code})", "open it elsewhere and save it anew")
