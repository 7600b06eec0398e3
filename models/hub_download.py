"""A child process that downloads one model from the Hugging Face hub: ``python -m localctx.models.hub_download``.

Arguments: repository, revision, target folder, file for the plan (the commit, and the size of each file), and a pattern
if GGUF files are wanted. Downloads only these, or safetensors, configs and tokenizers, never pickled weights. On
failure it prints one line and exits with 1, or with HUB_UNREACHABLE where no hub answers.
"""

import json
import os
import shutil
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HUB_UNREACHABLE = os.EX_UNAVAILABLE
TIMEOUT = 10  # seconds to wait for the hub's answer

_KINDS = {".json", ".safetensors", ".txt", ".jinja", ".model"}


def wanted(name: str, pattern: str = "") -> bool:
    """Returns True if transformers needs the file ``name`` of a repository, or if it is a GGUF like ``pattern``."""
    if pattern:
        return "/" not in name and name.endswith(".gguf") and fnmatchcase(name, pattern)
    return "/" not in name and Path(name).suffix in _KINDS and not name.startswith("consolidated")


def main(repo: str, revision: str, folder: str, plan: str, pattern: str = "") -> None:
    """Downloads ``repo`` into ``folder``, except for complete files. Exits with one line of text if it fails."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
        files = _plan(info, folder, pattern)
        Path(plan).with_suffix(".part").write_text(json.dumps({"commit": info.sha, "files": files}))
        Path(plan).with_suffix(".part").replace(plan)
        # by its commit: for a branch, the library takes an incomplete folder for complete when the network is down
        snapshot_download(repo, revision=info.sha, local_dir=folder, allow_patterns=list(files))
    except GatedRepoError:
        sys.exit(f"accept its licence at https://huggingface.co/{repo} first, then run: hf auth login")
    except (RepositoryNotFoundError, RevisionNotFoundError):
        sys.exit("there is no such model, or it is private")
    except Exception as error:  # the parent process shows only the last line
        print(f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}", file=sys.stderr)
        sys.exit(HUB_UNREACHABLE if _is_network_error(error) else 1)


def _is_network_error(error: Exception) -> bool:
    """Returns True if there was no answer. Errors are recognized by class name, because the hub's library has changed
    its HTTP client before.
    """
    return any(kind.__name__ in ("ConnectionError", "TransportError") for kind in type(error).__mro__)


def _plan(info: Any, folder: str, pattern: str) -> dict[str, int]:
    """Returns the size in bytes of each file to download; exits if they are no model, or do not fit on the disk."""
    files = {file.rfilename: file.size or 0 for file in info.siblings if wanted(file.rfilename, pattern)}
    if pattern and not files:
        sys.exit(f"it has no GGUF file like {pattern}")
    whole = any(name.endswith(".safetensors") for name in files) and "config.json" in files
    if not (pattern or whole):
        sys.exit("it has no config.json with *.safetensors beside it (pickled weights are never loaded)")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for part in Path(folder).rglob("*.incomplete"):  # left by a killed process; the library would not resume it
        part.unlink()
    present = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    if (missing := sum(files.values()) - present) > (free := shutil.disk_usage(folder).free):
        sys.exit(f"it needs {missing / 1e9:.1f} GB more and {free / 1e9:.1f} GB are free")
    return files


if __name__ == "__main__":
    main(*sys.argv[1:])
