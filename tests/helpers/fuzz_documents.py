"""Documents that hypothesis changes at random, and the child process that has each parsed under the parsers' limits.

``python fuzz_documents.py FORMAT,FORMAT INPUTS SEED FILE`` is that process: it writes each input to FILE, after a
line with its format, before it is parsed, so that one which ends the process is known. It prints as JSON how many of
each format ended how.
"""

import io
import json
import resource
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from made_files import docx, epub, pdf, zipped
from office_files import RTF, mbox, odp, ods, odt, pptx, rent_message, rents

from localctx.library.parsers import parse_child
from localctx.library.parsers.sandbox import SandboxLimits

WORDS = "Rivers are long and canals are short. " * 9
LIMITS = SandboxLimits()
FORMATS = {
    "pdf": ("pdf", lambda: pdf([f"Page {i}\n{WORDS}" for i in range(3)], [("Page 1", 1)])),
    "docx": ("zip", lambda: docx([("Heading 1", "Rivers"), ("", WORDS)])),
    "epub": ("zip", lambda: epub({"a.xhtml": f"<h1>One</h1><p>{WORDS}</p>", "b.xhtml": "<p>Two</p>"})),
    "pptx": ("zip", pptx),
    "xlsx": ("zip", rents),
    "odt": ("zip", odt),
    "odp": ("zip", odp),
    "ods": ("zip", ods),
    "html": ("html", lambda: f"<html><h1>Rivers</h1><p>{WORDS}</p><table><tr><td>1</table></html>".encode()),
    "ipynb": (
        "ipynb",
        lambda: json.dumps({"cells": [{"cell_type": "markdown", "source": f"# One\n{WORDS}"}] * 3}).encode(),
    ),
    "srt": (
        "subtitles",
        lambda: b"".join(b"%d\n00:00:0%d,000 --> 00:00:09,000\nRivers\n\n" % (i, i) for i in range(9)),
    ),
    "tex": (
        "latex",
        lambda: rf"\documentclass{{x}}\begin{{document}}\section{{A}}\footnote{{{WORDS}}} $a$\end{{document}}".encode(),
    ),
    "rtf": ("rtf", lambda: RTF),
    "eml": ("eml", lambda: rent_message().as_bytes()),
    "mbox": ("mbox", lambda: mbox(Path(tempfile.mkdtemp()), [rent_message()] * 2)),
}
TOKENS = (
    *(
        b"%PDF-",
        b"obj",
        b"endobj",
        b"stream",
        b"/Kids[",
        b"/Count ",
        b"99999999999",
        b"-1",
        b"<",
        b">",
        b"&#0;",
        b"]]>",
    ),
    *(b"<w:p>" * 99, b"{\\*" * 99, b"boundary=", b"\n\nFrom ", b"<!ENTITY a 'b'>", b"=?utf-8?b?/w==?=", b"\xff\xfe"),
)


@st.composite
def changed(draw: st.DrawFn, whole: bytes) -> bytes:
    """A document with some bytes changed, repeated, cut or replaced; of a zip file also inside one of its members."""
    if whole[:2] != b"PK" or draw(st.booleans()):
        return draw(edited(whole))
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(members)))
    return zipped({**members, name: draw(edited(members[name]))})


@st.composite
def edited(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes after one to six changes."""
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from((0, 1, 1, 4, 40, 400, 1 << 20))))
        put = draw(st.one_of(st.binary(max_size=4), st.sampled_from(TOKENS), st.just(data[at:end] * 3)))
        data = data[:at] + put + data[end:]
    return data


def fuzz(name: str, inputs: int, number: int, file: Path) -> Counter[str]:
    """Parses changed documents one after another. Returns how many were read, and how many refused in a sentence."""
    ends, (what, make) = Counter[str](), FORMATS[name]
    request = {
        "what": what,
        "ocr": "off",
        "characters": LIMITS.characters,
        "memory": LIMITS.memory,
        "seconds": LIMITS.seconds,
        "limits": (LIMITS.seconds, LIMITS.memory),
    }

    @seed(number)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(changed(make()))
    def parse_each(data: bytes) -> None:
        file.write_bytes(name.encode() + b"\n" + data)
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + LIMITS.seconds + 1, resource.RLIM_INFINITY))
        message = parse_child._result(request | {"bytes": len(data)}, data)
        json.dumps(message)
        assert ("text" in message) != ("problem" in message and "remedy" in message)
        ends["read" if "text" in message else "refused"] += 1

    parse_each()
    return ends


def main(names: str, inputs: str, number: str, file: str) -> None:
    """Limits this process as a parser is limited, and prints the result."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMITS.memory + (1 << 29), resource.RLIM_INFINITY))
    parse_child.limit_process = lambda seconds, memory: None  # a parser may not write files: this process must
    out, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), write_through=True)  # parsers report pages there
    ends = {name: fuzz(name, int(inputs), int(number), Path(file)) for name in names.split(",")}
    print(json.dumps(ends), file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
