"""The child process that parses one document: limits first, then the one parser, then JSON lines on stdout.

In: a line of JSON (what it is, its bytes, the limits) and the bytes. Out: lines ``{"done", "total"}``, and at the end
``{"text", "marks", "format"}`` or ``{"problem", "remedy"}``. It ends when its parent does.
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
    """Serve the one request on stdin."""
    request = json.loads(sys.stdin.buffer.readline())
    _limit(request["seconds"], request["memory"] + request["bytes"])
    data = sys.stdin.buffer.read(request["bytes"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _say(_answer(request, data))


def _answer(request: dict[str, Any], data: bytes) -> dict[str, Any]:
    try:
        form, flow = _parse(request, data)
        text, marks = flow.done()
        if len(text) > request["characters"]:
            raise DocumentError(f"holds more than {request['characters']:,} characters", "split it into parts")
        return {"text": text, "marks": marks, "format": form}
    except DocumentError as e:
        return {"problem": e.problem, "remedy": e.remedy}
    except MemoryError:
        needs = f"needs more than {request['memory'] >> 20:,} MiB of memory to be read"
        return {"problem": needs, "remedy": "split it into parts, or do not trust it"}
    except Exception as e:  # whatever a parser makes of damaged bytes
        return {"problem": f"is damaged ({type(e).__name__}: {e})", "remedy": "open it elsewhere and save it anew"}


def _parse(request: dict[str, Any], data: bytes) -> tuple[str, TextBuilder]:
    """Only the parser that is needed is imported: a child starts in a tenth of a second."""
    if request["what"] == "pdf":
        from localctx.library import pdf

        return pdf.read(data, _progress, request["ocr"], lambda: _renew(request))
    if request["what"] == "html":
        from localctx.library import html

        html.read(data.decode(), flow := TextBuilder())
        return "html", flow
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
    _say({"done": done, "total": total})


def _say(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def _renew(request: dict[str, Any]) -> None:
    """The CPU seconds of a file once more, for one page that is read optically; room for what does it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + request["seconds"]
    _limit(seconds, request["memory"] + request["bytes"] + request["optical"])


def _limit(seconds: int, memory: int) -> None:
    """CPU, address space, no core file, nothing written to any file. macOS does not know all of them."""
    wanted = {"RLIMIT_CPU": seconds, "RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0}
    for name, most in wanted.items():
        with suppress(ValueError, OSError):
            _, hard = resource.getrlimit(kind := getattr(resource, name))
            resource.setrlimit(kind, (most, hard))  # the hard one stays: _renew may have to raise this


def _end_with_parent() -> None:
    """The parent keeps our stdin open for as long as it lives and wants an answer."""
    os.read(0, 1)
    os._exit(1)
