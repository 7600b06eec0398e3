"""Expands paths, folders and patterns to files, in order, and reports the files that are skipped."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

LEADS_OUT = "is a link out of its folder"
"""The reason for skipping a link: an untrusted folder could link to the user's other files."""

_NO_DOCUMENTS = {
    *(".avif", ".bmp", ".gif", ".heic", ".ico", ".jpeg", ".jpg", ".png", ".svg", ".tif", ".tiff", ".webp"),
    *(".aac", ".avi", ".flac", ".m4a", ".mkv", ".mov", ".mp3", ".mp4", ".ogg", ".opus", ".wav", ".webm"),
    *(".7z", ".bz2", ".gz", ".iso", ".jar", ".rar", ".tar", ".tgz", ".whl", ".xz", ".zip", ".zst"),
    *(".a", ".bin", ".class", ".dll", ".dylib", ".exe", ".o", ".pyc", ".so", ".wasm"),
    *(".db", ".gguf", ".npy", ".npz", ".parquet", ".pickle", ".pkl", ".pt", ".safetensors", ".sqlite"),
    *(".otf", ".ttf", ".woff", ".woff2"),
}  # skipped in folders; a file that the user names is read whatever its suffix
_UNFINISHED = (".part", ".partial", ".crdownload", ".download", ".tmp", ".swp", "~")
_LOCKS = ("~$", ".~lock.")  # office programs' lock files beside an open document


def find_documents(sources: Iterable[str], on_skip: Callable[[str, str], None]) -> Iterator[str]:
    """Yields the paths of all files in ``sources``, which are files, ``*`` patterns, and folders with everything below.
    The paths are sorted, each once.

    ``-`` (standard input) is yielded unchanged. Calls ``on_skip(path, why)`` for everything in a folder that is
    skipped: hidden names, links to folders, links out of the folder, special files, files that are not documents, files
    that a program is still writing, and folders that cannot be opened.
    """
    seen: set[str] = set()
    for source in sources:
        for file in _expand(source, on_skip):
            if (key := file if file == "-" else str(Path(file).absolute())) not in seen:
                seen.add(key)
                yield file


def _expand(source: str, on_skip: Callable[[str, str], None]) -> Iterator[str]:
    literal = source == "-" or os.path.lexists(source)
    matches = [] if literal else sorted(glob.glob(source, recursive=True))  # noqa: PTH207 (patterns may be absolute)
    for path in matches or [source]:  # reading a missing file raises the error
        if path != "-" and os.path.isdir(path):  # noqa: PTH112 (pathlib raises for names that cannot be)
            yield from _walk_folder(path, on_skip)
        else:
            yield path


def _walk_folder(folder: str, on_skip: Callable[[str, str], None]) -> Iterator[str]:
    def on_error(e: OSError) -> None:
        on_skip(str(e.filename), f"cannot be opened ({e.strerror})")

    root = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder, onerror=on_error):  # does not follow links, so it ends
        for name in sorted(folders):
            path = Path(parent, name)
            if why := "is hidden" if name.startswith(".") else "is a link to a folder" if path.is_symlink() else "":
                on_skip(str(path), why)
                folders.remove(name)
        folders.sort()
        for path in (Path(parent, name) for name in sorted(files)):
            if why := _skip_reason(path, root):
                on_skip(str(path), why)
            else:
                yield str(path)


def _skip_reason(path: Path, root: str) -> str:
    """Returns why a file below the folder ``root`` is skipped, or "" if it is a document."""
    if path.name.startswith("."):
        return "is hidden"
    if path.suffix.lower() in _NO_DOCUMENTS:
        return "does not have the name of a document"
    if path.name.lower().endswith(_UNFINISHED) or path.name.startswith(_LOCKS):
        return "has the name of an unfinished file"
    if not path.is_file():
        return "is not a file, or a link to none"
    inside = not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(root)
    return "" if inside else LEADS_OUT
