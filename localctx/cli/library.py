"""``library``: what was read and is kept."""

from typing import Any

import click

from localctx.cli.common import as_json_option, open_store
from localctx.cli.shelf import export, import_, pin, unpin, verify
from localctx.errors import size


@click.group()
def library() -> None:
    """The documents that were read, and what is kept of them."""


@library.command("list")
@as_json_option
def library_list(as_json: bool) -> None:
    """List documents, the last used first.

    \b
    localctx library list --json
    """
    from localctx.cli.terminal import print_json, table

    with open_store() as store:
        listed = [(d, store.caches.of(d.id), store.caches.takes(d.id)) for d in store.documents.all()]
    if as_json:
        print_json([_document_json(d, caches, kept) for d, caches, kept in listed])
    elif not listed:
        print("The library is empty. Read a document with: localctx ask FILE QUESTION")
    else:
        print(
            table(
                [
                    {
                        "ID": d.id[:12],
                        "NAME": d.name,
                        "CHARACTERS": d.chars,
                        "PAGES": pages,
                        "ON DISK": size(nbytes),
                        "LAST USED": _when(d.used),
                        "PINNED": "yes" if d.pinned else "",
                    }
                    for d, _, (pages, nbytes) in listed
                ]
            )
        )


@library.command("show")
@click.argument("document")
@as_json_option
def library_show(document: str, as_json: bool) -> None:
    """Show one DOCUMENT (an id, its beginning, a name or a path) and the caches kept of it.

    \b
    localctx library show README.md
    """
    from localctx.cli.terminal import print_json, table

    with open_store() as store:
        row = store.documents.find(document)
        caches, spans, kept = store.caches.of(row.id), store.documents.spans(row.id), store.caches.takes(row.id)
    if as_json:
        print_json(_document_json(row, caches, kept) | {"spans": [vars(s) for s in spans]})
        return
    print(f"{row.name}  {row.chars:,} characters, {row.encoding}, {row.path}\nid {row.id}")
    pinned = ", pinned" if row.pinned else ""
    print(f"added {_when(row.added)}, last used {_when(row.used)}, {len(spans)} headings{pinned}")
    rows = [
        {
            "MODEL": c.model,
            "KV": c.codec,
            "KEPT TOKENS": c.kept,
            "STATE": "ready" if c.state == "ready" else "partly read",
            "ON DISK": size(c.bytes),
            "LAST USED": _when(c.used),
        }
        for c in caches
    ]
    print(table(rows) or "nothing is kept of it")


@library.command("rm")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
def library_rm(documents: tuple[str, ...]) -> None:
    """Forget DOCUMENTs: their text, their caches, and pages nothing else uses.

    \b
    localctx library rm README.md 3f9a1c
    """
    for document in documents:
        with open_store() as store:
            row = store.documents.find(document)
            freed = store.remove_document(row.id)
        print(f"{row.name} removed, {size(freed)} freed")


def _document_json(row: Any, caches: list[Any], kept: tuple[int, int]) -> dict[str, Any]:
    listed = [
        {k: v for k, v in vars(c).items() if k != "fingerprint"} | {"fingerprint": c.fingerprint.hex()} for c in caches
    ]
    return {**vars(row), "pages": kept[0], "kept_bytes": kept[1], "caches": listed}


def _when(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


for _command in (pin, unpin, verify, export, import_):
    library.add_command(_command)
