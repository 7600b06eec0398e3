"""``library``, of what is kept: pin, verify, export, import."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, machine_options, open_store, quiet_option, settings_of
from localctx.errors import DocumentError, format_bytes

if TYPE_CHECKING:
    from localctx.store.store import Verified


@click.command()
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
def pin(documents: tuple[str, ...]) -> None:
    """Never give up what is kept of DOCUMENTs to make room for others.

    \b
    localctx library pin handbook.md
    """
    _pin(documents, True)


@click.command()
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
def unpin(documents: tuple[str, ...]) -> None:
    """Let what is kept of DOCUMENTs be given up again.

    \b
    localctx library unpin handbook.md
    """
    _pin(documents, False)


def _pin(documents: tuple[str, ...], pinned: bool) -> None:
    for document in documents:
        with open_store() as store:
            row = store.documents.find(document)
            store.documents.pin(row.id, pinned)
        print(f"{row.name} is {'pinned' if pinned else 'no longer pinned'}")


@click.command()
@click.option("--repair", is_flag=True, help="Drop damaged pages; only their reading is lost.")
@as_json_option
@quiet_option
def verify(repair: bool, as_json: bool, quiet: bool) -> None:
    """Read everything that is kept, and compare it with what was written.

    \b
    localctx library verify --repair
    """
    from localctx.cli.terminal import Terminal, print_json
    from localctx.engine.events import Progress

    terminal = Terminal(as_json, quiet)
    with open_store() as store, terminal.cleared():
        found = store.verify(lambda done, total: terminal.show(Progress("verifying", done, total)))
        if repair:
            store.pages.unlink(found.damaged_pages)
    if as_json:
        print_json({**found.to_json(), "repaired": repair})
    else:
        _tell(found, repair)
    if found.database != "ok" or found.damaged_documents or (found.damaged_pages and not repair):
        sys.exit(1)


def _tell(found: "Verified", repair: bool) -> None:
    print(f"{found.documents:,} documents, {found.pages:,} pages, {format_bytes(found.bytes)}: ", end="")
    print("whole" if found.intact else "not as they were written")
    if found.database != "ok":
        print(f"the database is damaged ({found.database}); move it away, documents are then read anew")
    for document in found.damaged_documents:
        print(f"the text of document {document[:12]} is damaged; remove it, then read the file again")
    if count := len(found.damaged_pages):
        done = "dropped; they are read anew" if repair else "damaged; drop them with --repair, they are read anew"
        print(f"{count:,} pages {done}")


@click.command()
@click.argument("document")
@click.option(
    "-o", "--output", required=True, metavar="FILE", type=click.Path(path_type=Path), help="Where to, as book.lctx."
)
def export(document: str, output: Path) -> None:
    """Write DOCUMENT with the pages kept of it to one file. It holds what the document says, readable by you alone.

    \b
    localctx library export book.txt -o book.lctx
    """
    from localctx.store.bundle import export_document

    with open_store() as store:
        row = store.documents.find(document)
        nbytes, pages = export_document(store, row, output)
    print(f"{row.name} exported to {output}, {format_bytes(nbytes)}" + ("" if pages else "; no pages are kept of it"))


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--text-only", is_flag=True, help="Take the document without pages; the model reads it anew.")
@quiet_option
@machine_options
def import_(file: Path, text_only: bool, quiet: bool, **flags: Any) -> None:
    """Take a document that was exported into the library, with the pages this --model can use.

    \b
    localctx library import book.lctx
    """
    from localctx.cli.terminal import Terminal
    from localctx.session import Session
    from localctx.store.bundle import open_bundle

    terminal = Terminal(quiet=quiet)
    bundle = open_bundle(file)
    with (
        Session(settings_of(flags), terminal.show) as session,
        terminal.cleared(),
        session.workflows.library() as shelving,
    ):
        usable = [] if text_only else shelving.usable_caches(bundle)
        if bundle.caches and not usable and not text_only:
            raise DocumentError(
                f"refused for another fingerprint: its pages were made by {bundle.made_by}, not by this "
                f"{session.settings.model}",
                "name that model with --model, or take --text-only",
            )
        pages = shelving.import_bundle(bundle, usable)
    print(f"{bundle.row.name} imported, {pages:,} pages")
