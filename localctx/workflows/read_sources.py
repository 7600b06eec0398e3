"""Turns the sources of a question (files, standard input, ids of stored documents) into documents."""

from collections.abc import Sequence

from localctx.engine.runtime import Runtime
from localctx.library.add import find_stored, store_document
from localctx.library.parsers.sandbox import ReadOptions
from localctx.library.read_document import Document, read_document
from localctx.store.documents import StoredDocument
from localctx.store.store import store_errors


def read_options(runtime: Runtime, source: str, ocr: str | None = None) -> ReadOptions:
    """Returns the options with which the file ``source`` is read under the runtime's settings. ``ocr`` is ``auto``,
    ``on`` or ``off`` (None: the setting).
    """

    def report(done: int, total: int) -> None:
        runtime.report(f"pages of {source}" if total else source, done, total)

    return ReadOptions(ocr or runtime.settings.ocr, report, runtime.cancelled)


def read_sources(runtime: Runtime, sources: Sequence[str], reuse_stored: bool = True) -> list[StoredDocument]:
    """Read ``sources``: paths of files, ``-`` for standard input, ids of stored documents. Returns the documents.

    If ``reuse_stored``, a file that has not changed since it was stored is not parsed again, because parsing with OCR
    takes minutes. Raises DocumentError, UsageError, Cancelled.
    """
    documents = [_read_source(runtime, source, reuse_stored) for source in sources]
    return [StoredDocument(found.row, found.text, found.spans) for found in documents]


def store_sources(runtime: Runtime, sources: Sequence[str]) -> list[str]:
    """Read ``sources`` and add them to the library. Returns the ids of their documents. Raises UserError, Cancelled."""
    with runtime.running():
        documents = [_read_source(runtime, source, True) for source in sources]
    with store_errors(runtime.store.home):
        for source, document in zip(sources, documents, strict=True):
            store_document(runtime.store, document, source, runtime.settings.caps["disk"])
    return [document.row.id for document in documents]


def _read_source(runtime: Runtime, source: str, reuse_stored: bool) -> Document:
    options = read_options(runtime, source)
    found = runtime.read_store(lambda store: find_stored(store, source, options.ocr)) if reuse_stored else None
    return found or read_document(source, options)
