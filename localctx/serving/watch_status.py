"""Defines the reports of a folder watcher: an event for each file, and the number of ready files of each folder."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from localctx.store.store import Store
from localctx.store.watch_list import WatchedFile, WatchedFolder

FileNews = Literal["found", "ready", "searchable", "moved", "copy", "deleted", "failed"]


@dataclass(frozen=True)
class FileEvent:
    """An event of one file of a watched folder; ``news`` is the kind of event.

    ``found``: the file was parsed and indexed, and waits to be read ahead; ``why`` is a warning of the index, or "".
    ``ready``: it was read ahead. ``searchable``: it will not be read ahead, for the reason ``why``. ``failed``: ``why``
    is the error.

    ``moved``: ``why`` is the earlier path of the file. ``copy``: ``why`` is the path of a file with the same bytes.
    ``deleted``: the document of the file stays in the library, and ``why`` is the path of another file with the same
    text, or "".
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
        """Returns the event as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class FolderStatus:
    """The state of a watched folder: the numbers of its files that are ready, waiting and deleted.

    ``ready`` files can be asked about; ``waiting`` files must still be parsed, indexed or read ahead. ``failed`` maps
    paths to reasons. ``missing`` is True if the folder does not exist now.
    """

    folder: WatchedFolder
    ready: int = 0
    waiting: int = 0
    deleted: int = 0
    failed: Mapping[str, str] = field(default_factory=dict)
    missing: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the status as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class WatchStatus:
    """The state of all watched folders. ``doing`` says what the watcher does now or waits for."""

    folders: Sequence[FolderStatus] = ()
    doing: str = ""


def folder_statuses(store: Store, recipe: str, new: Collection[str], missing: Collection[str]) -> list[FolderStatus]:
    """Returns the status of each watched folder. ``recipe`` identifies the settings of reading ahead ("": reading ahead
    is off). ``new`` are files that must still be parsed. ``missing`` are folders that do not exist.
    """
    known, not_new = {"", *(row.id for row in store.documents.all())}, {*new}
    files = [file for file in store.watch_list.files() if file.document in known and file.path not in not_new]
    return [_status(folder, files, recipe, new, missing) for folder in store.watch_list.folders()]


def is_ready(file: WatchedFile, recipe: str) -> bool:
    """Returns True if ``file`` has passed all steps: it is parsed, indexed and read ahead. ``recipe`` identifies the
    settings of reading ahead; if it is "", reading ahead is off and not needed.
    """
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
