"""Lists localctx's data in the data folder with sizes, and deletes it when localctx is uninstalled.

Deletes only files that localctx made, because the data folder may also have other files of the user.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from localctx.settings import Settings

OWN = (
    *("library.db", "library.db-*", "library.db.*", "pages", "originals", "uploads"),
    *("spill", "servers", "bench", "bench-history.*", "quality-*", "*.key"),
    *("models", "adapters", "tried", "machine.json", "formats.json", "advised", "settings.toml", "*.lock"),
    *("backups", "trash", "reserve", "*.log", "*.log.*"),
)
"""Patterns of all names that localctx makes in its data folder."""


@dataclass(frozen=True)
class KeptData:
    """The contents of the data folder ``home``: ``own`` are localctx's paths with their sizes in bytes, ``others`` all
    other paths.
    """

    home: Path
    own: dict[Path, int]
    others: list[Path]

    @property
    def nbytes(self) -> int:
        """The total size of localctx's own paths in bytes."""
        return sum(self.own.values())


def kept_data(settings: Settings) -> KeptData:
    """Returns the contents of the data folder; empty if the folder does not exist."""
    paths = sorted(settings.home.iterdir()) if settings.home.is_dir() else []
    own = {path: _size(path) for path in paths if any(path.match(pattern) for pattern in OWN)}
    return KeptData(settings.home, own, [path for path in paths if path not in own])


def delete_data(data: KeptData) -> None:
    """Delete localctx's own paths, and the data folder if nothing else is in it. Links are not followed. Raises
    OSError.
    """
    for path in data.own:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if data.home.is_dir() and not any(data.home.iterdir()):
        data.home.rmdir()


def removing_command() -> str:
    """Returns the command that uninstalls localctx, depending on how it was installed. The user must run it, because a
    process cannot remove its own program.
    """
    prefix = Path(sys.prefix)
    if prefix.is_relative_to("/usr/lib/localctx"):
        return "sudo apt remove localctx"
    if "pipx" in prefix.parts:
        return "pipx uninstall localctx"
    if prefix.parts[-3:-1] == ("uv", "tools"):
        return "uv tool uninstall localctx"
    if prefix.name == ".venv" and (prefix.parent / "packaging" / "start").is_file():
        return f"delete the folder {prefix.parent}"
    return f"{sys.executable} -m pip uninstall localctx"


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
