"""Adds documents to the library: reads each file and stores its text. A file that fails does not stop the others."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from localctx.errors import Cancelled, DocumentError
from localctx.library.read_document import Document, matches_ocr, read_document
from localctx.store.documents import DocumentRow, text_id
from localctx.store.store import Store


@dataclass(frozen=True)
class Added:
    """The result for one file: ``status`` is added, unchanged, new version or failed; ``why`` is the error."""

    path: str
    id: str
    status: str
    why: str
    characters: int
    pages: int
    seconds: float


def add_documents(
    store: Store,
    sources: Iterable[str],
    progress: Callable[[str, int, int], None],
    ocr: str = "auto",
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Added]:
    """Reads and stores the files ``sources`` one by one; a document is durable when its result is yielded.

    Calls ``progress(source, pages done, pages in all)``. ``ocr`` is as in ``read_document``. Raises StoreError when the
    store cannot be written, and Cancelled.
    """
    for source in sources:
        start = time.perf_counter()
        try:
            row, status, pages = _add(store, source, progress, ocr, cancelled)
            result = Added(source, row.id, status, "", row.chars, pages, time.perf_counter() - start)
        except DocumentError as e:
            result = Added(source, "", "failed", str(e), 0, 0, time.perf_counter() - start)
        yield result


def _add(
    store: Store, source: str, progress: Callable[[str, int, int], None], ocr: str, cancelled: Callable[[], bool]
) -> tuple[DocumentRow, str, int]:
    if cancelled():
        raise Cancelled
    if stored := _stored_and_unchanged(store, source, ocr):
        return stored, "unchanged", store.documents.count_spans(stored.id, "page")
    progress(source, 0, 0)
    document = read_document(source, lambda done, total: progress(source, done, total), ocr, cancelled)
    status = store.documents.add(document.row, document.text, document.spans)
    return document.row, status, sum(s.kind == "page" for s in document.spans)


def find_stored(store: Store, source: str, ocr: str = "auto") -> Document | None:
    """Returns the stored document with the id ``source``, or the one stored for the file ``source`` if the file has not
    changed since and would be read the same way with this ``ocr``.

    Returns None where the file must be read: it is not stored, has changed, or its stored text is damaged.
    """
    documents = store.documents
    row = documents.find(source) if documents.has(source) else _stored_and_unchanged(store, source, ocr)
    if not row:
        return None
    text = store.documents.text(row.id)
    used_now = replace(row, used=time.time())
    return Document(used_now, text, tuple(store.documents.spans(row.id))) if text_id(text) == row.id else None


def _stored_and_unchanged(store: Store, source: str, ocr: str) -> DocumentRow | None:
    if source == "-":
        return None
    try:
        about = Path(source).stat()
    except (OSError, ValueError):
        return None  # reading it raises the error
    row = store.documents.find_unchanged(str(Path(source).absolute()), about.st_size, about.st_mtime_ns)
    return row if row and matches_ocr(row.encoding, ocr) else None
