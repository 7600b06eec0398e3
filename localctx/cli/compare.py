"""``compare``: shows what changed between two versions of a document."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, ocr_option, quiet_option, settings_from
from localctx.cli.printing import print_text
from localctx.cli.sections import SectionedCommand

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.settings import Settings
    from localctx.store.documents import StoredDocument

CHANGED = 4  # exit code; 1 to 3 are errors
_SOON = 1.0  # seconds of reading without progress on the terminal


@click.command(cls=SectionedCommand)
@click.argument("old")
@click.argument("new")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write a .html, .csv, .md or .jsonl file."
)
@ocr_option
@as_json_option
@quiet_option
def compare(old: str, new: str, out: Path | None, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Show which clauses changed from OLD to NEW: numbers, dates, names, obligations, then other wording.

    OLD and NEW are files of any format, also of two, or ids or names of the library; one may be - for standard input.
    A new layout is no change. Nothing is stored, and no model is used. The exit code is 0 if no clause changed, 4 if
    one did.

    \b
    localctx compare lease-2025.docx lease-2026.pdf
    localctx compare old.md new.md -o changes.html
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.library.compare.compare_documents import compare_documents
    from localctx.library.compare.read_versions import check_versions

    check_versions((old, new))
    if out:
        from localctx.batch.compare.compare_file import check_file

        check_file(out)
    settings, terminal = settings_from(flags), Terminal(as_json, quiet)
    comparison = compare_documents(*(_read(settings, source, terminal) for source in (old, new)))
    if out:
        from localctx.batch.compare.compare_file import write_comparison

        write_comparison(out, comparison)
        terminal.say(f"{comparison.summary.rstrip('.')}, in {out}")
    if as_json:
        print_json(comparison.to_json())
    elif not out:
        from localctx.batch.compare.compare_file import compare_text

        print_text(compare_text(comparison))
    if comparison.changes:
        sys.exit(CHANGED)


def _read(settings: "Settings", source: str, terminal: "Terminal") -> "StoredDocument":
    from localctx.engine.events import Progress
    from localctx.library.compare.read_versions import read_version
    from localctx.library.parsers.sandbox import ReadOptions

    start = time.monotonic()

    def report(done: int, total: int) -> None:
        if total and time.monotonic() - start >= _SOON:
            terminal.show(Progress(f"pages of {source}", done, total))

    with _announced(terminal, source):
        return read_version(settings.home, source, ReadOptions(settings.ocr, report))


@contextmanager
def _announced(terminal: "Terminal", source: str) -> Iterator[None]:
    """Show that ``source`` is being read if the block takes more than a second."""
    from localctx.engine.events import Progress

    timer = Timer(_SOON, terminal.show, [Progress(source, 0, 0)])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        terminal.clear()
