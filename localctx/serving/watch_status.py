"""What a watcher of folders tells: an event for each file, and how many files of each folder are ready."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from localctx.store.store import Store
from localctx.store.watch_list import WatchedFile, WatchedFolder

FileNews = Literal["found", "ready", "searchable", "moved", "copy", "deleted", "failed"]


@dataclass(frozen=True)
class FileEvent:
    """News of one file: it was ``found`` (parsed and indexed, and waits to be read ahead); it is ``ready``, or
    ``searchable`` if it will not be read ahead; it was ``moved``, deleted, or failed. ``why`` says why, or where it
    was.
    """

    path: str
    news: FileNews
    document: str = ""
    why: str = ""
    characters: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        match self.news:
            case "found" | "searchable":
                unread = "not read ahead: " if self.news == "searchable" else ""
                why = f"; {unread}{self.why}" if self.why else ""
                return f"{self.path}: searchable, {self.characters:,} characters{why}"
            case "ready":
                return f"{self.path}: ready, {self.tokens:,} tokens read ahead in {self.seconds:.1f} s"
            case "moved":
                return f"{self.path}: moved from {self.why}; nothing is read again"
            case "copy":
                return f"{self.path}: the same as {self.why}; nothing is read again"
            case "deleted":
                return f"{self.path}: deleted; its document stays in the library"
        return self.why

    def to_json(self) -> dict[str, Any]:
        """The event as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class FolderStatus:
    """How many files of a folder are ``ready`` to be asked, ``waiting`` to be parsed, indexed or read ahead, and
    deleted; those that ``failed``, by path, with why. ``missing``: the folder is not there now.
    """

    folder: WatchedFolder
    ready: int = 0
    waiting: int = 0
    deleted: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    missing: bool = False

    def to_json(self) -> dict[str, Any]:
        """The status as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class WatchStatus:
    """All watched folders, and in ``doing`` what the watcher does now, or waits for."""

    folders: Sequence[FolderStatus] = ()
    doing: str = ""


def folder_statuses(store: Store, recipe: str, new: Collection[str], missing: Collection[str]) -> list[FolderStatus]:
    """Returns the status of each folder. ``recipe``: what files are read ahead for, "" if they are not; ``new`` files
    are to be parsed, and the folders ``missing`` are not there.
    """
    known, not_new = {"", *(row.id for row in store.documents.all())}, {*new}
    files = [file for file in store.watch_list.files() if file.document in known and file.path not in not_new]
    return [_status(folder, files, recipe, new, missing) for folder in store.watch_list.folders()]


def is_ready(file: WatchedFile, recipe: str) -> bool:
    """True if nothing is left to be done for a file."""
    return file.indexed and (not recipe or file.recipe == recipe)


def _status(
    folder: WatchedFolder,
    files: Sequence[WatchedFile],
    recipe: str,
    new: Collection[str],
    missing: Collection[str],
) -> FolderStatus:
    mine = [file for file in files if folder.has(file.path)]
    failed = {file.path: file.note for file in mine if not file.document}
    mine = [file for file in mine if file.document]
    here = [file for file in mine if not file.gone]
    ready = sum(is_ready(file, recipe) for file in here)
    unparsed = sum(folder.has(path) for path in new)
    waiting = len(here) - ready + unparsed
    return FolderStatus(folder, ready, waiting, len(mine) - len(here), failed, folder.path in missing)
