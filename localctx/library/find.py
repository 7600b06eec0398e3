"""Paths, folders and patterns to the files they mean, in order; what is passed over is told."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_NO_DOCUMENTS = {
    *(".avif", ".bmp", ".gif", ".heic", ".ico", ".jpeg", ".jpg", ".png", ".svg", ".tif", ".tiff", ".webp"),
    *(".aac", ".avi", ".flac", ".m4a", ".mkv", ".mov", ".mp3", ".mp4", ".ogg", ".opus", ".wav", ".webm"),
    *(".7z", ".bz2", ".gz", ".iso", ".jar", ".rar", ".tar", ".tgz", ".whl", ".xz", ".zip", ".zst"),
    *(".a", ".bin", ".class", ".dll", ".dylib", ".exe", ".o", ".pyc", ".so", ".wasm"),
    *(".db", ".gguf", ".npy", ".npz", ".parquet", ".pickle", ".pkl", ".pt", ".safetensors", ".sqlite"),
    *(".otf", ".ttf", ".woff", ".woff2"),
}  # in a folder these are neighbours of documents; named alone, they are read and told about


def find_documents(sources: Iterable[str], passed_over: Callable[[str, str], None]) -> Iterator[str]:
    """The files that ``sources`` mean: files as named, ``*`` patterns, folders with all below, sorted, each once.

    ``-`` stays. ``passed_over(path, why)`` hears of what a folder holds that is not read: hidden names, links to
    folders, what is no file or no document, folders that cannot be opened.
    """
    seen: set[str] = set()
    for source in sources:
        for file in _expand(source, passed_over):
            if (place := file if file == "-" else str(Path(file).absolute())) not in seen:
                seen.add(place)
                yield file


def _expand(source: str, passed_over: Callable[[str, str], None]) -> Iterator[str]:
    literal = source == "-" or os.path.lexists(source)
    named = [] if literal else sorted(glob.glob(source, recursive=True))  # noqa: PTH207 (patterns may be absolute)
    for path in named or [source]:  # what is not there is told by who reads it
        if path != "-" and os.path.isdir(path):  # noqa: PTH112 (pathlib raises for names that cannot be)
            yield from _below(path, passed_over)
        else:
            yield path


def _below(folder: str, passed_over: Callable[[str, str], None]) -> Iterator[str]:
    def closed(e: OSError) -> None:
        passed_over(str(e.filename), f"cannot be opened ({e.strerror})")

    for here, folders, files in os.walk(folder, onerror=closed):  # follows no links: no loops
        for name in sorted(folders):
            path = Path(here, name)
            if why := "is hidden" if name.startswith(".") else "is a link to a folder" if path.is_symlink() else "":
                passed_over(str(path), why)
                folders.remove(name)
        folders.sort()
        for path in (Path(here, name) for name in sorted(files)):
            if why := _no_document(path):
                passed_over(str(path), why)
            else:
                yield str(path)


def _no_document(path: Path) -> str:
    """Why a file found in a folder is not read; empty where it is."""
    if path.name.startswith("."):
        return "is hidden"
    if path.suffix.lower() in _NO_DOCUMENTS:
        return "is no document by its name"
    return "" if path.is_file() else "is no file, or a link to none"
