"""Documents that hypothesis changes at random, and the child process that has each parsed under the parsers' limits.

``python fuzz_documents.py FORMAT,FORMAT INPUTS SEED FILE`` is that process: it writes each input to FILE, after a
line with its format, before it is parsed, so that one which ends the process is known. It prints as JSON how many of
each format ended how.
"""

import io
import json
import random
import resource
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from made_files import docx, epub, pdf, zipped
from office_files import RTF, mbox, odp, ods, odt, pptx, rent_message, rents

from localctx.errors import DocumentError
from localctx.library import read_document
from localctx.library.parsers import parse_child, sandbox
from localctx.library.parsers.sandbox import Parsed, SandboxLimits
from localctx.library.parsers.text import decode_text

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
GROUPS = {
    "pdf": ("pdf",),
    "office": ("docx", "pptx", "xlsx"),
    "opendocument": ("odt", "odp", "ods"),
    "rtf": ("rtf",),
    "mail": ("eml", "mbox"),
    "text": ("html", "epub", "ipynb", "srt", "tex"),
}
"""Formats that share parsers."""

_GERMAN = (
    "Der Lotse fährt früh über die Förde, „weiß“ der Bürgermeister, und grüßt höflich. Öl für 20 €; Äpfel größer.\n"
)
_RUSSIAN = "Начальник порта сообщает, что башня была закрыта одиннадцать недель; буря сорвала крышу с балок.\n"  # noqa: RUF001
_TABLE = "Größe;Straße;Maß\n" + "".join(f"{i};Hafenstraße {i * 7};früh über {i * 13} Öre\n" for i in range(40))
TEXTS = {
    "txt, utf-8": ("a.txt", (_GERMAN + _RUSSIAN) * 9, "utf-8"),
    "txt, utf-16": ("a.txt", (_GERMAN + _RUSSIAN) * 9, "utf-16"),
    "txt, cp1252": ("a.txt", _GERMAN * 20, "cp1252"),
    "txt, koi8-r": ("a.txt", _RUSSIAN * 20, "koi8-r"),
    "md, utf-8": ("a.md", f"# Straße\n\n{_GERMAN * 5}\n- Äpfel\n\n## Öl\n\n{_RUSSIAN * 5}", "utf-8"),
    "csv, utf-8": ("a.csv", _TABLE, "utf-8"),
    "csv, cp1252": ("a.csv", _TABLE, "cp1252"),
}
"""Texts whose letters are counted after damages: a file's name, its text, its encoding."""

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


def _request(what: str) -> dict[str, Any]:
    return {
        "what": what,
        "ocr": "off",
        "characters": LIMITS.characters,
        "memory": LIMITS.memory,
        "seconds": LIMITS.seconds,
        "limits": (LIMITS.seconds, LIMITS.memory),
    }


_DECODED = ("html", "ipynb", "subtitles", "latex")


def _decoded(data: bytes) -> bytes:
    try:
        return decode_text(data, "it").text.encode()
    except DocumentError:
        return b""


def read_here(name: str, data: bytes) -> Parsed:
    """Reads a file as ``read_document`` does, but parses it in this process. Raises DocumentError."""

    def parse(what: str, data: bytes) -> Parsed:
        return sandbox._result(parse_child._result(_request(what) | {"bytes": len(data)}, data))

    return read_document._parsed(data, name, name, parse)


def letters_lost(name: str, inputs: int, number: int) -> list[tuple[int, int]]:
    """Damages bytes of a text at random, ``inputs`` times. Returns how many bytes, and how many letters were lost."""
    file, text, encoding = TEXTS[name]
    whole, found, chance = text.encode(encoding), list[tuple[int, int]](), random.Random(number)
    letters = _letters(read_here(file, whole).text)
    first = whole.index(b"\n") if file.endswith(".csv") else 0  # every row repeats the names in the first line
    assert letters.total() >= _letters(text).total()
    for _ in range(inputs):
        data = bytearray(whole)
        places = chance.sample(range(first, len(data)), chance.choice((1, 1, 2, 5, 20)))
        for place in places:
            data[place] = chance.choice(
                [byte for byte in (0, 0x1A, 0x80, 0xFF, chance.randrange(256)) if byte != data[place]]
            )
        try:
            lost = letters - _letters(read_here(file, bytes(data)).text)
        except DocumentError:
            lost = letters
        found.append((len(places), lost.total()))
    return found


def _letters(text: str) -> Counter[str]:
    """The letters of a text, without the names of columns that a row repeats."""
    for name in _TABLE.partition("\n")[0].split(";"):
        text = text.replace(f"{name}: ", "")
    return Counter(letter for letter in text if letter.isalnum())


def fuzz(name: str, inputs: int, number: int, file: Path) -> Counter[str]:
    """Parses changed documents one after another. Returns how many were read, and how many refused in a sentence."""
    ends, (what, make) = Counter[str](), FORMATS[name]
    request = _request(what)

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
        if what in _DECODED:  # damaged bytes are decoded before they come to the parser
            data = _decoded(data)
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
