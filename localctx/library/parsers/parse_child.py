"""Runs in the child process that parses one document. Sets the limits, then imports only the parser needed.

Standard input: a line of JSON (kind, size in bytes, limits), then the file. Standard output: JSON lines ``{"done",
"total"}`` for progress, ``{"seconds", "memory"}`` for new limits, and a last line with the result. The last line is
``{"text", "marks", "format", "boxes", "unread"}``, for one page of a PDF ``{"png", "text", "width", "height",
"words"}``, or for an error ``{"problem", "remedy"}``. The process ends when its parent does.
"""

import json
import math
import os
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from localctx.errors import DocumentError
from localctx.library.parsers.text_builder import TextBuilder
from localctx.system import limit_process

if TYPE_CHECKING:
    from localctx.library.parsers.archive import Archive

_PARTS_A_SECOND = 5  # pages or messages; a full page of a PDF takes a twentieth of a second
_MAX_UNREAD = 100  # lines
_parts_read = count(1)
_Progress = Callable[[int, int], None]


def main() -> None:
    """Read the request on standard input, parse the document, and write the result to standard output."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request, request["seconds"], request["memory"] + request["bytes"])
    data = sys.stdin.buffer.read(request["bytes"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _send(_result(request, data))


def _result(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        if request["what"] == "page":
            return _draw(data, request["number"])
        document_format, builder = _parse(request, data, partial(_progress, request))
        text, marks = builder.done()
        if len(text) > request["characters"]:
            raise DocumentError(f"holds more than {request['characters']:,} characters", "split it into parts")
        boxes = [(page, width, height, _base64(words)) for page, width, height, words in builder.boxes]
        found = {"text": text, "marks": marks, "format": document_format}
        return {**found, "boxes": boxes, "unread": builder.unread[:_MAX_UNREAD]}
    except DocumentError as e:
        return {"problem": e.problem, "remedy": e.remedy}
    except MemoryError:
        needs = f"needs more than {request['memory'] >> 20:,} MiB of memory to be read"
        return {"problem": needs, "remedy": "split it into parts, or do not trust it"}
    except RecursionError:
        return {
            "problem": "is nested too deeply to be read",
            "remedy": "save it again in another program, or do not trust it",
        }
    except BaseException as e:  # parsers raise anything for damaged files; those in Rust raise a BaseException
        return {
            "problem": f"is damaged ({type(e).__name__}: {e})",
            "remedy": "open it in another program and save it again",
        }


def _draw(data: bytes, number: int) -> dict[str, Any]:
    """Returns the image of one page of a PDF, its text, its size in points and its word boxes."""
    from localctx.library.parsers.pdf import page_image

    png, text, (width, height, words) = page_image.draw(data, number)
    return {"png": _base64(png), "text": text, "width": width, "height": height, "words": _base64(words)}


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _parse(request: dict[str, Any], data: bytes, progress: _Progress) -> tuple[str, TextBuilder]:
    """Parse the document. Imports only the parser for its kind, so that the process starts in a tenth of a second."""
    kind = request["what"]
    if kind == "pdf":
        from localctx.library.parsers.pdf import read_pdf

        return read_pdf.read(data, progress, request["ocr"], lambda: _renew(request))
    if kind == "zip":
        from localctx.library.parsers.archive import Archive

        archive = Archive(data)
        return archive.kind(), _unpack(archive.kind(), archive, progress)
    return kind, _read(request, data, progress)


def _read(request: dict[str, Any], data: bytes, progress: _Progress) -> TextBuilder:
    match kind := request["what"]:
        case "eml" | "mbox":
            from localctx.library.parsers.mail import mailbox, message
            from localctx.library.parsers.mail.attachments import AttachedFiles

            files = AttachedFiles(
                lambda kind, data: _attached(request, kind, data),
                lambda: request["limits"][0] - time.process_time(),
            )
            return message.read(data, files.read) if kind == "eml" else mailbox.read_mailbox(data, progress, files.read)
        case "rtf":
            from localctx.library.parsers.rtf import document as rtf

            return rtf.read(data)
        case "xls":
            from localctx.library.parsers.sheets import spreadsheet

            return spreadsheet.read(data, progress)
        case "ipynb" | "subtitles" | "latex":
            return _read_plain(kind, data.decode())
        case "html":
            from localctx.library.parsers import html

            html.read(data.decode(), builder := TextBuilder())
            return builder
    raise DocumentError("is an old Office file", "save it in a newer format")


def _attached(request: dict[str, Any], kind: str, data: bytes) -> TextBuilder:
    """Returns the text of an attached file. Limits that were raised for it stay raised."""
    inner = {**request, "what": kind}
    try:
        return _parse(inner, data, _no_progress)[1]
    finally:
        request["limits"] = inner["limits"]


def _read_plain(kind: str, text: str) -> TextBuilder:
    match kind:
        case "ipynb":
            from localctx.library.parsers.plain import notebook

            return notebook.read(text)
        case "subtitles":
            from localctx.library.parsers.plain import subtitles

            return subtitles.read(text)
    from localctx.library.parsers.plain import latex

    return latex.read(text)


def _unpack(kind: str, archive: "Archive", progress: _Progress) -> TextBuilder:
    match kind:
        case "docx":
            from localctx.library.parsers.office import docx

            return docx.read(archive)
        case "odt" | "odp":
            from localctx.library.parsers.odf import document as odf

            return odf.read(archive, progress)
        case "pptx":
            from localctx.library.parsers.office import pptx

            return pptx.read(archive, progress)
        case "xlsx" | "ods":
            from localctx.library.parsers.sheets import spreadsheet

            return spreadsheet.read_archive(archive, progress)
    from localctx.library.parsers import epub

    return epub.read(archive, progress)


def _no_progress(done: int, total: int) -> None:
    pass


def _progress(request: dict[str, Any], done: int, total: int) -> None:
    """Report to the parent process that a page or message was read.

    For every five pages or messages, a second of CPU time is added, so that long documents have more time.
    """
    if next(_parts_read) % _PARTS_A_SECOND == 0:
        seconds, memory = request["limits"]
        _limit(request, seconds + 1, memory)
    _send({"done": done, "total": total})


def _send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def _renew(request: dict[str, Any]) -> None:
    """Raise the limits before one page of OCR: add the CPU seconds of a file once more, and the memory of OCR."""
    seconds = math.ceil(time.process_time()) + request["seconds"]
    _limit(request, seconds, request["memory"] + request["bytes"] + request["optical"])


def _limit(request: dict[str, Any], seconds: int, memory: int) -> None:
    """Limit CPU time and memory, and report the limits to the parent.

    The parent enforces the limits that the operating system does not.
    """
    request["limits"] = seconds, memory
    limit_process(seconds, memory)
    _send({"seconds": seconds, "memory": memory})


def _end_with_parent() -> None:
    """End this process when standard input closes: the parent keeps it open while it waits for the result."""
    os.read(0, 1)
    os._exit(1)
