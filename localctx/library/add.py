"""Adds a document to the library: reads a file and stores its text. If a file cannot be read, the result says so; no
error is raised.
"""

import hashlib
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from localctx.budget import measure_store_budget
from localctx.errors import Cancelled, DocumentError
from localctx.file_names import shown_name, stored_path
from localctx.library.parsers.sandbox import READ_OPTIONS, ReadOptions
from localctx.library.read_document import Document, matches_ocr, read_document, recorded_path
from localctx.store.documents import DocumentRow, text_id
from localctx.store.maintenance.eviction import make_room
from localctx.store.store import Store


@dataclass(frozen=True)
class Added:
    """The result of adding one file to the library.

    ``status`` is ``added``, ``unchanged``, ``new version`` or ``failed``; ``why`` is the error, or "". ``pages`` is the
    number of the document's parts, and ``part`` is their kind: page, slide, row or message. ``unread`` has a line for
    each part that could not be read.
    """

    path: str
    id: str
    status: str
    why: str
    characters: int
    pages: int
    seconds: float
    part: str = "page"
    unread: tuple[str, ...] = ()


def add_document(store: Store, source: str, options: ReadOptions = READ_OPTIONS, disk: int | None = None) -> Added:
    """Read the file ``source`` and store its text as a document. When this function returns, the document is safely on
    disk.

    ``disk`` is the disk budget in bytes, which limits whether an uploaded file is kept (None: the default). Raises
    StoreError if the store cannot be written, and Cancelled.
    """
    start, path = time.perf_counter(), stored_path(source)
    try:
        row, status = _add(store, source, options, disk)
    except DocumentError as e:
        return Added(path, "", "failed", str(e), 0, 0, time.perf_counter() - start)
    part, count = store.documents.count_parts(row.id)
    seconds = time.perf_counter() - start
    return Added(path, row.id, status, "", row.chars, count, seconds, part, row.unread_lines)


def _add(store: Store, source: str, options: ReadOptions, disk: int | None) -> tuple[DocumentRow, str]:
    if options.cancelled():
        raise Cancelled
    if stored := _stored_and_unchanged(store, source, options.ocr):
        return stored, "unchanged"
    options.progress(0, 0)
    document = read_document(source, options)
    return document.row, store_document(store, document, source, disk)


def store_document(store: Store, document: Document, source: str, disk: int | None = None) -> str:
    """Store a document that was read from the path ``source``, and its word boxes. Returns ``added``, ``unchanged``
    (the same text was stored before) or ``new version`` (the path had another text before).

    If ``source`` is in the store's folder of uploads, it is temporary. A copy of it is then kept too, if it fits into
    the disk budget (``disk`` bytes; None: the default).
    """
    with store.db.atomic():
        status = store.documents.add(document.row, document.text, document.spans)
        store.word_places.add(document.row.id, document.boxes)
    if store.originals.is_upload(source) and document.row.content:
        budget = measure_store_budget(store.home, store.disk_bytes(), disk)
        with suppress(FileNotFoundError):  # the upload was deleted meanwhile
            store.originals.keep(document.row.id, Path(source), document.row.content, budget)
        make_room(store, budget)
    return status


def find_stored(store: Store, source: str, ocr: str = "auto") -> Document | None:
    """Returns the document with the id ``source``, or the document that was stored for the file ``source``. The
    document is found even if the file was renamed or copied since.

    Returns None if the file must be read: if its bytes are not stored, if the setting ``ocr`` (auto, on or off) would
    read it differently, or if its stored text is damaged.
    """
    documents = store.documents
    if documents.has(source):
        row: DocumentRow | None = documents.find(source)
    else:
        row = _stored_and_unchanged(store, source, ocr) or _stored_with_same_bytes(store, source, ocr)
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
    row = store.documents.find_unchanged(recorded_path(source), about.st_size, about.st_mtime_ns)
    return row if row and matches_ocr(row.encoding, ocr) else None


def _stored_with_same_bytes(store: Store, source: str, ocr: str) -> DocumentRow | None:
    """Returns the document of another file with the same bytes and the same suffix, named after the file ``source``."""
    file = Path(source)
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode) or not store.documents.files.any_of_size(about.st_size):
            return None
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError):
        return None  # reading it raises the error
    for same in store.documents.files.with_content(content):
        row = store.documents.get(same.document)
        if row and Path(same.name).suffix.lower() == file.suffix.lower() and matches_ocr(same.encoding, ocr):
            named = replace(row, path=recorded_path(source), name=shown_name(file.name), modified=about.st_mtime_ns)
            named = replace(named, bytes=same.bytes, encoding=same.encoding, unread=same.unread)
            return replace(named, content=content, superseded=None)
    return None
