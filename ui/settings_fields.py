"""The fields of the settings page: what each setting is called, what is said of it, what may be chosen."""

from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from localctx.kv.keepers import KEEPERS
from localctx.settings import APPEARANCE, BLEND
from localctx.shape import FORMATS


@dataclass(frozen=True)
class Field:
    """One setting: what it is called, what is said of it, and what may be chosen; ``free``: other words too."""

    name: str
    label: str
    info: str = ""
    kind: Literal["words", "number", "choice", "free"] = "words"
    choices: tuple[str, ...] = ()
    precision: int | None = None  # 0: whole numbers

    def build(self) -> Any:
        """Its component."""
        how: dict[str, Any] = {"label": self.label, "info": self.info or None, "elem_id": f"set-{self.name}"}
        match self.kind:
            case "number":
                return gr.Number(precision=self.precision, **how)
            case "choice":
                return gr.Radio(list(self.choices), **how)
            case "free":
                return gr.Dropdown(list(self.choices), allow_custom_value=True, **how)
        return gr.Textbox(max_lines=1, **how)


def _whole(name: str, label: str, info: str = "") -> Field:
    return Field(name, label, info, "number", precision=0)


_SIZE = "auto, or as 512MiB, 4GiB"
GROUPS: tuple[tuple[str, tuple[Field, ...]], ...] = (
    (
        "Model",
        (
            Field(
                "model", "Model", "one of these, a folder, a GGUF file, or owner/name on the Hugging Face hub", "free"
            ),
            Field("rope", "Longer window", "auto, or as yarn:2, linear:2, llama3:8", "free", ("auto", "yarn:2")),
            _whole("threads", "Processor threads", "0 leaves it to localctx"),
        ),
    ),
    (
        "Memory",
        (
            Field(
                "kv", "Codec", "how keys and values are stored; the page Memory compares", "free", ("auto", *FORMATS)
            ),
            Field("keep", "Keeper", "what is seen, as full, select:1/4, sink-window:2048", "free", tuple(KEEPERS)),
            Field("memory", "Most KV on the device", _SIZE),
            Field("ram", "Most KV in RAM beside a GPU", _SIZE),
            Field("disk", "Most KV on disk", _SIZE),
        ),
    ),
    (
        "Answers",
        (
            _whole("max_tokens", "Longest answer", "in tokens"),
            Field("temperature", "Temperature", "0 takes the likeliest token each time", "number"),
            Field("top_p", "Top-p", "sample among the likeliest tokens of this mass", "number"),
            _whole("top_k", "Top-k", "sample among so many; 0 among all"),
            Field("seed", "Seed", "a number makes sampling repeatable; empty: another answer each time"),
        ),
    ),
    (
        "Retrieval",
        (
            Field(
                "mode",
                "Reading",
                "whole documents, passages, or whole where they fit",
                "choice",
                ("auto", "full", "retrieve"),
            ),
            _whole("passages", "Passages answered from", "0: as many as the model was measured to bear"),
            Field("embedder", "Embedder", "makes the vectors that search compares; none: words alone", "free"),
            Field("blend", "Blend passages", "put passages together as each was read", "choice", BLEND),
            Field(
                "ocr", "Optical reading", "pages of PDFs without text, all, or none", "choice", ("auto", "on", "off")
            ),
        ),
    ),
    ("Appearance", (Field("appearance", "Light or dark", "auto: as the system", "choice", APPEARANCE),)),
)
FIELDS = [field for _, group in GROUPS for field in group]
