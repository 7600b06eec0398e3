"""Files that a browser uploads: how large they may be, where they lie, and how long."""

import os
import shutil
import time
from contextlib import suppress

from localctx.ui.window import AppWindow

MAX_UPLOAD = "2gb"  # of one file; gradio refuses a larger one (a document may have read_document.MAX_BYTES)
KEPT_SECONDS = 3600  # afterwards uploaded files are deleted; the text read from them is kept


def make_upload_folder(window: AppWindow) -> None:
    """Make the folder of uploads, without what a killed window left there, and have gradio use it. What is younger than
    KEPT_SECONDS stays: another window may be using it.
    """
    window.uploads.mkdir(exist_ok=True, mode=0o700)
    for left in window.uploads.iterdir():
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    os.environ["GRADIO_TEMP_DIR"] = str(window.uploads)
