"""Reads Jupyter notebooks (.ipynb) cell by cell: text, code, and the output of the code. Runs in the child process.

The files are JSON. The package nbformat is not used: it would only add a check against their schema, and needs
jsonschema.
"""

import json
import re
from typing import Any

from localctx.library.parsers import html
from localctx.library.parsers.plain.markdown import headings
from localctx.library.parsers.text_builder import TextBuilder, clean

_COLOURS = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_EMBEDDED = re.compile(r"data:image/[\w.+-]+;base64,[A-Za-z0-9+/=\s]{40,}")
_TEXTS = ("text/plain", "text/markdown", "text/latex")


def read(text: str) -> TextBuilder:
    """Returns the text of a notebook's cells. Notes the pictures in them, which are not read.

    A file that is not a notebook is returned as its own text, with a note.
    """
    builder = TextBuilder()
    try:
        notebook = json.loads(text)
        cells = list(notebook.get("cells") or (cell for sheet in notebook["worksheets"] for cell in sheet["cells"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        builder.note_unread("the cells: the notebook is damaged and shown as the text of the file")
        builder.verbatim(text)
        return builder
    language = _language(notebook)
    for number, cell in enumerate(cells, 1):
        if isinstance(cell, dict):
            builder.mark("cell", str(number))
            _append(cell, number, language, builder)
    return builder


def _language(notebook: dict[str, Any]) -> str:
    about = _object(notebook.get("metadata"))
    told = _object(about.get("language_info") or about.get("kernelspec"))
    return str(told.get("language") or told.get("name") or "")


def _append(cell: dict[str, Any], number: int, language: str, builder: TextBuilder) -> None:
    source = _joined(cell.get("source", cell.get("input"))).strip("\n")
    source, pictures = _EMBEDDED.subn("", source)
    if cell.get("cell_type") == "code":
        if source.strip():
            builder.verbatim(f"```{language}\n{source}\n```\n\n")
        outputs = cell.get("outputs")
        pictures += sum(_output(_object(output), builder) for output in (outputs if isinstance(outputs, list) else ()))
    else:
        _text(source, builder)
    if pictures:
        builder.note_unread(f"{pictures} picture{'s' * (pictures > 1)} in cell {number}")


def _text(source: str, builder: TextBuilder) -> None:
    source = clean(source)
    for start, kind, label in headings(source):
        builder.mark(kind, label, builder.length + start)
    builder.verbatim(source)
    builder.line(2)


def _output(output: dict[str, Any], builder: TextBuilder) -> int:
    """Append the text of a cell's output. Returns 1 if the output is a picture, else 0."""
    data = _object(output.get("data"))
    pictures = any(name.startswith("image/") for name in data) or "png" in output or "jpeg" in output
    told = next((_joined(data[name]) for name in _TEXTS if name in data), "")
    if not told and "text/html" in data:
        html.read(_joined(data["text/html"]), page := TextBuilder())
        told, _ = page.done()
    if output.get("output_type") in ("error", "pyerr"):
        told = f"{output.get('ename', '')}: {output.get('evalue', '')}"
    printed = _COLOURS.sub("", _joined(output.get("text")) or told).strip("\n")
    if printed.strip() and not (pictures and printed.startswith("<")):  # <Figure size 640x480 with 1 Axes>
        builder.verbatim(printed)
        builder.line(2)
    return int(pictures)


def _object(value: object) -> dict[str, Any]:
    """Returns ``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _joined(lines: object) -> str:
    """Returns text that a notebook stores as one string or as a list of lines."""
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines or "")
