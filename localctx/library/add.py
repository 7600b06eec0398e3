"""Adding to the library: each file is read, kept and told about; one that fails leaves the rest alone."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from localctx.errors import Cancelled, DocumentError
from localctx.library.read_document import Document, is_read_so, read_document
from localctx.store.documents import DocumentRow, text_id
from localctx.store.store import Store


@dataclass(frozen=True)
class Added:
    """What became of one file: ``status`` is added, unchanged, new version or failed; ``why`` it failed."""

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
    """Read and keep the files ``sources``, one by one. ``progress`` hears the source and its pages done, of all.

    ``ocr`` as for ``read_document``.
    What was yielded is durable. Raises StoreError when the store cannot be written, Cancelled.
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
    if kept := _untouched(store, source, ocr):
        return kept, "unchanged", store.documents.count_spans(kept.id, "page")
    progress(source, 0, 0)
    document = read_document(source, lambda done, total: progress(source, done, total), ocr, cancelled)
    return document.row, keep(store, document), sum(s.kind == "page" for s in document.spans)


def keep(store: Store, document: Document) -> str:
    """All that adding does to the store, here and only here; the status."""
    return store.documents.add(document.row, document.text, document.spans)


def find_kept(store: Store, source: str, ocr: str = "auto") -> Document | None:
    """The document kept of a file that has not been written since, as ``read_document`` with this ``ocr`` made it; or
    the one whose id ``source`` is.

    None where there is no such file, or what is kept of it is damaged: then read it.
    """
    documents = store.documents
    row = documents.find(source) if documents.has(source) else _untouched(store, source, ocr)
    if not row:
        return None
    text = store.documents.text(row.id)
    now = replace(row, used=time.time())
    return Document(now, text, tuple(store.documents.spans(row.id))) if text_id(text) == row.id else None


def _untouched(store: Store, source: str, ocr: str) -> DocumentRow | None:
    if source == "-":
        return None
    try:
        about = Path(source).stat()
    except (OSError, ValueError):
        return None  # who reads it says why
    row = store.documents.find_unchanged(str(Path(source).absolute()), about.st_size, about.st_mtime_ns)
    return row if row and is_read_so(row.encoding, ocr) else None
