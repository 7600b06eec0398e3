"""``library``: pin, verify, export and import stored documents and their pages."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, machine_options, open_store, quiet_option, settings_from
from localctx.cli.printing import print_line
from localctx.errors import DocumentError, format_bytes

if TYPE_CHECKING:
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
@click.option("--repair", is_flag=True, help="Delete damaged pages; they are computed again when needed.")
@as_json_option
@quiet_option
def verify(repair: bool, as_json: bool, quiet: bool) -> None:
    """Check all stored data for damage.

    \b
    localctx library verify --repair
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.engine.events import Progress

    terminal = Terminal(as_json, quiet)
    with open_store() as store, terminal.cleared():
        result = store.verify(lambda done, total: terminal.show(Progress("verifying", done, total)))
        if repair:
            store.pages.unlink(result.damaged_pages)
    if as_json:
        print_json({**result.to_json(), "repaired": repair})
    else:
        _print_result(result, repair)
    if result.database != "ok" or result.damaged_documents or (result.damaged_pages and not repair):
        sys.exit(1)


def _print_result(result: "Verified", repair: bool) -> None:
    checked = f"{result.documents:,} documents, {result.pages:,} pages, {format_bytes(result.bytes)}"
    print_line(f"{checked}: {'no damage found' if result.intact else 'damaged'}")
    if result.database != "ok":
        print_line(f"the database is damaged ({result.database}); move it away; documents are then read again")
    for document in result.damaged_documents:
        print_line(f"the text of document {document[:12]} is damaged; remove it, then read the file again")
    if count := len(result.damaged_pages):
        action = "deleted" if repair else "damaged; delete them with --repair"
        print_line(f"{count:,} pages {action}; they are computed again when needed")


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
@quiet_option
@machine_options
def import_(file: Path, text_only: bool, quiet: bool, **flags: Any) -> None:
    """Import an exported document into the library, with its pages if this --model made them.

    \b
    localctx library import book.lctx
    """
    from localctx.cli.terminal import Terminal
    from localctx.session import Session
    from localctx.store.bundle import open_bundle

    terminal = Terminal(quiet=quiet)
    bundle = open_bundle(file)
    with (
        Session(settings_from(flags), terminal.show) as session,
        terminal.cleared(),
        session.workflows.library() as workflow,
    ):
        usable = [] if text_only else workflow.usable_caches(bundle)
        if bundle.caches and not usable and not text_only:
            raise DocumentError(
                f"refused for another fingerprint: its pages were made by {bundle.made_by}, not by this "
                f"{session.settings.model}",
                "name that model with --model, or use --text-only",
            )
        pages = workflow.import_bundle(bundle, usable)
    print_line(f"{bundle.row.name} imported, {pages:,} pages")
