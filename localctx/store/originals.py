"""Keeps copies of source files, so that their pages can be shown. A copy is stored in originals/ under the hash of its
content.

The kept files share the disk budget with stored pages. Files of the least recently used documents are evicted first.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from sqlite_utils import Database

SHARE = 2  # files may take half of the disk budget; stored pages take the rest


def content_id(data: bytes) -> str:
    """Returns the name under which a file with these bytes is kept: their SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


class Originals:
    """The copies of source files that a store keeps in ``folder``. Files in the folder ``uploads`` are temporary, and
    are deleted by other code.
    """

    def __init__(self, db: Database, folder: Path, uploads: Path) -> None:
        self._db, self._folder, self._uploads = db, folder, uploads

    def is_upload(self, path: str) -> bool:
        """Returns True if the file ``path`` is in the folder of uploads, and is therefore temporary."""
        return Path(path).is_relative_to(self._uploads)

    def keep(self, document: str, path: Path, content: str, budget: int) -> bool:
        """Keep a copy of the file ``path`` for a stored document. ``content`` is the SHA-256 of the file.

        All kept files together may take a fixed share of ``budget``, the disk budget in bytes. To make room, the files
        of documents that were used longest ago are evicted, but not those of pinned documents. Returns False if the
        file does not fit.
        """
        size, limit = path.stat().st_size, budget // SHARE
        if size > limit - sum(self._sizes(pinned_only=True, but=content)):
            return False
        with self._db.atomic():  # other processes wait, so that none deletes the file as unused
            self._db.table("originals").insert({"document": document, "content": content, "bytes": size}, replace=True)
            if self._read(content) is None:  # missing or damaged
                _copy(path, self._folder / content)
            while self.nbytes() > limit and self.evict_one(but=content):
                pass
            self.sweep()  # the document's previous file may be unused now
        return True

    def read(self, document: str) -> bytes | None:
        """Returns the bytes of a document's kept file; None if no file is kept, or if it is damaged."""
        content = self._content(document)
        return self._read(content) if content else None

    def damaged(self) -> list[str]:
        """Returns the names of kept files that are missing or whose bytes do not match their hash."""
        rows = self._db.query("SELECT DISTINCT content FROM originals")
        return [name for name in [row["content"] for row in rows] if self._read(name) is None]

    def forget(self, contents: Iterable[str]) -> None:
        """Delete the files with these names. Their documents stay, without a file."""
        with self._db.atomic():
            for content in contents:
                self._db.execute("DELETE FROM originals WHERE content = ?", [content])
            self.sweep()

    def has(self, document: str) -> bool:
        """Returns True if the file of a document is kept."""
        return bool(self._content(document))

    def nbytes(self) -> int:
        """Returns the total size in bytes of all kept files."""
        return sum(self._sizes())

    def pinned_nbytes(self) -> int:
        """Returns the total size in bytes of the kept files of pinned documents, which are never evicted."""
        return sum(self._sizes(pinned_only=True))

    def evict_one(self, but: str = "") -> bool:
        """Delete the kept file that was used longest ago. The file named ``but`` and files of pinned documents stay.
        Returns False if there is nothing to delete.
        """
        rows = self._db.query(
            """SELECT o.content AS content FROM originals AS o JOIN documents AS d ON d.id = o.document
            WHERE o.content <> ? GROUP BY o.content HAVING max(pinned) = 0 ORDER BY max(used) LIMIT 1""",
            [but],
        )
        for row in list(rows):
            self._db.execute("DELETE FROM originals WHERE content = ?", [row["content"]])
            self.sweep()
            return True
        return False

    def remove_document(self, document: str) -> None:
        """Record that a document no longer has a kept file. ``sweep`` then deletes the file, unless another document or
        the trash refers to it.
        """
        self._db.execute("DELETE FROM originals WHERE document = ?", [document])

    def sweep(self) -> int:
        """Delete the kept files that neither a document nor the trash refers to. Returns the number of bytes freed."""
        freed = 0
        with self._db.atomic():
            rows = self._db.query("SELECT content FROM originals UNION SELECT content FROM deletions")
            kept = {row["content"] for row in rows}
            for file in self._folder.iterdir() if self._folder.is_dir() else ():
                if file.name not in kept:
                    freed += file.stat().st_size
                    file.unlink(missing_ok=True)
        return freed

    def _read(self, content: str) -> bytes | None:
        """Returns the bytes of the file with this name; None if it is missing or its hash differs."""
        try:
            data = (self._folder / content).read_bytes()
        except (OSError, ValueError):
            return None
        return data if content_id(data) == content else None

    def _content(self, document: str) -> str:
        rows = self._db.query("SELECT content FROM originals WHERE document = ?", [document])
        return next((row["content"] for row in rows), "")

    def _sizes(self, pinned_only: bool = False, but: str = "") -> Iterator[int]:
        rows = self._db.query(
            """SELECT max(o.bytes) AS bytes FROM originals AS o JOIN documents AS d ON d.id = o.document
            WHERE o.content <> ? GROUP BY o.content HAVING max(pinned) >= ?""",
            [but, int(pinned_only)],
        )
        return (row["bytes"] for row in rows)


def _copy(path: Path, target: Path) -> None:
    """Copy a file, by a hard link where possible."""
    target.parent.mkdir(mode=0o700, exist_ok=True)
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    with suppress(OSError):
        os.link(path, part)
    if not part.exists():
        shutil.copyfile(path, part)
    part.chmod(0o600)
    part.replace(target)
