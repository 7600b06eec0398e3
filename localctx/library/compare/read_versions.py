"""Reads the two versions of a document that are compared."""

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from localctx.errors import DocumentError, UsageError
from localctx.library.add import find_stored
from localctx.library.parsers.sandbox import ReadOptions
from localctx.library.read_document import Document, read_document
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, read_store


def check_versions(sources: Sequence[str]) -> None:
    """Raise UsageError if standard input (``-``) is both versions."""
    if list(sources).count("-") > 1:
        raise UsageError("standard input (-) can be read only once", "name it once")


def read_version(home: Path, source: str, options: ReadOptions) -> StoredDocument:
    """Returns the document to compare that ``source`` names: a path, ``-`` for standard input, or the id or name of a
    document in the library at ``home``.

    A file that is unchanged since it was stored is not parsed again. Nothing is stored. Raises DocumentError,
    Cancelled.
    """

    def stored(store: Store) -> Document | None:
        with closing(store):
            return find_stored(store, source, options.ocr) or _named(store, source)

    found = read_store(home, lambda: Store(home), stored) or read_document(source, options)
    return StoredDocument(found.row, found.text, found.spans)


def _named(store: Store, source: str) -> Document | None:
    """Returns the stored document whose name is ``source`` or whose id begins with ``source``. Returns None if there is
    none, or if a file has this name.
    """
    if source == "-" or Path(source).exists():
        return None
    with suppress(DocumentError):
        row = store.documents.find(source)
        if document := find_stored(store, row.id):
            return replace(document, row=row)
    return None
