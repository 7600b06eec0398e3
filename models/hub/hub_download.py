"""Child process that downloads one model from the Hugging Face hub: ``python -m localctx.models.hub.hub_download``.

Arguments: repository, revision, target folder ("" only looks up the model), plan file (commit, file sizes and model
data), and a pattern for GGUF files. Without a pattern it downloads safetensors, configs and tokenizers, never pickled
weights. On failure it prints one line and exits with 1, HUB_UNREACHABLE or DISK_FULL.
"""

import hashlib
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

HUB_UNREACHABLE = 69
DISK_FULL = 73
TIMEOUT = 5  # seconds to wait for the hub's response
PARALLEL = 4  # files downloaded at a time

_KINDS = {".json", ".safetensors", ".txt", ".jinja", ".model"}


@dataclass(frozen=True)
class HubFile:
    """A file of a repository, with its size in bytes and the hub's hash: the SHA-256 of a large file's content, or the
    git blob SHA-1 of a small file.
    """

    name: str
    bytes: int
    digest: str

    def matches(self, path: Path) -> bool:
        """Returns True if the file at ``path`` has the size and hash of this file."""
        if not path.is_file() or path.stat().st_size != self.bytes:
            return False
        large = len(self.digest) == hashlib.sha256().digest_size * 2
        start = hashlib.sha256() if large else hashlib.sha1(f"blob {self.bytes}\0".encode(), usedforsecurity=False)
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: start).hexdigest() == self.digest


def wanted(name: str, pattern: str = "") -> bool:
    """Returns True if the repository's file ``name`` has to be downloaded: with a ``pattern``, a GGUF file that matches
    it; without one, a file that transformers needs.
    """
    if pattern:
        return "/" not in name and name.endswith(".gguf") and fnmatchcase(name, pattern)
    return "/" not in name and Path(name).suffix in _KINDS and not name.startswith("consolidated")


def main(repo: str, revision: str, folder: str, plan: str, pattern: str = "") -> None:
    """Download files of ``repo`` that are missing in ``folder``. On failure, print one line and exit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
        files = _files(info, pattern)
        Path(plan).with_suffix(".part").write_text(json.dumps(_described(info, files)), "utf-8")
        Path(plan).with_suffix(".part").replace(plan)
        if folder:
            _make_room(files, Path(folder))
            _download(repo, str(info.sha), files, Path(folder))
    except GatedRepoError:
        sys.exit(f"accept its licence at https://huggingface.co/{repo} first, then run: hf auth login")
    except (RepositoryNotFoundError, RevisionNotFoundError):
        sys.exit("there is no such model, or it is private")
    except Exception as error:  # the parent process shows only the last line
        print(f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}", file=sys.stderr)
        sys.exit(HUB_UNREACHABLE if _is_network_error(error) else 1)


def _is_network_error(error: Exception) -> bool:
    """Returns True for a failed connection. Errors are recognized by class name, because the hub's library has changed
    its HTTP client before.
    """
    return any(kind.__name__ in ("ConnectionError", "TransportError") for kind in type(error).__mro__)


def _files(info: Any, pattern: str) -> list[HubFile]:
    """Returns the files to download. Exits if they do not form a model."""
    siblings = [file for file in info.siblings if wanted(file.rfilename, pattern)]
    files = [HubFile(f.rfilename, f.size or 0, f.lfs.sha256 if f.lfs else f.blob_id or "") for f in siblings]
    names = {file.name for file in files}
    if pattern and not files:
        sys.exit(f"it has no GGUF file like {pattern}")
    if not pattern and not (any(name.endswith(".safetensors") for name in names) and "config.json" in names):
        sys.exit("it has no config.json with *.safetensors beside it (pickled weights are never loaded)")
    return files


def _described(info: Any, files: list[HubFile]) -> dict[str, Any]:
    """Returns the content of the plan file: commit, file sizes, and the hub's data about the model."""
    return {
        "commit": str(info.sha),
        "files": {file.name: file.bytes for file in files},
        "licence": _licence(info.card_data or {}),
        "parameters": info.safetensors.total if info.safetensors else 0,
        "family": str((info.config or {}).get("model_type") or ""),
    }


def _licence(card: Any) -> str:
    """Returns the licence in a model card, or its ``license_name`` if the hub lists it as "other"."""
    told = str(card.get("license") or "")
    return str(card.get("license_name") or told) if told == "other" else told


def _make_room(files: list[HubFile], folder: Path) -> None:
    """Create the folder and remove stale files. Exits if the remaining download does not fit on the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {path for file in files for path in (folder / file.name, _part(file, folder))}
    for path in folder.iterdir():
        if path not in known:  # from another version, or left by an older localctx
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    present = sum(path.stat().st_size for path in folder.iterdir())
    if (missing := sum(file.bytes for file in files) - present) > (free := shutil.disk_usage(folder).free):
        print(f"it needs {missing / 1e9:.1f} GB more and {free / 1e9:.1f} GB are free", file=sys.stderr)
        sys.exit(DISK_FULL)


def _download(repo: str, commit: str, files: list[HubFile], folder: Path) -> None:
    with ThreadPoolExecutor(PARALLEL) as pool:
        downloads = [pool.submit(partial(_fetch, repo, commit, file, folder)) for file in files]
        try:
            for download in downloads:
                download.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _fetch(repo: str, commit: str, file: HubFile, folder: Path) -> None:
    """Download a file, resuming an earlier attempt, and check its hash."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    if file.matches(folder / file.name):
        return
    part = _part(file, folder)
    metadata = get_hf_file_metadata(hf_hub_url(repo, file.name, revision=commit))
    if part.exists() and part.stat().st_size > file.bytes:
        part.unlink()  # it cannot be a prefix of the file
    with part.open("ab") as target:
        headers = {"Accept-Encoding": "identity"}  # compressed transfers could not be resumed
        headers |= build_hf_headers() if metadata.location.startswith(_endpoint()) else {}
        http_get(metadata.location, target, resume_size=part.stat().st_size, headers=headers, expected_size=file.bytes)
        target.flush()
        os.fsync(target.fileno())
    if not file.matches(part):
        part.unlink()
        raise ValueError(f"{file.name} came with another content than announced: it is fetched again the next time")
    part.replace(folder / file.name)


def _endpoint() -> str:
    """Returns the address of the hub. Access tokens are sent to this server only."""
    from huggingface_hub.constants import ENDPOINT

    return f"{ENDPOINT}/"


def _part(file: HubFile, folder: Path) -> Path:
    """Returns the path for the partial download of ``file``. The name depends on the file's hash."""
    return folder / f"{file.name}.{file.digest[:16]}.part"


if __name__ == "__main__":
    main(*sys.argv[1:])
