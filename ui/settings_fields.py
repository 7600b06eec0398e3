"""The fields of the settings page: label, description and choices of each setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from localctx.kv.keepers import KEEPERS
from localctx.models.catalog import load_catalog
from localctx.settings import ANSWERS, APPEARANCE, BLEND, ENGINES, LLAMA_KV, MODES, SUMMARIES
from localctx.shape import FORMATS


@dataclass(frozen=True)
class Field:
    """One setting's label, description and choices. The kind ``free`` also accepts values outside its choices."""

    name: str
    label: str
    info: str = ""
    kind: Literal["words", "number", "choice", "free"] = "words"
    choices: tuple[str | tuple[str, str], ...] = ()  # values, or labels with values
    precision: int | None = None  # 0: whole numbers

    def build(self, visible: bool = True) -> Any:
        """Return the field's gradio component."""
        options: dict[str, Any] = {"label": self.label, "info": self.info or None, "elem_id": f"set-{self.name}"}
        options |= {"visible": visible}
        match self.kind:
            case "number":
                return gr.Number(precision=self.precision, **options)
            case "choice":
                return gr.Radio(list(self.choices), **options)
            case "free":
                return gr.Dropdown(list(self.choices), allow_custom_value=True, **options)
        return gr.Textbox(max_lines=1, **options)


def labelled(values: Sequence[str], *labels: str) -> tuple[tuple[str, str], ...]:
    """Return each label with its value, as choices."""
    return tuple(zip(labels, values, strict=True))


def _whole(name: str, label: str, info: str = "") -> Field:
    return Field(name, label, info, "number", precision=0)


_SIZE = "auto, or a size such as 512MiB or 4GiB"
OCR_CHOICES = (("Where a page has no text", "auto"), ("Every page", "on"), ("Never", "off"))
GENERAL: tuple[Field, ...] = (
    Field(
        "mode",
        "How documents are read",
        "in full as far as the model can use that, else the passages that fit the question",
        "choice",
        labelled(MODES, "Automatically", "Always in full", "Only passages that fit", "Every passage, one by one"),
    ),
    _whole("max_tokens", "Longest answer", "256 allows about 190 words"),
    Field("ocr", "OCR", "reads pages of PDFs as pictures", "choice", OCR_CHOICES),
    Field("disk", "Disk space for what was read", "auto, or a size such as 4GiB; the oldest makes room for the new"),
    Field("appearance", "Appearance", "", "choice", labelled(APPEARANCE, "As the system", "Light", "Dark")),
)
ADVANCED: tuple[tuple[str, tuple[Field, ...]], ...] = (
    (
        "Model",
        (
            Field("engine", "Engine", "what runs the model: llama.cpp runs GGUF files", "choice", ENGINES),
            Field(
                "adapter",
                "Reader",
                "the part that answers questions about documents: auto, none, a name or a folder",
                "free",
                ("auto", "none", *sorted({entry.reader for entry in load_catalog().values()} - {""})),
            ),
            Field(
                "reading",
                "Reading of long texts",
                "full, or sparse: faster, skips what the text itself hardly refers to",
                "free",
                ("full", "sparse"),
            ),
            Field("rope", "Longer texts", "auto, or as yarn:2, linear:2, llama3:8", "free", ("auto", "yarn:2")),
            _whole("threads", "Processor threads", "0: localctx chooses"),
        ),
    ),
    (
        "Answers",
        (
            Field(
                "answers",
                "Words of answers",
                "",
                "choice",
                labelled(ANSWERS, "As measured to be better", "The documents' own", "The model's"),
            ),
            Field(
                "summaries",
                "Summaries",
                "",
                "choice",
                labelled(SUMMARIES, "As measured to be better", "Written by the model", "Sentences of the document"),
            ),
            Field("temperature", "Temperature", "0 always takes the likeliest word", "number"),
            Field("top_p", "Top-p", "choose among the likeliest words with this total probability", "number"),
            _whole("top_k", "Top-k", "choose among this many of the likeliest words; 0: all"),
            Field("seed", "Seed", "a number makes chance repeatable; empty: a different answer each time"),
        ),
    ),
    (
        "Finding passages",
        (
            _whole("passages", "Passages answered from", "0: the number that was measured best for the model"),
            Field("embedder", "Search model", "finds passages by meaning; none: by their words alone", "free"),
            Field(
                "blend",
                "Combine passages",
                "each was read by itself before",
                "choice",
                labelled(BLEND, "Never", "Where measured to be good", "Always"),
            ),
        ),
    ),
    (
        "Limits of memory",
        (
            Field("memory", "Cache on the device, at most", _SIZE),
            Field("ram", "Cache in RAM beside a GPU, at most", _SIZE),
        ),
    ),
)
ON_MEMORY_PAGE: tuple[Field, ...] = (  # chosen on the memory page, beside their measurements
    Field("kv", "Memory precision", "", "free", ("auto", *FORMATS, *LLAMA_KV)),
    Field("keep", "Attention limit", "", "free", tuple(KEEPERS)),
)
FIELDS = [*GENERAL, *(field for _, group in ADVANCED for field in group), *ON_MEMORY_PAGE]
