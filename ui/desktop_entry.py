"""Adds the window to the desktop's menu, by a desktop entry and an icon in the user's folders.

Follows freedesktop.org's specifications of desktop entries (1.5), icon themes and base directories.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from localctx.errors import UserError

NAME = "localctx"
ICON = Path(__file__).with_name("icon.svg")
_ENTRY = """[Desktop Entry]
Type=Application
Version=1.5
Name=localctx
GenericName=Document assistant
Comment=Ask long documents on your own machine
Exec={command} ui
Icon=localctx
Terminal=true
Categories=Office;Utility;
Keywords=document;question;summary;PDF;
"""
_SPECIAL = '"`$\\'  # characters that must be escaped inside the quotes of an Exec key


def entry_files() -> tuple[Path, Path]:
    """Returns the paths of the entry and the icon. Raises UserError on Windows and macOS, which have no desktop
    entries.
    """
    if sys.platform in ("win32", "darwin"):
        raise UserError("this system has no desktop entries", "open the window with: localctx ui")
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    # the specification says that relative paths must be ignored
    data = named if named.is_absolute() else Path.home() / ".local" / "share"
    return data / "applications" / f"{NAME}.desktop", data / "icons" / "hicolor" / "scalable" / "apps" / f"{NAME}.svg"


def install_entry() -> list[Path]:
    """Write the icon, and the entry, which starts this installation. Returns both paths. Raises UserError, OSError."""
    entry, icon = entry_files()
    for file in (entry, icon):
        file.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text(_ENTRY.format(command=_quoted(_command())), encoding="utf-8")
    shutil.copyfile(ICON, icon)
    _refresh(entry.parent)
    return [entry, icon]


def remove_entry() -> list[Path]:
    """Delete the entry and the icon. Returns the deleted files. Raises UserError, OSError."""
    found = [file for file in entry_files() if file.exists()]
    for file in found:
        file.unlink()
    _refresh(entry_files()[0].parent)
    return found


def _command() -> list[str]:
    """Returns the command that starts this installation, with its full path, because the desktop's PATH may lack its
    folder.
    """
    script = Path(sys.executable).with_name(NAME)
    return [str(script)] if script.is_file() else [sys.executable, "-m", NAME]


def _quoted(command: list[str]) -> str:
    """Returns a command for an Exec key: each word quoted, then escaped as a string of the file."""
    words = []
    for word in command:
        escaped = "".join(f"\\{c}" if c in _SPECIAL else c for c in word).replace("%", "%%")
        words.append(f'"{escaped}"')
    return " ".join(words).replace("\\", "\\\\")


def _refresh(folder: Path) -> None:
    """Run ``update-desktop-database`` if it is installed. Desktops without it notice the change by themselves."""
    if (update := shutil.which("update-desktop-database")) and folder.is_dir():
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([update, folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10)
