"""Scans watched folders: finds their files, hashes them, and finds out which files are no longer being written."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localctx.file_names import real_path, stored_path
from localctx.library.folders.find import find_documents

SETTLE = 2.0  # seconds without a change until a file counts as completely written
GONE = 3  # settle times until a missing file counts as deleted, because it may have moved


@dataclass(frozen=True)
class FileStamp:
    """The size of a file in bytes, and its modification time in nanoseconds since 1970. A changed file has another
    stamp.
    """

    bytes: int
    modified: int


def scan_folders(folders: Iterable[str]) -> dict[str, FileStamp]:
    """Returns the stamp of each document file below ``folders``, by the file's ``stored_path``.

    Empty files are left out.
    """
    found = dict[str, FileStamp]()
    there = [str(real_path(folder)) for folder in folders if real_path(folder).is_dir()]
    for path in map(stored_path, find_documents(there, lambda path, why: None)):
        if (stamp := stamp_of(path)) and stamp.bytes:
            found[path] = stamp
    return found


def stamp_of(path: str) -> FileStamp | None:
    """Returns the stamp of the file with this ``stored_path``, or None if it is missing."""
    try:
        about = real_path(path).stat()
    except OSError:
        return None
    return FileStamp(about.st_size, about.st_mtime_ns)


def content_hash(path: str) -> str:
    """Returns the BLAKE2b hash of the file with this ``stored_path``. Raises OSError."""
    with real_path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


class SettlingFiles:
    """Remembers new and changed files until no program is writing them any more.

    A file has settled when it has not changed for ``seconds`` seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._seen = dict[str, tuple[FileStamp, float]]()  # with the time when this stamp was first seen

    def see(self, files: Mapping[str, FileStamp], now: float) -> None:
        """Record the new and changed ``files`` that a scan found at the time ``now``, and forget all other files."""
        seen = self._seen
        self._seen = {p: seen[p] if p in seen and seen[p][0] == s else (s, now) for p, s in files.items()}

    def settled(self, now: float) -> list[tuple[str, FileStamp]]:
        """Returns the files that have settled at the time ``now`` (unchanged for long enough), latest modified
        first.
        """
        ready = [(path, stamp) for path, (stamp, since) in self._seen.items() if now - since >= self._seconds]
        return sorted(ready, key=lambda one: (-one[1].modified, one[0]))

    def drop(self, path: str) -> None:
        """Forget a file that was processed."""
        self._seen.pop(path, None)

    @property
    def paths(self) -> list[str]:
        """The files not yet processed."""
        return list(self._seen)
