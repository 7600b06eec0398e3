"""Manages uploaded files: the maximum size, the folder, and how long files are kept."""

import os
import shutil
import time
from contextlib import suppress
from typing import Any

from localctx.ui.window import AppWindow

MAX_UPLOAD = "2gb"  # per file; gradio refuses larger ones (documents are limited by read_document.MAX_BYTES)
KEPT_SECONDS = 3600  # afterwards, uploaded files are deleted; the text read from them is kept


def uploaded_files(question: dict[str, Any] | None) -> list[str]:
    """Returns the paths of the files in ``question``, a value of gr.MultimodalTextbox."""
    files = (question or {}).get("files") or []
    return [str(file["path"] if isinstance(file, dict) else file) for file in files]


def make_upload_folder(window: AppWindow) -> None:
    """Make the upload folder, and set it as gradio's temporary folder. Delete old files that a killed window left
    there.

    Files younger than KEPT_SECONDS stay, because another window may be using them.
    """
    window.uploads.mkdir(exist_ok=True, mode=0o700)
    for left in window.uploads.iterdir():
        with suppress(OSError):
            if left.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    os.environ["GRADIO_TEMP_DIR"] = str(window.uploads)
