"""The catalogue of known models, read from ``catalog.toml``: sources, licences and requirements."""

from dataclasses import dataclass
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any, Literal

DEFAULT = "qwen2.5-coder-0.5b-instruct"
"""The default chat model. It can read whole documents on any ordinary machine."""

FALLBACK = "smollm2-135m-instruct"
"""The chat model for machines with little memory, or if the default cannot be downloaded."""

ModelKind = Literal["chat", "embedder"]
"""The purpose of a model: answering questions, or embedding texts for search."""


@dataclass(frozen=True)
class WheelFile:
    """A file inside a wheel: its path, its size in bytes and its SHA-256."""

    path: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name in a model's folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class PipSource:
    """A Python wheel that contains a model: one GGUF file, or the files that transformers loads. ``files`` are the
    files in the wheel.
    """

    package: str
    version: str
    wheel_bytes: int
    files: tuple[WheelFile, ...]

    @property
    def bytes(self) -> int:
        """The total size of the files in bytes."""
        return sum(f.bytes for f in self.files)


@dataclass(frozen=True)
class HubSource:
    """A Hugging Face hub repository at ``revision``, by default the newest. ``pattern`` selects GGUF files by name; if
    it is empty, the files that transformers loads are selected. ``sha256`` is the hash of a known model's single GGUF
    file.
    """

    repo: str
    revision: str = "main"
    pattern: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class MirrorSource:
    """The GGUF file ``name`` of the hub, split into parts that are files in Python wheels. The packages are
    third-party, so they are only unzipped. The hash of each part and of the whole file is checked.
    """

    name: str
    sha256: str
    parts: tuple[PipSource, ...]

    @property
    def wheel_bytes(self) -> int:
        """The total size of the wheels in bytes."""
        return sum(part.wheel_bytes for part in self.parts)

    @property
    def bytes(self) -> int:
        """The size of the joined file in bytes."""
        return sum(part.bytes for part in self.parts)


ModelSource = PipSource | HubSource | MirrorSource


@dataclass(frozen=True)
class ContextWindow:
    """A tested context window of ``context`` tokens with the RoPE scaling ``rope``: a method and a factor, such as
    ``yarn:2``, or ``auto`` for the trained window.
    """

    context: int
    rope: str = "auto"


@dataclass(frozen=True)
class CatalogEntry:
    """A known model. ``context`` is its trained window in tokens, and ``bytes`` its approximate size on disk. ``fits``
    is the memory in GiB of the smallest suitable GPU (0: no GPU needed). ``sources`` are tried in order. ``family`` is
    the ``model_type`` of the config. ``strength`` says in a short line what the model is good for. ``languages`` are
    the ISO 639-1 codes that its makers list (empty: unknown). ``longer`` are tested windows beyond ``context``,
    shortest first: in each, the model found a single fact hidden in a long text. ``terms`` states the conditions of a
    licence that is not open source, with the address of its text (empty for an open-source licence).

    Three sizes in bytes are for a GPU, as computed by ``plan`` (0: unknown). ``nf4`` is the size of the weights in nf4.
    ``working`` is the size of the memory that a forward pass needs besides weights, keys and values. ``kv`` is the size
    of a token's keys and values in int8. ``active`` is the number of parameters per token in a mixture of experts (0:
    all).

    ``weights`` is the weight format that the setting ``auto`` selects on a CPU (empty: ``full``).

    ``passages`` is the best number of retrieved passages. ``effective`` is the effective context in tokens: up to this
    length, answers from whole documents are at least as good as answers from passages. Both are 0 if not measured.
    ``reader`` is the adapter in ``models/readers`` for answering questions (empty: none). ``summaries`` is ``extract``
    if extracted sentences were measured to be better summaries than the model's own. ``query_prefix`` and
    ``passage_prefix`` are the prefixes that an embedder was trained with.
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
    languages: frozenset[str] = frozenset()
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
    def used_parameters(self) -> int:
        """The number of parameters that one token uses. In a mixture of experts, this is fewer than all."""
        return self.active or self.parameters

    @property
    def comparable_parameters(self) -> int:
        """The number of parameters by which models are ranked. For a mixture of experts it is the geometric mean of
        total and active parameters, which is about the size of an equally good dense model.
        """
        return isqrt(self.parameters * self.used_parameters)

    @property
    def repositories(self) -> list[str]:
        """The names of the hub repositories that the model can be downloaded from."""
        return [source.repo for source in self.sources if isinstance(source, HubSource)]

    @property
    def config_file(self) -> Path:
        """The path of the catalogue's copy of the model's config.json, with the values that sizing needs. For an
        embedder there is no such file.
        """
        return Path(__file__).parent / "configs" / f"{self.name}.json"

    @property
    def short_title(self) -> str:
        """The title without words at the end that only distinguish the model from variants outside the catalogue."""
        return self.title.removesuffix(" 2507").removesuffix(" Instruct")

    @property
    def download_bytes(self) -> int:
        """The size of the download in bytes: that of the wheels, if there are any. The model on disk may be larger."""
        packaged = (s.wheel_bytes for s in self.sources if isinstance(s, PipSource | MirrorSource))
        return next(packaged, self.bytes)


@cache
def load_catalog() -> dict[str, CatalogEntry]:
    """Returns all known models by name. The default model comes first; the others are sorted by the GPU memory that
    they need. The file is read once.
    """
    import tomllib

    with Path(__file__).with_name("catalog.toml").open("rb") as file:
        return {name: _entry(name, values) for name, values in tomllib.load(file).items()}


def title_of(model: str) -> str:
    """Returns the name of ``model`` for use in a sentence: the title in the catalogue, or else the last part of its hub
    id or path.
    """
    entry = load_catalog().get(model)
    return entry.short_title if entry else Path(model).name.removesuffix(".gguf") or model


def describe_terms(entry: CatalogEntry) -> str:
    """Returns the notice to show before downloading a model whose licence is not open source."""
    return f"its licence, {entry.licence}, is not open source: {entry.terms}"


def window_for(model: CatalogEntry | str, tokens: int) -> ContextWindow | None:
    """Returns the smallest tested window of a known model with room for ``tokens``; None if there is none."""
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
    languages = frozenset(values.pop("languages", ()))
    return CatalogEntry(name=name, sources=tuple(sources), longer=longer, languages=languages, **values)


def _pip_source(values: dict[str, Any]) -> PipSource:
    return PipSource(**values | {"files": tuple(WheelFile(**file) for file in values["files"])})
