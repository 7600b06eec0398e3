"""Files that a browser uploads: how large they may be, where they lie, and how long."""

import os

from localctx.ui.window import AppWindow

MAX_UPLOAD = "2gb"  # of one file; gradio refuses a larger one (a document may have read_document.MAX_BYTES)
KEPT_SECONDS = 3600  # afterwards uploaded files are deleted; the text read from them is kept


def make_upload_folder(window: AppWindow) -> None:
    """Make the folder of uploads, and have gradio use it."""
    window.uploads.mkdir(exist_ok=True, mode=0o700)
    os.environ["GRADIO_TEMP_DIR"] = str(window.uploads)
