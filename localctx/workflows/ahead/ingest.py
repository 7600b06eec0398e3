"""Adds files of watched folders to the library: each file is parsed only once, even if it is renamed or moved."""

import time
from dataclasses import dataclass, replace

from localctx.engine.runtime import Runtime
from localctx.file_names import real_path, shown_name
from localctx.library.folders.folder_scan import FileStamp, content_hash, stamp_of
from localctx.store.store import Store, store_errors
from localctx.store.watch_list import WatchedFile
from localctx.workflows.manage_library import LibraryWorkflow


@dataclass(frozen=True)
class IngestedFile:
    """The result of adding one file of a watched folder.

    ``status`` is ``added``, ``unchanged``, ``new version``, ``moved``, ``copy`` or ``failed``. ``document`` is the
    document's id. ``why`` is the error, or the earlier path of a file that was moved or copied.
    """

    path: str
    status: str
    document: str = ""
    why: str = ""
    characters: int = 0


class IngestWorkflow:
    """Adds watched files to the ``library`` of a session.

    Use it inside ``Runtime.running``. All methods raise StoreError and Cancelled.
    """

    def __init__(self, runtime: Runtime, library: LibraryWorkflow) -> None:
        self._runtime, self._library = runtime, library

    def ingest(self, path: str, stamp: FileStamp) -> IngestedFile | None:
        """Add the file at ``path`` (a ``stored_path``) to the library and the watch list.

        If a file with the same bytes was parsed before, this file is not parsed again. ``stamp`` is the size and
        modification time of the file when the caller looked at it. Returns None if the file has changed since then.
        """
        store = self._runtime.store
        with store_errors(store.home):
            try:
                content = content_hash(path)
            except OSError as e:
                return IngestedFile(
                    path, "failed", why=f"{path} cannot be read ({e.strerror}); check that you may read it"
                )
            ingested = self._known(store, path, stamp, content) or self._parse(store, path)
            if stamp_of(path) != stamp:
                return None
            if ingested.document:
                self._enter(store, ingested, WatchedFile(path, stamp.bytes, stamp.modified, content, ingested.document))
        return ingested

    def index(self, document: str) -> str | None:
        """Make a document searchable.

        Returns a warning if vectors could not be computed, so that only its words are indexed, else None.
        """
        warning = self._library.index({document})
        with store_errors(self._runtime.store.home):
            self._runtime.store.watch_list.note_indexed(document)
        return warning

    def _known(self, store: Store, path: str, stamp: FileStamp, content: str) -> IngestedFile | None:
        """Returns the result for a file whose bytes were parsed before, at this path or another. Returns None if they
        were not parsed before.
        """
        same = [f for f in store.watch_list.with_content(content) if store.documents.has(f.document)]
        if not same:
            return None
        known = next((f for f in same if f.path == path), None)
        left = next((f for f in same if f.path != path and not stamp_of(f.path)), None)
        found, status = known or left or same[0], "unchanged" if known else "moved" if left else "copy"
        row = store.documents.find(found.document)
        name = shown_name(real_path(path).name)
        store.documents.record_file(replace(row, path=path, name=name, modified=stamp.modified, bytes=stamp.bytes))
        return IngestedFile(path, status, row.id, "" if known else found.path, row.chars)

    def _parse(self, store: Store, path: str) -> IngestedFile:
        (added,) = self._library.add([str(real_path(path))])
        return IngestedFile(path, added.status, added.id, added.why, added.characters)

    def _enter(self, store: Store, ingested: IngestedFile, file: WatchedFile) -> None:
        """Record a file in the watch list. If another file has the same document, its state (indexed, read ahead) is
        copied.
        """
        if same := next(iter(store.watch_list.of_document(file.document)), None):
            file = replace(file, indexed=same.indexed, recipe=same.recipe, note=same.note)
        with store.db.atomic():
            store.watch_list.put(file)
            if ingested.status == "moved":
                store.watch_list.forget(ingested.why)
                store.documents.files.forget(ingested.why)


def note_missing(store: Store, gone: WatchedFile) -> str:
    """Record that the watched file ``gone`` no longer exists. Its document stays in the library.

    Returns the path of another existing file with the same text, or "".
    """
    store.watch_list.note_gone([gone.path], time.time())
    others = (file.path for file in store.documents.files.of_document(gone.document) if file.path != gone.path)
    other = next((path for path in others if stamp_of(path)), "")
    if other:
        store.documents.files.forget(gone.path)
    return other
