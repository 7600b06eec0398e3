"""Looks at the files of watched folders: which are there, which have settled, and what their bytes are."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localctx.file_names import real_path, stored_path
from localctx.library.folders.find import find_documents

_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".tmp", ".swp", "~")
_LOCKS = ("~$", ".~lock.")  # what office programs put beside a document that is open


@dataclass(frozen=True)
class FileStamp:
    """What shows that a file changed: its size, and when it was last written, in nanoseconds since 1970."""

    bytes: int
    modified: int


def scan_folders(folders: Iterable[str]) -> dict[str, FileStamp]:
    """Returns the documents below ``folders``, by absolute ``stored_path``, with their stamps. Empty files are left
    out, and those that a program is still writing by their names.
    """
    found = dict[str, FileStamp]()
    there = [str(real_path(folder)) for folder in folders if real_path(folder).is_dir()]
    for path in map(stored_path, find_documents(there, lambda path, why: None)):
        if not _is_unfinished(Path(path).name) and (stamp := stamp_of(path)) and stamp.bytes:
            found[path] = stamp
    return found


def stamp_of(path: str) -> FileStamp | None:
    """Returns the stamp of a file, by its ``stored_path``; None if it is not there."""
    try:
        about = real_path(path).stat()
    except OSError:
        return None
    return FileStamp(about.st_size, about.st_mtime_ns)


def content_hash(path: str) -> str:
    """Returns a hash of the bytes of a file, by its ``stored_path``. Raises OSError."""
    with real_path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


class SettlingFiles:
    """New and changed files, until they have stayed as they are for ``seconds``: until then somebody may still write
    them.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen = dict[str, tuple[FileStamp, float]]()  # with the time when this stamp was first seen

    def see(self, files: Mapping[str, FileStamp], now: float) -> None:
        """Take note of all new and changed ``files`` as they are ``now``; others are forgotten."""
        seen = self._seen
        self._seen = {p: seen[p] if p in seen and seen[p][0] == s else (s, now) for p, s in files.items()}

    def settled(self, now: float) -> list[tuple[str, FileStamp]]:
        """Returns the files that have settled, the last modified first."""
        ready = [(path, stamp) for path, (stamp, since) in self._seen.items() if now - since >= self._seconds]
        return sorted(ready, key=lambda one: (-one[1].modified, one[0]))

    def drop(self, path: str) -> None:
        """Forget a file: it was dealt with."""
        self._seen.pop(path, None)

    @property
    def paths(self) -> list[str]:
        """The files that have not been dealt with."""
        return list(self._seen)


def _is_unfinished(name: str) -> bool:
    return name.lower().endswith(_UNFINISHED) or name.startswith(_LOCKS)
