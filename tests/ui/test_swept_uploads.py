"""Uploads that a killed window left are deleted when the next one starts."""

import os
import time
from types import SimpleNamespace

from localctx.ui.uploads import KEPT_SECONDS, make_upload_folder


def test_uploads_of_a_killed_window_are_swept_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", "")
    uploads = tmp_path / "uploads"
    for name, age in (("old", KEPT_SECONDS + 60), ("new", 0)):
        (uploads / name).mkdir(parents=True)
        (uploads / name / "scan.pdf").write_bytes(bytes(1000))
        os.utime(uploads / name, (time.time() - age,) * 2)
    (uploads / "old.txt").write_text("old")
    os.utime(uploads / "old.txt", (0, 0))
    make_upload_folder(SimpleNamespace(uploads=uploads))
    assert [file.name for file in uploads.iterdir()] == ["new"]
