"""Parses a document in a child process with limits, so that a malicious or damaged file causes only an error line."""

import json
import math
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from localctx.child_process import ChildWatch, start_python
from localctx.errors import Cancelled, DocumentError
from localctx.library.parsers import old_office
from localctx.library.parsers.text_builder import Mark
from localctx.store.word_places import PageBoxes

_ROOT = str(Path(__file__).parents[3])
if sys.platform == "win32":
    _OUT_OF_TIME = frozenset[int]()
else:
    _OUT_OF_TIME = frozenset((-signal.SIGXCPU, -signal.SIGKILL))  # exit codes: CPU time limit reached, or killed


@dataclass(frozen=True)
class SandboxLimits:
    """The limits of the child process that parses one file.

    ``seconds`` is the CPU time for the file. One second is added for every five pages or messages read, and ``seconds``
    once more for each page read by OCR. ``wall`` is the time in seconds between two messages of the child. ``memory``
    is a number of bytes in addition to the file's size; ``optical`` is added for OCR. ``characters`` is the maximum
    length of the text.
    """

    seconds: int = 60
    wall: int = 180
    memory: int = 1 << 30
    optical: int = 2 << 30
    characters: int = 64 << 20


def _no_progress(done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file.

    ``ocr`` selects the pages of a PDF that are read by OCR: ``auto`` (pages without text), ``on`` (all), ``off``.
    ``progress(pages done, total pages)`` is called while the file is read. If ``cancelled()`` returns True, reading
    ends soon after. ``limits`` are the limits of the child process.
    """

    ocr: str = "auto"
    progress: Callable[[int, int], None] = _no_progress
    cancelled: Callable[[], bool] = lambda: False
    limits: SandboxLimits = SandboxLimits()


READ_OPTIONS = ReadOptions()
DRAWING = SandboxLimits(seconds=20, wall=30)
"""The limits of drawing one page of a PDF."""

PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Parsed:
    """The result of parsing a file: its format, its text, the marks of the text's parts, and the word boxes of a PDF's
    pages.

    ``unread`` has a line for each part that could not be read.
    """

    format: str
    text: str
    marks: list[Mark]
    boxes: tuple[PageBoxes, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class PageDrawing:
    """A drawn page of a PDF: its image as a PNG, its text, and the boxes of the text's words."""

    png: bytes
    text: str
    boxes: PageBoxes


def parse(what: str, data: bytes, options: ReadOptions = READ_OPTIONS) -> Parsed:
    """Parse the file ``data`` in a child process. ``what`` is its kind: a result of ``kind_of``, or of ``text_kind``
    for text in UTF-8.

    Raises DocumentError, whose message does not name the file, and Cancelled. The child process has ended when this
    returns or raises.
    """
    if what in old_office.CONVERTED:
        converted = old_office.convert(data, what, options.cancelled)
        parsed = parse("zip", converted, options)
        macros = ("the macros, which are programs",) if old_office.has_macros(data) else ()
        return replace(parsed, format=what, unread=(*parsed.unread, *macros))
    return _result(_ask_child({"what": what, "ocr": options.ocr}, data, options))


def draw_page(data: bytes, number: int, limits: SandboxLimits = DRAWING) -> PageDrawing:
    """Draw page ``number`` (from 0) of the PDF ``data``.

    Raises DocumentError, whose message does not name the file.
    """
    message = _ask_child({"what": "page", "number": number}, data, ReadOptions(limits=limits))
    _raise_problem(message)
    try:
        png = b64decode(message["png"], validate=True)
        boxes = _page_boxes([number, message["width"], message["height"], message["words"]])
    except (ValueError, TypeError) as e:
        raise DocumentError("makes its parser return invalid data", "do not trust it") from e
    if not png.startswith(PNG):
        raise DocumentError("has a page that cannot be drawn", "open it in another program and save it again")
    return PageDrawing(png, str(message["text"]), boxes)


def _ask_child(request: dict[str, Any], data: bytes, options: ReadOptions) -> dict[str, Any]:
    """Send the ``request`` to a child process and return the child's last message. Raises DocumentError if the child
    ends without a last message, and Cancelled.
    """
    limits = options.limits
    with _child(limits.wall, options.cancelled) as (child, watch):
        watch.allow(limits.seconds, limits.memory + len(data))
        _send(child, request, data, limits)
        for message in _messages(child, limits):
            watch.restart()
            if "seconds" in message:
                watch.allow(float(message["seconds"]), float(message["memory"]))
            elif "done" in message:
                options.progress(int(message["done"]), int(message["total"]))
            else:
                return message
        code = child.wait()
        raise Cancelled if options.cancelled() else _exit_error(code, watch.excess, limits)


@contextmanager
def _child(wall: int, cancelled: Callable[[], bool]) -> Iterator[tuple[subprocess.Popen[bytes], ChildWatch]]:
    """Start a child process with this process's import path, and yield it with the watch that limits it.

    The watch kills the child when ``cancelled()`` is True or when the child exceeds a limit.
    """
    path = f"import sys; sys.path[:] = {[_ROOT, *sys.path]!r}"
    code = f"{path}; from localctx.library.parsers.parse_child import main; main()"
    with start_python(code) as child:
        watch = ChildWatch(child, wall, cancelled)
        watch.start()
        try:
            yield child, watch
        finally:
            watch.ended.set()
            child.kill()
            with suppress(BrokenPipeError):
                _pipes(child)[0].close()


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    assert child.stdin
    assert child.stdout
    return child.stdin, child.stdout


def _send(child: subprocess.Popen[bytes], request: dict[str, Any], data: bytes, limits: SandboxLimits) -> None:
    request = {**request, "bytes": len(data), **asdict(limits)}
    stdin, _ = _pipes(child)
    with suppress(BrokenPipeError):  # the child has ended; its output or exit code says why
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.write(data)
        stdin.flush()


def _messages(child: subprocess.Popen[bytes], limits: SandboxLimits) -> Iterator[dict[str, Any]]:
    """Yields the child's messages, each of which is a line. Stops at a line that is too long or not JSON."""
    max_bytes = 8 * limits.characters + (1 << 20)  # the text and its word boxes
    while line := _pipes(child)[1].readline(max_bytes):
        try:
            yield json.loads(line)
        except ValueError:
            return


def _result(message: dict[str, Any]) -> Parsed:
    """Returns the document in the child's last message. Raises DocumentError if the message has a problem instead."""
    _raise_problem(message)
    marks = [(start, kind, label) for start, kind, label in message["marks"]]
    try:
        boxes = tuple(map(_page_boxes, message["boxes"]))
    except (ValueError, TypeError):
        boxes = ()  # word boxes are optional: the text is complete
    unread = tuple(map(_one_line, message["unread"]))
    return Parsed(message["format"], message["text"], marks, boxes, unread)


def _raise_problem(message: dict[str, Any]) -> None:
    if "problem" in message:
        raise DocumentError(_one_line(message["problem"]), _one_line(message["remedy"]))


def _page_boxes(row: Sequence[Any]) -> PageBoxes:
    """Returns the word boxes of a page. Raises ValueError or TypeError if the child sent anything else."""
    page, width, height, words = row
    if not (0 < width < math.inf and 0 < height < math.inf):
        raise ValueError("a page has no size")
    return PageBoxes(int(page), float(width), float(height), b64decode(words, validate=True))


def _one_line(text: str) -> str:
    """Returns ``text`` as one line without control characters. A message may quote the file, which must not control the
    terminal.
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def _exit_error(code: int, excess: str, limits: SandboxLimits) -> DocumentError:
    """Returns the error for a child that ended without a result: it crashed, or it exceeded a limit.

    ``excess`` is the resource for which the watch killed the child, or "".
    """
    if excess == "time" or code in _OUT_OF_TIME:
        return DocumentError(f"takes more than {limits.seconds} s to read", "split it into parts, or do not trust it")
    if excess == "memory" or code == -signal.SIGABRT:  # of libraries in Rust and C++ that get no memory
        needs = f"needs more than {limits.memory >> 20:,} MiB of memory to be read"
        return DocumentError(needs, "split it into parts, or do not trust it")
    return DocumentError(f"makes its parser crash (exit {code})", "open it in another program and save it again")
