"""Declares all settings in one table.

A new setting is a field here. Its flag, its field in the window, its environment variable, its check and its row on the
settings page are made from its declaration.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from localctx.settings.declaration import Setting, Shown, declare
from localctx.settings.kinds import Choice, Number, Size, Switch, Text, invalid, parse_size
from localctx.shape import FORMATS

MAX_ROPE_FACTOR = 128  # times the trained window; no measurements beyond it are known
_ROPE = re.compile(r"(yarn|linear|llama3):(\d+(?:\.\d+)?)")  # method, and factor over the trained window
_SPARSE = re.compile(r"sparse(?::(0?\.\d+))?")  # a share of the attention weights
SPARSE_LOSS = 0.1
"""The share of its attention weights that a query may lose by default in sparse reading."""

EngineName = Literal["torch", "llama.cpp"]
"""The engines: torch, which uses localctx's pages of KV, and llama.cpp, which has a KV cache of its own."""

LLAMA_KV = ("f16",)  # KV types that only llama.cpp has
WEIGHTS = ("auto", "full", "int8", "int4", "nf4")
EMBEDDER = "all-minilm-l6-v2"  # finds passages unless the settings name another
_READING = (
    *("model", "engine", "adapter", "kv", "keep", "dtype", "weights", "rope", "reading"),
    *("mode", "effective_context"),
)
CAPS = ("memory", "ram", "disk")  # the settings that limit KV bytes


def attention_loss(reading: str) -> float | None:
    """Returns the share of attention weights that skipped pages may have under the setting ``reading``: ``full``,
    ``sparse`` or ``sparse:0.05``. Returns None for any other text.
    """
    if reading == "full":
        return 0.0
    loss = float(match[1] or SPARSE_LOSS) if (match := _SPARSE.fullmatch(reading)) else 0.0
    return loss if 0 < loss < 1 else None


def _rope_scaling(text: str) -> tuple[str, float] | None:
    match = _ROPE.fullmatch(text)
    return (match[1], float(match[2])) if match and 1 < float(match[2]) <= MAX_ROPE_FACTOR else None


_MEASURED = "Automatic"
_CAP = "auto, or a size such as 512MiB or 4GiB"


@dataclass(frozen=True)
class Settings:
    """All settings. Each field is also the environment variable ``LOCALCTX_<NAME>`` and a key of ``settings.toml``.

    ``home`` is the data folder. ``SETTINGS`` has the declarations of all other fields, which ``localctx help settings``
    shows.
    """

    home: Path

    model: str = declare(
        "auto",
        Text(),
        "Model: a name, a folder, a GGUF file or a hub id",
        "Options",
        "load",
        more="`auto`: the largest that is installed and fits, else the default. `localctx models list` has the names.",
        page="models.md",
    )
    mode: str = declare(
        "auto",
        Choice(
            {
                "auto": "Automatically",
                "full": "Always in full",
                "retrieve": "Only passages that fit",
                "everywhere": "Every passage, one by one",
            }
        ),
        "Way to read: auto, full, retrieve, everywhere",
        "Options",
        "answer",
        more="`full`: whole documents. `retrieve`: the passages that fit the question. `everywhere`: [every passage is "
        "asked](asking.md#ask-every-passage). `auto`: whole documents as long as the model can use them.",
        page="asking.md#whole-documents-or-passages",
        shown=Shown(
            "General",
            "How documents are read",
            "in full as far as the model can use that, else the passages that fit the question",
        ),
    )
    max_tokens: int = declare(
        256,
        Number(1, 1 << 20),
        "Longest answer, in tokens",
        "Options",
        "answer",
        shown=Shown("General", "Longest answer"),
    )
    offline: str = declare(
        "off",
        Switch(),
        "Let nothing leave this machine",
        "Options",
        more="Every command has the flag `--offline`.",
        page="network.md#offline",
    )
    appearance: str = declare(
        "auto",
        Choice({"auto": "Same as the system", "light": "Light", "dark": "Dark"}),
        "Colours of the window: auto, light, dark",
        "Options",
        more="`auto`: as the system's.",
        shown=Shown("General", "Appearance"),
    )

    # Reading
    effective_context: int = declare(
        0,
        Number(0, 1 << 24),
        "Most tokens that auto reads in full; 0: as measured",
        "Reading",
        "answer",
        more="Without a measurement of the model, a guess.",
    )
    passages: int = declare(
        0,
        Number(0, 64),
        "Passages to answer from; 0: as measured",
        "Reading",
        "answer",
        shown=Shown("Finding passages", "Passages answered from", "0: the number that was measured best for the model"),
    )
    embedder: str = declare(
        EMBEDDER,
        Text(),
        "Model for search by meaning; none: by words only",
        "Reading",
        "answer",
        more="Also `multilingual-e5-small`, or a GGUF file.",
        page="library.md#search",
        shown=Shown("Finding passages", "Search model", "finds passages by meaning; none: by their words alone"),
    )
    ocr: str = declare(
        "auto",
        Choice({"auto": "Where a page has no text", "on": "Every page", "off": "Never"}),
        "Pages of PDFs that are read by OCR: auto, on, off",
        "Reading",
        more="`auto`: pages without text. `on`: all pages. The flags are `--ocr` and `--no-ocr`.",
        page="library.md#scanned-pdfs",
        shown=Shown("General", "Scanned pages", "reads pages of PDFs as pictures"),
    )
    answers: str = declare(
        "auto",
        Choice({"auto": _MEASURED, "quote": "Quote the document", "free": "In the assistant's words"}),
        "Words of answers: auto, quote (documents'), free",
        "Reading",
        "answer",
        more="`quote`: the documents' own words. `free`: the model's. `auto`: as measured to be better for the model.",
        page="asking.md#quoted-answers",
        shown=Shown("Answers", "Answers"),
    )
    careful: str = declare(
        "auto",
        Choice.of("auto", "off"),
        "auto: say if no passage answers; off: always answer",
        "Reading",
        "answer",
        page="asking.md#when-nothing-answers",
    )
    summaries: str = declare(
        "auto",
        Choice({"auto": _MEASURED, "write": "Written by the model", "extract": "Sentences of the document"}),
        "Words of summaries: auto, write, extract",
        "Reading",
        more="`write`: by the model. `extract`: sentences of the document. `auto`: as measured to be better.",
        page="summarizing.md#written-or-in-the-documents-own-words",
        shown=Shown("Answers", "Summaries"),
    )
    blend: str = declare(
        "auto",
        Choice({"off": "Never", "auto": "Where measured to be good", "on": "Always"}),
        "Combine texts that were read apart: auto, on, off",
        "Reading",
        "answer",
        more="`auto`: for models that passed `localctx quality --blend`.",
        page="quality.md#passages-read-separately",
        shown=Shown("Finding passages", "Combine passages", "each was read by itself before"),
    )
    read_ahead: str = declare(
        "auto",
        Choice.of("auto", "always", "off"),
        "When watched folders are read: auto, always, off",
        "Reading",
        more="`auto`: while the machine is idle and on mains power. `off`: documents are only parsed and indexed.",
        page="library.md#watched-folders",
    )

    # Memory
    kv: str = declare(
        "auto",
        Choice.of("auto", *FORMATS, *LLAMA_KV),
        "Codec of the KV cache, as int8, k8v4 or int4",
        "Memory",
        "pages",
        more="`auto`: int8, or the smallest that passed `localctx quality`. `f16`: only llama.cpp.",
        page="memory.md#codecs",
        shown=Shown("Memory page", "Memory precision"),
    )
    keep: str = declare(
        "full",
        Text(),
        "Eviction policy, as select:1/4 or h2o:2048",
        "Memory",
        "pages",
        more="It says which tokens attention sees. `full`: all.",
        page="memory.md#eviction-policies",
        shown=Shown("Memory page", "Attention limit"),
    )
    memory: str = declare(
        "auto",
        Size(),
        "Most KV on the device, as 4GiB; auto: free memory",
        "Memory",
        "load",
        page="memory.md",
        shown=Shown("Limits of memory", "Cache on the device, at most", _CAP),
    )
    ram: str = declare(
        "auto",
        Size(),
        "Most KV in RAM beside a GPU; auto: half of free RAM",
        "Memory",
        "load",
        shown=Shown("Limits of memory", "Cache in RAM beside a GPU, at most", _CAP),
    )
    disk: str = declare(
        "auto",
        Size(),
        "Most KV on disk; auto: a fifth of the free space",
        "Memory",
        "load",
        more="Pages that are only spilled may take all free space.",
        page="library.md#disk-space",
        shown=Shown(
            "General", "Disk space for prepared documents", "auto, or a size such as 4GiB; the oldest are cleared first"
        ),
    )
    prompts: str = declare(
        "auto",
        Size(("auto", "off")),
        "Memory for the prompts of earlier requests",
        "Memory",
        more="`auto`: a quarter of the free memory.",
        page="api.md#kept-prompts",
    )
    remote: str = declare(
        "",
        Text(),
        "URL of a remote store of pages",
        "Memory",
        page="memory.md#a-remote-store",
    )
    remote_mode: str = declare(
        "read",
        Choice.of("read", "write"),
        "Use of the remote store: read or write",
        "Memory",
        more="`read`: pages are only downloaded. `write`: they are uploaded, too.",
    )

    # Sampling
    temperature: float = declare(
        0.0,
        Number(0, 10, whole=False),
        "0, the default, always takes the likeliest token",
        "Sampling",
        "answer",
        shown=Shown("Answers", "Temperature", "0 always takes the likeliest word"),
    )
    top_p: float = declare(
        1.0,
        Number(1e-6, 1, whole=False),
        "Sample the likeliest tokens of this probability",
        "Sampling",
        "answer",
        shown=Shown("Answers", "Top-p", "choose among the likeliest words with this total probability"),
    )
    top_k: int = declare(
        0,
        Number(0, 1 << 20),
        "Sample the N likeliest tokens; 0: all",
        "Sampling",
        "answer",
        shown=Shown("Answers", "Top-k", "choose among this many of the likeliest words; 0: all"),
    )
    seed: int | None = declare(
        None,
        Number(-(1 << 63), (1 << 63) - 1, optional=True),
        "Make sampling repeatable",
        "Sampling",
        "answer",
        shown=Shown("Answers", "Seed", "a number makes chance repeatable; empty: a different answer each time"),
    )
    n: int = declare(1, Number(1, 64), "Sample N answers that share one prefill", "Sampling", "answer")
    beams: int = declare(1, Number(1, 64), "Search the likeliest answer with N beams", "Sampling", "answer")
    draft: int = declare(
        8,
        Number(0, 15),
        "Tokens to draft from the prompt; 0: none",
        "Sampling",
        "answer",
        more="A greedy answer stays the same. A batch drafts none.",
    )
    repeats: str = declare(
        "stop",
        Choice.of("stop", "allow"),
        "Answers that repeat themselves: stop, allow",
        "Sampling",
        "answer",
        page="asking.md#answers-that-repeat-themselves",
    )

    # Engine
    engine: str = declare(
        "auto",
        Choice.of("auto", "torch", "llama.cpp"),
        "Engine: auto, torch, or llama.cpp (GGUF files)",
        "Engine",
        "load",
        page="models.md#gguf-files-through-llamacpp",
        shown=Shown("Model", "Engine", "what runs the model: llama.cpp runs GGUF files"),
    )
    adapter: str = declare(
        "auto",
        Text(),
        "Adapter for documents: auto, none, a name or folder",
        "Engine",
        "load",
        more="`auto`: the reader that comes with the model.",
        page="models.md#readers-and-other-adapters",
        shown=Shown(
            "Model", "Reader", "the part that answers questions about documents: auto, none, a name or a folder"
        ),
    )
    device: str = declare("auto", Text(), "Device of the model: auto, cpu, cuda", "Engine", "load")
    dtype: str = declare("auto", Text(), "Precision of the model: auto, bf16, f16, f32", "Engine", "load")
    weights: str = declare(
        "auto",
        Choice.of(*WEIGHTS),
        "Weights: auto, full, int8, int4 (CPU), nf4 (GPU)",
        "Engine",
        "load",
        more="Fewer bits are faster and less exact. `auto`: as the catalogue says for the model; the default model has "
        "`int4` on a processor.",
        page="models.md#smaller-weights",
    )
    reading: str = declare(
        "full",
        Text(("full", "sparse", "sparse:0.05"), lambda text: attention_loss(text) is not None),
        "full, or sparse: faster, less exact",
        "Engine",
        "load",
        more="`sparse` skips pages that hardly matter; `sparse:0.05` skips fewer.",
        page="memory.md#reading-sparsely",
        shown=Shown(
            "Model", "Reading of long texts", "full, or sparse: faster, skips what the text itself hardly refers to"
        ),
    )
    rope: str = declare(
        "auto",
        Text(
            ("auto", "yarn:2", "linear:2", "llama3:8"),
            lambda text: text == "auto" or _rope_scaling(text),
            f", up to {MAX_ROPE_FACTOR} times",
        ),
        "Stretch the window: auto, yarn:2, linear:2, llama3:8",
        "Engine",
        "load",
        more="`auto`: as trained, or a tested longer window if a document needs it.",
        page="models.md#a-longer-window",
        shown=Shown("Model", "Longer texts", "auto, or as yarn:2, linear:2, llama3:8"),
    )
    threads: int = declare(
        0,
        Number(0, 1024),
        "Most processor threads; 0: one for each core",
        "Engine",
        "load",
        shown=Shown("Model", "Processor threads", "0: localctx chooses"),
    )
    chunk: int = declare(512, Number(1, 1 << 16), "Tokens read in one step", "Engine", "load")

    @property
    def models(self) -> Path:
        """The folder of the models."""
        return self.home / "models"

    @property
    def is_greedy(self) -> bool:
        """True if the settings ask for a single answer, made of the most likely tokens."""
        return self.temperature == 0 and self.n == self.beams == 1

    @property
    def reading_key(self) -> tuple[str, ...]:
        """The values of the settings on which reading ahead depends. If one changes, documents must be read ahead
        again.
        """
        return tuple(str(getattr(self, name)) for name in _READING)

    @property
    def caps(self) -> dict[str, int | None]:
        """The limits ``memory``, ``ram`` and ``disk`` in bytes, with None for ``auto``.

        They are keyword arguments of ``budget.measure_limits``.
        """
        texts = {name: getattr(self, name) for name in CAPS}
        return {name: None if text == "auto" else parse_size(text, name) for name, text in texts.items()}


SETTINGS: Mapping[str, Setting] = {f.name: f.metadata["setting"] for f in fields(Settings) if f.metadata}
"""The declarations of all settings except ``home``, by name."""


def prefill_loss(reading: str) -> float:
    """Returns the share of its attention weights that a query may lose to pages that prefill skips.

    The share is 0 for ``full``. Raises UsageError for anything except ``full``, ``sparse`` and texts such as
    ``sparse:0.05``.
    """
    if (loss := attention_loss(reading)) is None:
        raise invalid("reading", reading, SETTINGS["reading"].kind.accepts)
    return loss


def parse_rope(rope: str) -> tuple[str, float] | None:
    """Parse a RoPE scaling: ``yarn:4`` is ("yarn", 4.0), four times the trained window. ``auto`` is None, the trained
    window.

    Methods: YaRN (arXiv 2309.00071), linear interpolation (arXiv 2306.15595), Llama 3.1's rule. Raises UsageError.
    """
    if rope == "auto":
        return None
    if (scaling := _rope_scaling(rope)) is None:
        raise invalid("rope", rope, SETTINGS["rope"].kind.accepts)
    return scaling
