"""The models folder: one folder per model, each with a manifest of what it holds, and never half of one.

A model is built in ``.partial/<name>`` by one process at a time and renamed into place last. What an interruption
leaves in ``.partial`` is there for the next try.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from localctx.errors import ModelError
from localctx.models.convert import VERSION, Progress
from localctx.models.fingerprint import hash_file

MANIFEST = "localctx.json"
_PARTIAL = ".partial"

Built = tuple[Path, dict[str, Any]]
"""A finished folder, and where its files are from."""


@dataclass(frozen=True)
class Installed:
    """A model in the models folder: ``ready``, ``damaged`` (files are missing or cut), or ``partial``."""

    name: str
    path: Path
    bytes: int
    state: str


def install(name: str, models_dir: Path, progress: Progress, build: Callable[[Path], Built]) -> Path:
    """The folder of the model ``name``, made by ``build(work)`` if it is not there whole.

    Reports ``waiting`` while another process makes it and ``sealing`` (in files). Raises ModelError when the disk is
    full or read-only or a folder not made here is in the way, and what ``build`` and ``progress`` raise.
    """
    target = models_dir / name
    if is_whole(target):
        return target
    with disk_errors(models_dir), _locked(models_dir, name, progress) as work:
        if not is_whole(target):  # else the process that was waited for has made it
            _refuse_foreign(target)
            built, source = build(work)
            _seal(built, name, source, progress)
            _replace(target, built, work)
        shutil.rmtree(work)
    return target


def remove(name: str, models_dir: Path) -> int:
    """Deletes the model ``name`` and what was fetched of it; returns the bytes freed. ModelError if there is none."""
    folder = folder_name(name)
    if folder not in (there := [model.name for model in installed(models_dir)]):
        raise unknown(name, there)
    if (models_dir / folder).exists():
        _refuse_foreign(models_dir / folder)
    with disk_errors(models_dir), _locked(models_dir, folder, lambda *_: None) as work:
        freed = folder_bytes(models_dir / folder) + folder_bytes(work)
        _replace(models_dir / folder, None, work)
        shutil.rmtree(work)
    return freed


def installed(models_dir: Path) -> list[Installed]:
    """What the models folder holds, by name; ``partial`` only for what is not there otherwise."""
    found = {}
    for path in [*models_dir.glob(f"{_PARTIAL}/*/"), *models_dir.glob("[!.]*/")]:
        whole = "ready" if is_whole(path) else "damaged"
        state = "partial" if path.parent.name == _PARTIAL else whole
        found[path.name] = Installed(path.name, path, folder_bytes(path), state)
    return sorted(found.values(), key=lambda model: model.name)


def verify(folder: Path) -> list[str]:
    """The files of an installed model whose content is not what was installed (all are hashed, at about 3 GB/s).

    Raises ModelError if the folder has no manifest to compare with.
    """
    if not (files := _files(folder)):
        raise ModelError(f"{folder} has no {MANIFEST}", "only models that localctx installed can be verified")
    paths = {name: folder / name for name in files}
    return [name for name, path in paths.items() if not path.is_file() or hash_file(path) != files[name]["blake3"]]


def is_whole(folder: Path) -> bool:
    """Whether every file of the manifest is there in its full size; their content is what ``verify`` looks at."""
    files = _files(folder)
    paths = {name: folder / name for name in files}
    return bool(files) and all(p.is_file() and p.stat().st_size == files[name]["bytes"] for name, p in paths.items())


def folder_name(name: str) -> str:
    """The folder of a catalogue name or hub id inside the models folder."""
    return name.replace("/", "--")


def unknown(name: str, names: list[str]) -> ModelError:
    """The error for a name that means nothing, with those of ``names`` it may have been meant for."""
    near = get_close_matches(name, names, cutoff=0.5)
    hint = f" (near: {', '.join(near)})" if near else ""
    remedy = "see localctx models list, or name a folder, a .gguf file or a hub id owner/name"
    return ModelError(f"there is no model {name!r}{hint}", remedy)


def check_space(folder: Path, need: int) -> None:
    """Raises ModelError if the disk of ``folder`` has fewer than ``need`` bytes free."""
    if need > (free := shutil.disk_usage(folder).free):
        raise ModelError(f"the model needs {need / 1e9:.1f} GB and {free / 1e9:.1f} GB are free", _SPACE)


def folder_bytes(folder: Path) -> int:
    """Bytes in the files under ``folder``, which may come and go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(place, name).stat().st_size
            except FileNotFoundError:
                continue
    return total


_SPACE = "free some space, or set LOCALCTX_HOME to a folder on another disk"
_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or set LOCALCTX_HOME to a folder on another disk",
}


@contextmanager
def disk_errors(models_dir: Path) -> Iterator[None]:
    """Turns an OSError into the ModelError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(
            error.errno or 0, "make it readable and writable, or set LOCALCTX_HOME to another folder"
        )
        raise ModelError(f"{error.filename or models_dir}: {error.strerror or error}", remedy) from error


def _seal(folder: Path, name: str, source: dict[str, Any], progress: Progress) -> None:
    """Writes the manifest, and every file down to the disk."""
    files = {}
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for done, path in enumerate(paths):
        progress("sealing", done, len(paths))
        files[path.name] = {"bytes": path.stat().st_size, "blake3": hash_file(path)}
    said = {"name": name, "source": source, "converter": VERSION, "files": files}
    (folder / MANIFEST).write_text(json.dumps(said, indent=1) + "\n")
    for path in [*paths, folder / MANIFEST, folder]:
        _sync(path)


def _replace(target: Path, built: Path | None, work: Path) -> None:
    """Puts ``built``, or nothing, in the place of ``target``, which moves into ``work`` to be deleted at leisure."""
    if target.exists():
        target.replace(work / "old")
    if built:
        built.replace(target)
    _sync(target.parent)


def _refuse_foreign(target: Path) -> None:
    if target.exists() and not (target / MANIFEST).is_file():
        raise ModelError(f"{target} is there, but not made by localctx", "move it away, or give its path to --model")


def _files(folder: Path) -> dict[str, Any]:
    """What the manifest says of each file; nothing if there is no sound manifest."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        return files if all({"bytes", "blake3"} <= said.keys() for said in files.values()) else {}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


@contextmanager
def _locked(models_dir: Path, name: str, progress: Progress) -> Iterator[Path]:
    """The work folder of one model, for this process alone."""
    from filelock import FileLock, Timeout

    work = models_dir / _PARTIAL / name
    work.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work.with_name(f"{name}.lock"))
    while not lock.is_locked:
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            progress("waiting", 0, 0)
    try:
        work.mkdir(exist_ok=True)
        yield work
    finally:
        with suppress(OSError):
            work.rmdir()  # nothing was fetched: nothing to go on with
        lock.release()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
