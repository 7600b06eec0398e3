"""Looks at the files of watched folders: which are there, which have settled, and what their bytes are."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from localctx.library.find import find_documents

_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".tmp", ".swp", "~")
_LOCKS = ("~$", ".~lock.")  # what office programs put beside a document that is open


@dataclass(frozen=True)
class FileStamp:
    """What shows that a file changed: its size, and when it was last written, in nanoseconds since 1970."""

    bytes: int
    modified: int


def scan_folders(folders: Iterable[str]) -> dict[str, FileStamp]:
    """Returns the documents below ``folders``, by absolute path, with their stamps. Empty files are left out, those
    that a program is still writing by their names, and those whose names are not Unicode.
    """
    found = dict[str, FileStamp]()
    for path in find_documents([f for f in folders if Path(f).is_dir()], lambda path, why: None):
        if not _is_unfinished(Path(path).name) and _is_unicode(path) and (stamp := stamp_of(path)) and stamp.bytes:
            found[path] = stamp
    return found


def stamp_of(path: str) -> FileStamp | None:
    """Returns the stamp of a file; None if it is not there."""
    try:
        about = Path(path).stat()
    except OSError:
        return None
    return FileStamp(about.st_size, about.st_mtime_ns)


def content_hash(path: str) -> str:
    """Returns a hash of a file's bytes. Raises OSError."""
    with Path(path).open("rb") as file:
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


def _is_unicode(path: str) -> bool:
    return path == path.encode(errors="replace").decode()


def _is_unfinished(name: str) -> bool:
    return name.lower().endswith(_UNFINISHED) or name.startswith(_LOCKS)
