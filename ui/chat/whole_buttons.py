"""Buttons that offer to answer the last question from whole documents, after only passages were read."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from localctx.store.chats import Message
from localctx.ui.reading.ready_text import offer_label
from localctx.ui.window import Updates

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.workflows.chat.whole_document import WholeWay

WAYS: "tuple[WholeWay, ...]" = ("summarize", "everywhere")


class WholeOffers:
    """The buttons, built inside a gr.Blocks."""

    def build(self) -> None:
        """Build a row with a button for each way. It is visible while the last answer has offers."""
        with gr.Row(visible=False, elem_id="whole-offers") as self.row:
            self.about = gr.HTML("<p>Only passages were read for this answer.</p>", elem_id="whole-about")
            self.buttons = [gr.Button("", size="sm", elem_id=f"whole-{way}", visible=False) for way in WAYS]

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` and ``hide`` update."""
        return [self.row, *self.buttons]

    def wire(
        self, answer: "Callable[[WholeWay], Callable[..., Any]]", inputs: Sequence[Any], how: dict[str, Any]
    ) -> None:
        """Connect each button to the handler that ``answer`` returns for its way. ``how`` holds event arguments."""
        for way, button in zip(WAYS, self.buttons, strict=True):
            button.click(answer(way), list(inputs), **how)

    def show(self, messages: Sequence[Message]) -> Updates:
        """Return updates that show the offers of a chat's last answer."""
        offered = messages[-1].stats.get("offered", {}) if messages else {}
        labels = {way: offer_label(way, offered[way]) for way in WAYS if way in offered}
        shown = {
            button: gr.update(value=labels.get(way, ""), visible=way in labels)
            for way, button in zip(WAYS, self.buttons, strict=True)
        }
        return {self.row: gr.update(visible=bool(labels)), **shown}

    def hide(self) -> Updates:
        """Return updates that hide the offers while an answer runs."""
        return {self.row: gr.update(visible=False)}
