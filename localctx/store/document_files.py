"""The files of documents. Records which document was last read from each path. Files with the same text share a
document.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from sqlite_utils import Database

from localctx.errors import DocumentError
from localctx.file_names import real_path, shown_name, stored_path

FILE_COLUMNS = ("path", "name", "encoding", "bytes", "modified", "content", "unread")
"""The columns that describe the file of a document, in the tables ``files`` and ``documents``."""

_PREVIOUS_COLLECTIONS = """INSERT OR IGNORE INTO collection_documents (collection, document)
    SELECT collection, ? FROM collection_documents WHERE document = ?"""


@dataclass(frozen=True)
class DocumentFile:
    """A file at ``path`` that was read. The text of the file is the document with the id ``document``. ``read`` is the
    time of reading, in seconds since 1970.

    The other fields (FILE_COLUMNS) mean the same as in a DocumentRow.
    """

    path: str
    document: str
    name: str
    encoding: str
    bytes: int
    modified: int
    content: str
    unread: str
    read: float


class DocumentFiles:
    """Records the files that documents were read from. A document that came from standard input has no file. Files in
    the folder ``uploads`` are temporary.
    """

    def __init__(self, db: Database, uploads: Path) -> None:
        self._db, self._uploads = db, uploads

    def get(self, path: str) -> DocumentFile | None:
        """Returns the file that was read from ``path``, or None."""
        return next(iter(self._rows("path = ?", path)), None)

    def of_document(self, document: str) -> list[DocumentFile]:
        """Returns the files whose text is this document; the file that was read last comes first."""
        return self._rows("document = ?", document)

    def any_of_size(self, nbytes: int) -> bool:
        """Returns True if any recorded file has this size in bytes."""
        return bool(self._db.table("files").count_where("bytes = ?", [nbytes]))

    def with_content(self, content: str) -> list[DocumentFile]:
        """Returns the files whose bytes have the SHA-256 ``content`` (hex); the file that was read last comes first."""
        return self._rows("content = ?", content)

    def one_of_several(self, document: str, query: str) -> DocumentFile | None:
        """Returns the file of a document that ``query`` names by its path or file name. Returns None if the document
        has only one file, or none with this name.

        Raises DocumentError if ``query`` names several files.
        """
        files, paths = self.of_document(document), paths_meant(query)
        named = [file for file in files if file.path in paths]
        named = named or [file for file in files if file.name == shown_name(query)]
        if len(named) > 1:
            problem = f"{shown_name(query)!r} names {len(named)} files with the same text"
            raise DocumentError(problem, "say which by its path, or all of them by the id")
        return named[0] if named and len(files) > 1 else None

    def all(self) -> dict[str, list[DocumentFile]]:
        """Returns the files of each document that has files, by the id of the document. The file that was read last
        comes first.
        """
        found = dict[str, list[DocumentFile]]()
        for file in self._rows("1"):
            found.setdefault(file.document, []).append(file)
        return found

    def assign(self, file: DocumentFile) -> bool:
        """Record that ``file`` was read and has the text of ``file.document``. Returns True if another document was
        read from the same path before.

        The earlier document becomes an older version of the new one, if it has no other file. If it has another file,
        it stays current, and the new document is added to the same collections.
        """
        before = self.get(file.path)
        self._db.table("files").upsert(asdict(file), pk="path")
        self._forget_moved(file)
        if before is None or before.document == file.document:
            return False
        if self.of_document(before.document):
            self._db.execute(_PREVIOUS_COLLECTIONS, [file.document, before.document])
            self.show_a_file(before.document)
        else:
            supersede = "UPDATE documents SET superseded = ? WHERE id = ?"
            self._db.execute(supersede, [file.document, before.document])
        return True

    def forget(self, path: str) -> None:
        """Delete the record of the file at ``path``. Its document stays."""
        with self._db.atomic():
            gone = self.get(path)
            self._db.execute("DELETE FROM files WHERE path = ?", [path])
            if gone:
                self.show_a_file(gone.document)

    def show_a_file(self, document: str) -> None:
        """If a document is named after a path that is no longer one of its files, name the document after the file that
        was read last.
        """
        files = self.of_document(document)
        named = next(iter(self._db.query("SELECT path FROM documents WHERE id = ?", [document])), None)
        if files and named and named["path"] not in {file.path for file in files}:
            self._db.table("documents").update(document, {name: getattr(files[0], name) for name in FILE_COLUMNS})

    def remove_document(self, document: str) -> None:
        """Delete the records of the files of a document that is removed."""
        self._db.execute("DELETE FROM files WHERE document = ?", [document])

    def _forget_moved(self, file: DocumentFile) -> None:
        """Delete the records of earlier copies of ``file`` with the same text: files that no longer exist and have the
        same size and modification time, and uploads with the same name.
        """
        for other in self.of_document(file.document):
            if other.path != file.path and (self._is_upload_of(file, other) or _was_moved(other, file)):
                self._db.execute("DELETE FROM files WHERE path = ?", [other.path])

    def _is_upload_of(self, file: DocumentFile, other: DocumentFile) -> bool:
        return other.name == file.name and Path(other.path).is_relative_to(self._uploads)

    def _rows(self, where: str, *values: str) -> list[DocumentFile]:
        columns = ", ".join(DocumentFile.__annotations__)
        rows = self._db.query(f"SELECT {columns} FROM files WHERE {where} ORDER BY read DESC, path", values)
        return [DocumentFile(**row) for row in rows]


def paths_meant(query: str) -> tuple[str, str]:
    """Returns the two paths that a user may mean by ``query``: ``query`` itself, and the file of this name in the
    current folder.
    """
    return stored_path(query), stored_path(Path(query).absolute())


def fill_files(db: Database) -> None:
    """Add missing rows to the table of files: each current document without a file gets a row with the document's
    path, unless that path has another document.
    """
    db.execute(
        """INSERT OR IGNORE INTO files (path, document, name, encoding, bytes, modified, content, unread, read)
        SELECT path, id, name, encoding, bytes, modified, content, unread, used FROM documents
        WHERE path <> '-' AND superseded IS NULL AND id NOT IN (SELECT document FROM files) ORDER BY added DESC"""
    )


def _was_moved(old: DocumentFile, new: DocumentFile) -> bool:
    """True if the file ``old`` no longer exists, and ``new`` has the same size and modification time."""
    try:
        is_there = real_path(old.path).exists()
    except (OSError, ValueError):
        is_there = False
    return not is_there and bool(old.modified) and (old.bytes, old.modified) == (new.bytes, new.modified)
