"""``library``: pins, verifies, exports and imports stored documents and their pages."""

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, machine_options, open_store, parse_numbers, quiet_option, settings_from
from localctx.cli.printing import print_line
from localctx.errors import DocumentError, format_bytes

if TYPE_CHECKING:
    from collections import Counter

    from localctx.cli.terminal import Terminal
    from localctx.store.maintenance.salvage import Salvaged
    from localctx.store.store import Verified


@click.command()
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
def pin(documents: tuple[str, ...]) -> None:
    """Never delete the stored pages of DOCUMENTs to make room for others.

    \b
    localctx library pin handbook.md
    """
    _pin(documents, True)


@click.command()
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
def unpin(documents: tuple[str, ...]) -> None:
    """Allow stored pages of DOCUMENTs to be deleted to make room for others.

    \b
    localctx library unpin handbook.md
    """
    _pin(documents, False)


def _pin(documents: tuple[str, ...], pinned: bool) -> None:
    for document in documents:
        with open_store() as store:
            row = store.documents.find(document)
            store.documents.pin(row.id, pinned)
        print_line(f"{row.name} is {'pinned' if pinned else 'no longer pinned'}")


@click.command()
@click.option(
    "--repair",
    is_flag=True,
    help="Save the readable part of a damaged database; delete damaged files and pages. Pages are computed again.",
)
@as_json_option
@quiet_option
def verify(repair: bool, as_json: bool, quiet: bool) -> None:
    """Check all stored data for damage: the database, documents, chats, kept files and pages.

    \b
    localctx library verify --repair
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.errors import DamagedStore
    from localctx.store.store import Verified

    terminal, salvaged = Terminal(as_json, quiet), None
    with terminal.cleared():
        try:
            result = _verify(terminal, repair)
        except DamagedStore as e:
            if not repair:
                raise
            result = Verified(database=str(e))
        if repair and not result.rows_intact:
            salvaged, found = _salvage(), result
            result = _verify(terminal, repair)
            if not result.rows_intact:
                raise DamagedStore(f"the new database is damaged too ({result.database})", "check the disk")
            result.damaged_documents = found.damaged_documents
    if as_json:
        told = salvaged and {**vars(salvaged), "aside": str(salvaged.aside)}
        print_json({**result.to_json(), "repaired": repair, "salvaged": told})
    else:
        _print_result(result, repair)
        if salvaged:
            _print_salvaged(salvaged)
    if not repair and not result.intact:
        sys.exit(1)


def _verify(terminal: "Terminal", repair: bool) -> "Verified":
    from localctx.engine.events import Progress

    with open_store() as store:
        result = store.verify(lambda done, total: terminal.show(Progress("verifying", done, total)))
        if repair and result.rows_intact:
            store.pages.unlink(result.damaged_pages)
            store.originals.forget(result.damaged_originals)
    return result


def _salvage() -> "Salvaged":
    from localctx.store.maintenance.salvage import salvage
    from localctx.store.store import store_errors

    home = settings_from({}).home
    gc.collect()  # an earlier failure keeps the database open through reference cycles of its traceback
    with store_errors(home):
        return salvage(home)


def _print_result(result: "Verified", repair: bool) -> None:
    from localctx.store.store import SALVAGE

    counts = f"{result.documents:,} documents, {result.chats:,} chats, {result.pages:,} pages"
    print_line(f"{counts}, {format_bytes(result.bytes)}: {'no damage found' if result.intact else 'damaged'}")
    if result.database != "ok":
        print_line(f"the database is damaged ({result.database}); {SALVAGE}")
    for table, rows in result.damaged_rows.items():
        print_line(f"{len(rows):,} damaged rows of {table.replace('_', ' ')}; {SALVAGE}")
    for document in result.damaged_documents:
        print_line(f"the text of document {document[:12]} {'was' if repair else 'is'} damaged; read the file again")
    if count := len(result.damaged_originals):
        action = "deleted" if repair else "damaged; delete them with --repair"
        print_line(f"{count:,} kept files of documents {action}; add the files again to see their pages")
    if count := len(result.damaged_pages):
        action = "deleted" if repair else "damaged; delete them with --repair"
        print_line(f"{count:,} pages {action}; they are computed again when needed")


def _print_salvaged(salvaged: "Salvaged") -> None:
    print_line(f"saved: {_counted(salvaged.saved)}")
    if salvaged.doubtful:
        print_line(f"of these, parts may be wrong in: {_counted(salvaged.doubtful)}")
    if salvaged.lost:
        print_line(f"lost, at least: {_counted(salvaged.lost)}")
    print_line(f"the damaged database is kept as {salvaged.aside}; delete it if nothing is missing")


def _counted(rows: "Counter[str]") -> str:
    """Returns a text with the number of rows of each table. The tables that users know come first."""
    order = ("documents", "chats", "messages", "collections", "results", "verdicts")
    named = {"verdicts": "quality results", "results": "batch results"}
    known = [f"{rows[table]:,} {named.get(table, table)}" for table in order if rows[table]]
    rest = sum(count for table, count in rows.items() if table not in order)
    return ", ".join([*known, *([f"{rest:,} rows of what was made from them"] if rest else [])]) or "nothing"


@click.command()
@click.argument("document")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The file to write, as book.lctx.",
)
def export(document: str, output: Path) -> None:
    """Write DOCUMENT and its stored pages to one file. The file has the document's text; only you can read it.

    \b
    localctx library export book.txt -o book.lctx
    """
    from localctx.store.bundle import export_document

    with open_store() as store:
        row = store.documents.find(document)
        nbytes, pages = export_document(store, row, output)
    print_line(
        f"{row.name} exported to {output}, {format_bytes(nbytes)}" + ("" if pages else "; it has no stored pages")
    )


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--text-only", is_flag=True, help="Import the document without its pages; the model reads it again.")
@click.option("--check", default="20", metavar="N", help="Random pages that the model computes again: N or all (20).")
@quiet_option
@machine_options
def import_(file: Path, text_only: bool, check: str, quiet: bool, **flags: Any) -> None:
    """Import an exported document into the library, with its pages if this --model made them.

    Some pages are computed again from those before them; a file with a page that differs is refused.

    \b
    localctx library import book.lctx
    """
    from localctx.cli.terminal import Terminal
    from localctx.session import Session
    from localctx.store.bundle import open_bundle

    terminal, told = Terminal(quiet=quiet), ""
    count = None if check == "all" else parse_numbers("--check", check)[0]
    bundle = open_bundle(file)
    with (
        Session(settings_from(flags), terminal.show) as session,
        terminal.cleared(),
        session.workflows.library() as workflow,
    ):
        usable = [] if text_only else workflow.usable_caches(bundle)
        if bundle.caches and not usable and not text_only:
            raise DocumentError(
                f"its pages were made by {bundle.made_by}, and the model in use is {session.settings.model}",
                "name that model with --model, or use --text-only",
            )
        told = f"; {workflow.check_bundle(bundle, usable, count)}" if usable else ""
        pages = workflow.import_bundle(bundle, usable)
    print_line(f"{bundle.row.name} imported, {pages:,} pages{told}")
