"""The child process that parses one document. It sets its own limits, then imports the one parser it needs.

Standard input: a line of JSON (kind, number of bytes, limits), then the bytes. Standard output: JSON lines
``{"done", "total"}`` for progress, and last ``{"text", "marks", "format"}`` or ``{"problem", "remedy"}``. The process
ends when its parent does.
"""

import json
import math
import os
import resource
import sys
import threading
from contextlib import suppress
from typing import Any

from localctx.errors import DocumentError
from localctx.library.text_builder import TextBuilder


def main() -> None:
    """Answers the one request on standard input."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request["seconds"], request["memory"] + request["bytes"])
    data = sys.stdin.buffer.read(request["bytes"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _send(_result(request, data))


def _result(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        document_format, builder = _parse(request, data)
        text, marks = builder.done()
        if len(text) > request["characters"]:
            raise DocumentError(f"holds more than {request['characters']:,} characters", "split it into parts")
        return {"text": text, "marks": marks, "format": document_format}
    except DocumentError as e:
        return {"problem": e.problem, "remedy": e.remedy}
    except MemoryError:
        needs = f"needs more than {request['memory'] >> 20:,} MiB of memory to be read"
        return {"problem": needs, "remedy": "split it into parts, or do not trust it"}
    except Exception as e:  # parsers raise anything for damaged files
        return {"problem": f"is damaged ({type(e).__name__}: {e})", "remedy": "open it elsewhere and save it anew"}


def _parse(request: dict[str, Any], data: bytes) -> tuple[str, TextBuilder]:
    """Parses, and imports only the parser for this kind: so the process starts in a tenth of a second."""
    if request["what"] == "pdf":
        from localctx.library import pdf

        return pdf.read(data, _progress, request["ocr"], lambda: _renew(request))
    if request["what"] == "html":
        from localctx.library import html

        html.read(data.decode(), builder := TextBuilder())
        return "html", builder
    return _unpack(data)


def _unpack(data: bytes) -> tuple[str, TextBuilder]:
    from localctx.library.archive import Archive

    archive = Archive(data)
    if (kind := archive.kind()) == "docx":
        from localctx.library import docx

        return kind, docx.read(archive)
    from localctx.library import epub

    return kind, epub.read(archive, _progress)


def _progress(done: int, total: int) -> None:
    _send({"done": done, "total": total})


def _send(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def _renew(request: dict[str, Any]) -> None:
    """Raises the limits for one page of OCR: adds the CPU seconds of a file, and the memory that OCR needs."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + request["seconds"]
    _limit(seconds, request["memory"] + request["bytes"] + request["optical"])


def _limit(seconds: int, memory: int) -> None:
    """Limits CPU time and address space; forbids core files and writing to files. macOS lacks some of these limits."""
    limits = {"RLIMIT_CPU": seconds, "RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    for name, limit in limits.items():
        with suppress(ValueError, OSError):
            _, hard = resource.getrlimit(kind := getattr(resource, name))
            resource.setrlimit(kind, (limit, hard))  # the hard limit stays, so that _renew can raise the soft one


def _end_with_parent() -> None:
    """Ends this process when standard input closes, which the parent keeps open while it waits for the result."""
    os.read(0, 1)
    os._exit(1)
