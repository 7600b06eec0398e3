"""Links to the document viewer beside the chat, and handles its requests. viewer.js shows the document.

Any element of class ``lc-open-source`` with ``data-document``, ``data-start`` and ``data-end`` (characters of the
document's text) opens the document there. The viewer's arrows move between the sources of one answer.
"""

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from localctx.library.reading_mark import mark_at
from localctx.ui import render
from localctx.ui.reading.chat_documents import ChatDocuments
from localctx.ui.window import EVENT_OPTIONS, AppWindow, Updates

MAX_QUOTED = 2_000  # most characters of a selection that are put into the question
_WITH_REQUEST = "(_, ...others) => [document.querySelector('#viewer').dataset.request, ...others]"
_TO_QUESTION = """() => setTimeout(() => {
    const box = document.querySelector('#question textarea')
    const { action } = JSON.parse(document.querySelector('#viewer').dataset.request)
    if (box && action === 'ask') { box.focus(); box.setSelectionRange(box.value.length, box.value.length) }
}, 100)"""


def open_link(
    document: str, name: str, text: str = "", start: int = 0, end: int = 0, marked: Sequence[tuple[int, int]] = ()
) -> str:
    """Returns a button that opens the document with this id at characters ``start..end``.

    The label of the button is ``text``, or ``name`` if ``text`` is "". If ``marked`` ranges are given, only these are
    marked in the document.
    """
    marks = " ".join(f"{a}-{b}" for a, b in marked)
    opens = f'{render.opener(document, name, start, end)} data-marks="{marks}"'
    return f'<button type="button" {opens}>{render.escape(text or name)}</button>'


class DocumentViewer:
    """Handles the requests of the viewer. Its components are built inside a gr.Blocks."""

    def __init__(self, window: AppWindow, about: ChatDocuments) -> None:
        self._window, self._about = window, about

    def build(self) -> None:
        """Build the invisible button through which viewer.js sends its requests."""
        self.request, self.send = gr.Textbox("", visible=False), gr.Button("Send", elem_id="viewer-send")

    def wire(self, chat: gr.Textbox, question: gr.MultimodalTextbox, tabs: gr.Tabs) -> None:
        """Connect the components. ``chat`` has the id of the open chat; ``tabs`` has a tab ``chat``."""
        about, self._question, self._tabs = self._about, question, tabs
        asked = self.send.click(
            self._use,
            [self.request, question, *about.outputs],
            [question, *about.shown, tabs],
            js=_WITH_REQUEST,
            trigger_mode="multiple",  # accept a second request while one is handled
            **EVENT_OPTIONS,
        )
        asked.then(about.save, [chat, *about.choice], None, api_visibility="private").then(js=_TO_QUESTION)

    def _use(self, request: str, question: dict[str, Any], documents: list[str], library: str, until: str) -> Updates:
        """Put the words selected in the viewer into the question, or make the chat read the document only up to the
        selection.
        """
        wanted = json.loads(request)
        with self._window.store() as store:
            stored = store.documents.stored(wanted["document"])
        if not stored:
            return gr.skip()
        if wanted["action"] == "until":
            return self._updates([stored.id], "", mark_at(stored, wanted["end"]))
        if not library and stored.id not in documents:
            documents, until = [*documents, stored.id], ""
        value = _with_quotation(question, stored.text[wanted["start"] : wanted["end"]])
        return self._updates(documents, library, until) | {self._question: gr.update(value=value)}

    def _updates(self, documents: Sequence[str], library: str, until: str) -> Updates:
        """Returns updates that show the chat page with these documents as sources, which are read up to the mark
        ``until``.
        """
        about = self._about
        chosen = {about.library: library, self._tabs: gr.update(selected="chat")}
        return about.choose(documents) | about.read_until(until) | chosen


def _with_quotation(question: dict[str, Any], words: str) -> dict[str, Any]:
    """Returns the content of the question box with ``words`` appended in quotation marks."""
    quoted = f"“{' '.join(words[:MAX_QUOTED].split())}”\n"
    before = (question["text"] or "").rstrip()
    return {"text": f"{before}\n{quoted}" if before else quoted, "files": question["files"] or []}
