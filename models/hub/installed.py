"""The models folder: one complete folder per model, each with a manifest of its files.

One process at a time builds a model in ``.partial/<name>`` and renames it at the end. After an interruption, the next
attempt resumes from ``.partial``.
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
from localctx.models.fingerprint import hash_file
from localctx.models.hub.convert import VERSION, ProgressCallback
from localctx.system import sync

MANIFEST = "localctx.json"
FREE_SPACE = "free some space, or set LOCALCTX_HOME to a folder on another disk"
"""The remedy shown if a model does not fit on the disk."""

_PARTIAL = ".partial"

BuiltModel = tuple[Path, dict[str, Any]]
"""A finished folder and, for the manifest, the source of its files."""


@dataclass(frozen=True)
class InstalledModel:
    """A model in the models folder. ``state`` is ``ready``, ``damaged`` (files are missing or truncated) or ``partial``
    (the download is not complete).
    """

    name: str
    path: Path
    bytes: int
    state: str


def install(name: str, models_dir: Path, progress: ProgressCallback, build: Callable[[Path], BuiltModel]) -> Path:
    """Returns the folder of the model ``name``. If the model is not complete, it is first built with ``build(work
    folder)``.

    Reports ``waiting`` while another process builds the model, and ``sealing`` (in files) while its files are hashed.
    Raises ModelError if the disk is full or read-only, or if a folder not made by localctx has this name. Raises any
    exception from ``build`` and ``progress``.
    """
    target = models_dir / name
    if is_complete(target):
        return target
    with disk_errors(models_dir), _locked(models_dir, name, progress) as work_folder:
        if not is_complete(target):  # else another process has built it meanwhile
            _refuse_foreign(target)
            built, source = build(work_folder)
            _seal(built, name, source, progress)
            _replace(target, built, work_folder)
        shutil.rmtree(work_folder)
    return target


def remove(name: str, models_dir: Path) -> int:
    """Delete the model ``name`` and its partial downloads. Returns the number of bytes freed. Raises ModelError if
    unknown.
    """
    folder = folder_name(name)
    if folder not in (names := [model.name for model in list_installed(models_dir)]):
        raise unknown_model_error(name, names)
    if (models_dir / folder).exists():
        _refuse_foreign(models_dir / folder)
    with disk_errors(models_dir), _locked(models_dir, folder, lambda *_: None) as work_folder:
        freed = folder_bytes(models_dir / folder) + folder_bytes(work_folder)
        _replace(models_dir / folder, None, work_folder)
        shutil.rmtree(work_folder)
    return freed


def list_installed(models_dir: Path) -> list[InstalledModel]:
    """Returns the models in the models folder, sorted by name. If a model is installed and also has a partial download,
    only the installed one is listed.
    """
    models = {}
    for path in [*models_dir.glob(f"{_PARTIAL}/*/"), *models_dir.glob("[!.]*/")]:
        installed_state = "ready" if is_complete(path) else "damaged"
        state = "partial" if path.parent.name == _PARTIAL else installed_state
        models[path.name] = InstalledModel(path.name, path, folder_bytes(path), state)
    return sorted(models.values(), key=lambda model: model.name)


def verify(folder: Path) -> list[str]:
    """Hash all files of an installed model, at about 3 GB/s. Returns the names of files that differ from the manifest.

    Raises ModelError if the folder has no manifest.
    """
    if not (files := _files(folder)):
        raise ModelError(f"{folder} has no {MANIFEST}", "only models that localctx installed can be verified")
    paths = {name: folder / name for name in files}
    return [name for name, path in paths.items() if not path.is_file() or hash_file(path) != files[name]["blake3"]]


def source_kind(folder: Path) -> str:
    """Returns where an installed model came from: ``pip``, ``hub``, ``mirror`` or ``gguf``; "" for a folder that
    localctx did not make.
    """
    try:
        return str(json.loads((folder / MANIFEST).read_bytes())["source"]["kind"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def is_complete(folder: Path) -> bool:
    """Returns True if every file in the manifest exists with the right size. ``verify`` checks the content."""
    files = _files(folder)
    paths = {name: folder / name for name in files}
    return bool(files) and all(p.is_file() and p.stat().st_size == files[name]["bytes"] for name, p in paths.items())


def folder_name(name: str) -> str:
    """Returns the name of a model's folder in the models folder, for a catalogue name or hub id."""
    return name.replace("/", "--")


def unknown_model_error(name: str, names: list[str]) -> ModelError:
    """Returns the error for an unknown model, which suggests similar ``names``."""
    near = get_close_matches(name, names, cutoff=0.5)
    hint = f" (near: {', '.join(near)})" if near else ""
    remedy = "see localctx models list, or name a folder, a .gguf file or a hub id owner/name"
    return ModelError(f"there is no model {name!r}{hint}", remedy)


def check_space(folder: Path, need: int) -> None:
    """Raise ModelError if the disk of ``folder`` has fewer than ``need`` bytes free."""
    if need > (free := shutil.disk_usage(folder).free):
        raise ModelError(f"the model needs {need / 1e9:.1f} GB and {free / 1e9:.1f} GB are free", FREE_SPACE)


def folder_bytes(folder: Path) -> int:
    """Returns the total size in bytes of the files under ``folder``. Files may appear and disappear meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(parent, name).stat().st_size
            except FileNotFoundError:
                continue
    return total


_REMEDIES = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or set LOCALCTX_HOME to a folder on another disk",
}


@contextmanager
def disk_errors(models_dir: Path) -> Iterator[None]:
    """Within the block, convert an OSError to a ModelError that names the file and a remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(
            error.errno or 0, "make it readable and writable, or set LOCALCTX_HOME to another folder"
        )
        raise ModelError(f"{error.filename or models_dir}: {error.strerror or error}", remedy) from error


def _seal(folder: Path, name: str, source: dict[str, Any], progress: ProgressCallback) -> None:
    """Write the manifest, and sync every file to disk."""
    files = {}
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    for done, path in enumerate(paths):
        progress("sealing", done, len(paths))
        files[path.name] = {"bytes": path.stat().st_size, "blake3": hash_file(path)}
    manifest = {"name": name, "source": source, "converter": VERSION, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    for path in [*paths, folder / MANIFEST, folder]:
        sync(path)


def _replace(target: Path, built: Path | None, work_folder: Path) -> None:
    """Replace ``target`` by ``built``, or only remove it. The old folder is moved to ``work_folder``, where it is
    deleted later.
    """
    if target.exists():
        target.replace(work_folder / "old")
    if built:
        built.replace(target)
    sync(target.parent)


def _refuse_foreign(target: Path) -> None:
    if target.exists() and not (target / MANIFEST).is_file():
        raise ModelError(f"{target} exists, but localctx did not make it", "move it away, or give its path to --model")


def _files(folder: Path) -> dict[str, Any]:
    """Returns the entry of each file in the manifest, by name; empty if there is no valid manifest."""
    try:
        files = json.loads((folder / MANIFEST).read_bytes())["files"]
        return files if all({"bytes", "blake3"} <= entry.keys() for entry in files.values()) else {}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}


@contextmanager
def _locked(models_dir: Path, name: str, progress: ProgressCallback) -> Iterator[Path]:
    """Lock and yield the work folder of one model. Reports ``waiting`` while another process holds the lock."""
    from filelock import FileLock, Timeout

    work_folder = models_dir / _PARTIAL / name
    work_folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work_folder.with_name(f"{name}.lock"))
    while not lock.is_locked:
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            progress("waiting", 0, 0)
    try:
        work_folder.mkdir(exist_ok=True)
        yield work_folder
    finally:
        with suppress(OSError):
            work_folder.rmdir()  # succeeds only if it is empty, so there is nothing to resume
        lock.release()
