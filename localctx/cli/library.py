"""``library``: what was read and is kept."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, settings_of
from localctx.errors import size

if TYPE_CHECKING:
    from localctx.store.store import Store


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

    with _store() as store:
        listed = [(d, store.caches.of(d.id)) for d in store.documents.all()]
    if as_json:
        print_json([_document_json(d, caches) for d, caches in listed])
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
                        "KEPT TOKENS": max((c.kept for c in caches), default=0),
                        "ON DISK": size(sum(c.bytes for c in caches)),
                        "LAST USED": _when(d.used),
                    }
                    for d, caches in listed
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

    with _store() as store:
        row = store.documents.find(document)
        caches, spans = store.caches.of(row.id), store.documents.spans(row.id)
    if as_json:
        print_json(_document_json(row, caches) | {"spans": [vars(s) for s in spans]})
        return
    print(f"{row.name}  {row.chars:,} characters, {row.encoding}, {row.path}\nid {row.id}")
    print(f"added {_when(row.added)}, last used {_when(row.used)}, {len(spans)} headings")
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
        with _store() as store:
            row = store.documents.find(document)
            freed = store.remove_document(row.id)
        print(f"{row.name} removed, {size(freed)} freed")


@contextmanager
def _store() -> "Iterator[Store]":
    from localctx.store.store import Store, told

    home = settings_of({}).home
    with closing(Store(home)) as store, told(home):
        yield store


def _document_json(row: Any, caches: list[Any]) -> dict[str, Any]:
    kept = [
        {k: v for k, v in vars(c).items() if k != "fingerprint"} | {"fingerprint": c.fingerprint.hex()} for c in caches
    ]
    return {**vars(row), "caches": kept}


def _when(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
