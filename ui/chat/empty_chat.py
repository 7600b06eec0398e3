"""The offers of an empty chat: open a document, or ask or summarize the sample."""

from pathlib import Path
from typing import Any

import gradio as gr

SAMPLE_FILE = str(Path(__file__).parents[1] / "sample.md")
SAMPLE_QUESTION = "Who lights the lamp of the harbour?"
WELCOME = """## Ask your documents

Drop files anywhere on this page, then ask. They are read on this computer and stay on it."""
_OFFERS = (  # the first opens the browser's file dialog (page.js) and asks nothing
    (
        "",
        "Open a document",
        "PDF, Word, slides, spreadsheet, e-mail, EPUB or text. It is read once; later questions start at once.",
    ),
    (
        SAMPLE_QUESTION,
        "Try it",
        f"“{SAMPLE_QUESTION}”, asked of a short sample. The answer shows the words it rests on.",
    ),
    (
        "Summarize this document.",
        "Summarize",
        "The same sample here; with a document of yours, whole or section by section.",
    ),
)


def examples() -> list[Any]:
    """Return the offers as examples of a gr.Chatbot."""
    return [{"text": text, "display_text": f"{title}\n{about}"} for text, title, about in _OFFERS]


def sample_question(chosen: gr.SelectData) -> dict[str, Any]:
    """Return the question and file of a chosen offer in the format of gr.MultimodalTextbox.

    Both are empty if the offer asks nothing.
    """
    text = _OFFERS[chosen.index][0]
    return {"text": text, "files": [SAMPLE_FILE] if text else []}
