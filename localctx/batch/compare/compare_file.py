"""Writes a comparison to a file. The file's suffix chooses the format: a web page, CSV, Markdown or JSON lines."""

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from localctx.batch.compare.compare_page import compare_page
from localctx.batch.outputs import json_line
from localctx.batch.table.table_file import BYTE_ORDER_MARK, safe_cell
from localctx.errors import UsageError
from localctx.library.compare.comparison import ClauseChange, Comparison
from localctx.settings import write_atomically
from localctx.store.transcript import one_line

_COLUMNS = ("change", "state", "words", "old place", "old", "new place", "new")


def check_file(file: Path) -> None:
    """Raise UsageError if no format has the suffix of ``file``, or if the folder of ``file`` does not exist."""
    if file.suffix.lower() not in FORMATS:
        raise UsageError(f"no comparison is written as {file.name}", f"name a file of {', '.join(FORMATS)}")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", "make it, or choose another with -o")


def write_comparison(file: Path, comparison: Comparison) -> None:
    """Write a comparison to ``file``, completely or not at all. Raises OSError."""
    write_atomically(file, FORMATS[file.suffix.lower()](comparison))


def compare_text(comparison: Comparison) -> str:
    """Returns a comparison as text for a terminal."""
    return "\n".join(_text_lines(comparison))


def _text_lines(comparison: Comparison) -> Iterator[str]:
    yield f"{comparison.old.name} -> {comparison.new.name}: {comparison.summary}"
    for title, changes in comparison.groups.items():
        yield f"\n{title}"
        for change in changes:
            yield from (f"  {line}" for line in _heads(change))
            for name, version in change.versions:
                yield f"    {name}, {version.place}: {version.text}"
    if comparison.notes:
        yield ""
    yield from comparison.notes


def _heads(change: ClauseChange) -> tuple[str, ...]:
    """Returns the lines above the versions of a clause: the changed words, and "moved" if the clause moved."""
    return (*change.lines, "moved") if change.moved and change.words else change.lines


def _markdown(comparison: Comparison) -> str:
    blocks = [f"# {one_line(comparison.old.name)} → {one_line(comparison.new.name)}", one_line(comparison.summary)]
    for title, changes in comparison.groups.items():
        blocks += [f"## {title}", *map(_markdown_change, changes)]
    return "\n\n".join([*blocks, *map(one_line, comparison.notes)]) + "\n"


def _markdown_change(change: ClauseChange) -> str:
    heads = "; ".join(f"**{one_line(line)}**" for line in _heads(change))
    versions = (f"{name}, {one_line(version.place)}: {one_line(version.text)}" for name, version in change.versions)
    return "- " + "\n  - ".join([heads or change.state, *versions])


def _csv(comparison: Comparison) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for change in comparison.changes:
        places = [cell for v in (change.old, change.new) for cell in ((v.place, v.text) if v else ("", ""))]
        cells = (change.title, change.state, "; ".join(_heads(change)), *places)
        writer.writerow([safe_cell(cell) for cell in cells])
    return BYTE_ORDER_MARK + written.getvalue()


def _json_lines(comparison: Comparison) -> str:
    return "".join(json_line(asdict(change)) for change in comparison.changes)


FORMATS: dict[str, Callable[[Comparison], str]] = {
    ".html": compare_page,
    ".csv": _csv,
    ".md": _markdown,
    ".jsonl": _json_lines,
}
"""For each suffix of a file, the function that renders a comparison in its format."""
