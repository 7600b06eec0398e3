"""Shelving, and what a kept document can be named by; stopping what reads a file."""

import threading
import time
from pathlib import Path

import pytest
from ask_in_process import session
from clock import seconds_since
from made_files import pdf

from localctx.errors import Cancelled
from localctx.library.parsers import sandbox

pytestmark = pytest.mark.slow


def test_what_is_read_is_found_by_its_words(home, tiny_model, document, tmp_path):
    (tmp_path / "broken.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    with session(home, tiny_model) as s, s.workflows.library() as shelving:
        added = list(shelving.add([str(document), str(tmp_path / "broken.txt")]))
        assert [a.status for a in added] == ["added", "failed"]
        assert shelving.index({added[0].id}) is None
        found, why = shelving.search("river 7")
        assert (found.passages[0].name, why) == ("rivers.txt", None)
        assert shelving.search("river 7", ["0" * 64])[0].passages == []


def test_a_kept_document_is_prepared_by_its_id_though_its_file_is_gone(home, tiny_model, document):
    with session(home, tiny_model) as s:
        (kept,) = s.workflows.store([str(document)])
        document.unlink()
        *_, done = s.prepare(kept)
        assert done.report.to_json()["kept"]["tokens"] == 653
        assert s.store.caches.usage(kept)[1] == 653


def test_an_older_version_that_is_prepared_stays_an_older_version(home, tiny_model, document):
    with session(home, tiny_model) as s:
        (old,) = s.workflows.store([str(document)])
        document.write_text("River 0 is dry.")
        (new,) = s.workflows.store([str(document)])
        *_, done = s.prepare(old)
        assert done.report.to_json()["document"] == old
        assert {d.id: d.superseded for d in s.store.documents.all()} == {old: new, new: None}


def test_pages_of_another_model_are_of_no_use_and_the_text_is(home, tiny_model, sharp_model, document, tmp_path):
    from localctx.store.bundle import export_document, open_bundle
    from localctx.ui.running.library_jobs import import_bundle

    with session(home, tiny_model) as s:
        *_, done = s.prepare(str(document))
        row = s.store.documents.find(done.report.to_json()["document"])
        export_document(s.store, row, tmp_path / "r.lctx")
    bundle = open_bundle(tmp_path / "r.lctx")
    for model, pages, words in (
        (sharp_model, 0, "read by tiny with int8 KV, not by"),
        (tiny_model, 11, "already read"),
    ):
        with session(tmp_path / Path(model).name, model) as s:
            (told,) = import_bundle(s, bundle.path)
            assert words in told.text
            assert s.store.documents.text(bundle.row.id) == bundle.text
            assert s.store.caches.usage(bundle.row.id)[0] == pages


def test_a_session_that_is_cancelled_stops_reading_into_the_library(home, tiny_model, document):
    with session(home, tiny_model) as s, s.workflows.library() as shelving:
        assert s.cancel()
        with pytest.raises(Cancelled):
            list(shelving.add([str(document)]))
        assert s.store.documents.all() == []
        with s.workflows.library() as again:
            assert [a.status for a in again.add([str(document)])] == ["added"]


def test_a_file_that_takes_long_is_stopped_within_a_second(monkeypatch):
    monkeypatch.setattr(sandbox, "_send", lambda *_: None)  # the child waits for ever
    stop, start = threading.Event(), time.monotonic()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(Cancelled):
        sandbox.parse("pdf", pdf(["One"], []), sandbox.ReadOptions(cancelled=stop.is_set))
    assert seconds_since(start) < 1.5
