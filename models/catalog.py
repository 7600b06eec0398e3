"""The catalogue of known models, read from ``catalog.toml``: sources, licences and requirements."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

DEFAULT = "smollm2-135m-instruct"
"""The default chat model: small enough for any machine, and on the package index."""

EMBEDDER = "all-minilm-l6-v2"
"""The default embedder for search."""

ModelKind = Literal["chat", "embedder"]
"""The purpose of a model: to answer questions, or to make vectors for search."""


@dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel: its path there, its size in bytes, and its SHA-256."""

    path: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name in a model's folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class PipSource:
    """The wheel of a Python package that contains a model: one GGUF file, or the files that transformers loads."""

    package: str
    version: str
    wheel_bytes: int
    files: tuple[WheelFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files together, in bytes."""
        return sum(f.bytes for f in self.files)


@dataclass(frozen=True)
class HubSource:
    """A repository of the Hugging Face hub at ``revision``, by default its newest. ``pattern``: of the names of GGUF
    files in it, where these are wanted.
    """

    repo: str
    revision: str = "main"
    pattern: str = ""


ModelSource = PipSource | HubSource


@dataclass(frozen=True)
class ContextWindow:
    """A tested context window of ``context`` tokens, with the RoPE scaling ``rope`` (see ``Model.stretch``)."""

    context: int
    rope: str = "auto"


@dataclass(frozen=True)
class CatalogEntry:
    """A known model. ``context`` is the window it was trained for, in tokens; ``bytes`` its approximate size on disk;
    ``fits`` the memory in GiB of the smallest GPU it suits (0: no GPU needed). ``sources`` are tried in order.
    ``family`` is the ``model_type`` in its config. ``languages`` are the ISO 639-1 codes its makers list (empty: not
    known). ``longer`` are windows beyond ``context`` in which it passed a needle test, shortest first.

    ``passages`` is the number of retrieved passages it answers best from, ``effective`` the effective context in
    tokens, up to which answers from whole documents are at least as good; both 0 if not measured. ``answers`` is the
    better of ``quote`` and ``free`` for it, empty if not measured. ``reader`` is the adapter of ``models/readers`` that
    answers questions (empty: none). ``summaries`` is ``extract`` if sentences of a document were measured to be better
    summaries than those it writes.
    """

    name: str
    title: str
    licence: str
    context: int
    bytes: int
    parameters: int
    fits: int
    sources: tuple[ModelSource, ...]
    longer: tuple[ContextWindow, ...] = ()
    kind: ModelKind = "chat"
    passages: int = 0
    effective: int = 0
    answers: str = ""
    languages: tuple[str, ...] = ()
    family: str = ""
    reader: str = ""
    summaries: str = ""


@cache
def load_catalog() -> dict[str, CatalogEntry]:
    """Returns every known model by name: the default first, then in order of the GPU they need. Read once."""
    import tomllib

    with Path(__file__).with_name("catalog.toml").open("rb") as file:
        return {name: _entry(name, values) for name, values in tomllib.load(file).items()}


def window_for(model: CatalogEntry | str, tokens: int) -> ContextWindow | None:
    """Returns the smallest tested window of a known model that holds ``tokens``; None if there is none."""
    entry = load_catalog().get(model) if isinstance(model, str) else model
    windows = (ContextWindow(entry.context), *entry.longer) if entry else ()
    return next((w for w in windows if w.context >= tokens), None)


def _entry(name: str, values: dict[str, Any]) -> CatalogEntry:
    sources: list[ModelSource] = []
    if pip := values.pop("pip", None):
        sources.append(PipSource(**pip | {"files": tuple(WheelFile(**file) for file in pip["files"])}))
    if hub := values.pop("hub", None):
        sources.append(HubSource(**hub))
    longer = tuple(ContextWindow(**window) for window in values.pop("longer", ()))
    values["languages"] = tuple(values.get("languages", ()))
    return CatalogEntry(name=name, sources=tuple(sources), longer=longer, **values)
