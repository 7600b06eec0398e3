"""A child process that fetches one model from the Hugging Face hub: ``python -m localctx.models.hub_download``.

Arguments: repository, revision, folder to fill, file for the plan (the commit, and the size of each file to come).
Only safetensors, configs and tokenizers are fetched, never pickled weights. Ends with 1 and one line if it cannot, with
UNREACHED where no hub answers.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

UNREACHED = os.EX_UNAVAILABLE
TIMEOUT = 10  # seconds in which a hub that can be reached has said something

_KINDS = {".json", ".safetensors", ".txt", ".jinja", ".model"}


def wanted(name: str) -> bool:
    """Whether a file of a repository belongs to the model as transformers loads it."""
    return "/" not in name and Path(name).suffix in _KINDS and not name.startswith("consolidated")


def main(repo: str, revision: str, folder: str, plan: str) -> None:
    """Fetches ``repo`` into ``folder``, but not the files that are there whole. Exits with a line if it cannot."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT)
        files = _plan(info, folder)
        Path(plan).with_suffix(".part").write_text(json.dumps({"commit": info.sha, "files": files}))
        Path(plan).with_suffix(".part").replace(plan)
        # by its commit: asked for a branch, the library takes a half-filled folder for whole when the network is gone
        snapshot_download(repo, revision=info.sha, local_dir=folder, allow_patterns=list(files))
    except GatedRepoError:
        sys.exit(f"accept its licence at https://huggingface.co/{repo} first, then run: hf auth login")
    except (RepositoryNotFoundError, RevisionNotFoundError):
        sys.exit("there is no such model, or it is private")
    except Exception as error:  # the last line is all that anyone sees of it
        print(f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}", file=sys.stderr)
        sys.exit(UNREACHED if _is_of_network(error) else 1)


def _is_of_network(error: Exception) -> bool:
    """Whether there was no answer at all. The library that asks is told by the names of its errors: it is another one
    from time to time.
    """
    return any(kind.__name__ in ("ConnectionError", "TransportError") for kind in type(error).__mro__)


def _plan(info: Any, folder: str) -> dict[str, int]:
    """The size in bytes of each file to fetch; exits if they hold no model, or the disk cannot hold them."""
    files = {file.rfilename: file.size or 0 for file in info.siblings if wanted(file.rfilename)}
    if not any(name.endswith(".safetensors") for name in files) or "config.json" not in files:
        sys.exit("it has no config.json with *.safetensors beside it (pickled weights are never loaded)")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for rest in Path(folder).rglob("*.incomplete"):  # of a killed process; the library starts such a file anew
        rest.unlink()
    there = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    if (missing := sum(files.values()) - there) > (free := shutil.disk_usage(folder).free):
        sys.exit(f"it needs {missing / 1e9:.1f} GB more and {free / 1e9:.1f} GB are free")
    return files


if __name__ == "__main__":
    main(*sys.argv[1:])
