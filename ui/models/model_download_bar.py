"""Builds the line of a model's download: the progress, and buttons to cancel or resume the download, or to use the
model.
"""

from typing import Any

import gradio as gr

from localctx.ui.models.model_rows import progress
from localctx.ui.running.model_downloads import ModelDownload, ModelDownloads
from localctx.ui.window import SMALL, Updates

TICK = 1.0  # seconds between two refreshes
_NEXT = {"failed": "Try again", "cancelled": "Resume download"}


class ModelDownloadBar:
    """The line that shows a download, built inside a gr.Blocks.

    It shows the current download in ``downloads``, which is the same in every tab.
    """

    def __init__(self, downloads: ModelDownloads) -> None:
        self._downloads = downloads

    def build(self) -> None:
        """Build the line. It is visible while there is a download."""
        with gr.Row(visible=False, elem_id="model-download") as self.row:
            self.progress = gr.HTML("", elem_id="model-progress")
            self.cancel = gr.Button("Cancel download", size="sm", elem_id="model-cancel", scale=0, min_width=160)
            self.next = gr.Button("", size="sm", variant="primary", elem_id="model-next", scale=0, min_width=160)
            self.hide = gr.Button("Close", elem_id="model-hide", **SMALL)
        self.timer = gr.Timer(TICK, active=False)

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.row, self.progress, self.cancel, self.next, self.hide, self.timer]

    def wire(self, how: dict[str, Any]) -> None:
        """Connect the buttons that cancel the download and close the line. ``how`` has event arguments."""
        self.cancel.click(self._cancel, None, **how)
        self.hide.click(self._hide, None, **how)

    @property
    def last(self) -> ModelDownload | None:
        """The first download that runs or waits. If there is none, the last download that ended, or None."""
        downloads = self._downloads.all
        return next((d for d in downloads if d.active), downloads[-1] if downloads else None)

    def show(self) -> Updates:
        """Returns updates that show the current state of the download."""
        if not (shown := self.last):
            return {self.row: gr.update(visible=False), self.timer: gr.update(active=False)}
        following = f"Use {shown.title}" if shown.state == "done" else _NEXT.get(shown.state, "")
        return {
            self.row: gr.update(visible=True),
            self.progress: progress(shown),
            self.cancel: gr.update(visible=shown.active),
            self.next: gr.update(value=following, visible=bool(following)),
            self.hide: gr.update(visible=not shown.active),
            self.timer: gr.update(active=self._downloads.busy),
        }

    def _cancel(self) -> Updates:
        if shown := self.last:
            self._downloads.cancel(shown.name)
        return self.show()

    def _hide(self) -> Updates:
        for download in self._downloads.all:
            self._downloads.forget(download.name)
        return self.show()
