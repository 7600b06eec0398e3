"""The fields of the settings page: label, description and choices of each setting."""

from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from localctx.kv.keepers import KEEPERS
from localctx.models.catalog import load_catalog
from localctx.settings import ANSWERS, APPEARANCE, BLEND, ENGINES, LLAMA_KV, MODES, SUMMARIES
from localctx.shape import FORMATS


@dataclass(frozen=True)
class Field:
    """One setting's label, description and choices. The kind ``free`` accepts other values than its choices."""

    name: str
    label: str
    info: str = ""
    kind: Literal["words", "number", "choice", "free"] = "words"
    choices: tuple[str, ...] = ()
    precision: int | None = None  # 0: whole numbers

    def build(self) -> Any:
        """Return the field's gradio component."""
        options: dict[str, Any] = {"label": self.label, "info": self.info or None, "elem_id": f"set-{self.name}"}
        match self.kind:
            case "number":
                return gr.Number(precision=self.precision, **options)
            case "choice":
                return gr.Radio(list(self.choices), **options)
            case "free":
                return gr.Dropdown(list(self.choices), allow_custom_value=True, **options)
        return gr.Textbox(max_lines=1, **options)


def _whole(name: str, label: str, info: str = "") -> Field:
    return Field(name, label, info, "number", precision=0)


_SIZE = "auto, or a size such as 512MiB or 4GiB"
GROUPS: tuple[tuple[str, tuple[Field, ...]], ...] = (
    (
        "Model",
        (
            Field(
                "model", "Model", "one of these, a folder, a GGUF file, or owner/name on the Hugging Face hub", "free"
            ),
            Field("engine", "Engine", "what computes it: llama.cpp runs GGUF files", "choice", ENGINES),
            Field(
                "adapter",
                "Reader",
                "the adapter that answers questions about documents: auto, none, a name or a folder",
                "free",
                ("auto", "none", *sorted({entry.reader for entry in load_catalog().values()} - {""})),
            ),
            Field("rope", "Longer window", "auto, or as yarn:2, linear:2, llama3:8", "free", ("auto", "yarn:2")),
            _whole("threads", "Processor threads", "0: localctx chooses"),
        ),
    ),
    (
        "Memory",
        (
            Field(
                "kv",
                "Codec",
                "how keys and values are stored; the page Memory compares",
                "free",
                ("auto", *FORMATS, *LLAMA_KV),
            ),
            Field("keep", "Keeper", "what attention sees: full, select:1/4, sink-window:2048", "free", tuple(KEEPERS)),
            Field("memory", "KV on the device, at most", _SIZE),
            Field("ram", "KV in RAM beside a GPU, at most", _SIZE),
            Field("disk", "KV on disk, at most", _SIZE),
        ),
    ),
    (
        "Answers",
        (
            Field("summaries", "Summaries", "written, sentences of the document, or as measured", "choice", SUMMARIES),
            _whole("max_tokens", "Longest answer", "in tokens"),
            Field("temperature", "Temperature", "0 takes the likeliest token each time", "number"),
            Field("top_p", "Top-p", "sample among the likeliest tokens with this total probability", "number"),
            _whole("top_k", "Top-k", "sample among this many of the likeliest tokens; 0: all"),
            Field(
                "answers", "Words", "the documents' own, the model's, or as measured to be better", "choice", ANSWERS
            ),
            Field("seed", "Seed", "a number makes sampling repeatable; empty: a different answer each time"),
        ),
    ),
    (
        "Retrieval",
        (
            Field(
                "mode",
                "Reading",
                "whole documents, the best passages, every passage, or (auto) by length",
                "choice",
                MODES,
            ),
            _whole("passages", "Passages answered from", "0: the number that was measured best for the model"),
            Field("embedder", "Embedder", "the model of the vectors that search compares; none: only words", "free"),
            Field("blend", "Blend passages", "combine passages from the cache, each read separately", "choice", BLEND),
            Field(
                "ocr", "Optical reading", "pages of PDFs without text, all, or none", "choice", ("auto", "on", "off")
            ),
        ),
    ),
    ("Appearance", (Field("appearance", "Light or dark", "auto: as the system", "choice", APPEARANCE),)),
)
FIELDS = [field for _, group in GROUPS for field in group]
