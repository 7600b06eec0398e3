"""``library add``: what is added, told and kept; versions of a file; Ctrl-C."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import takewhile
from pathlib import Path

import pytest
from clock import seconds_since
from made_files import docx, pdf
from processes import opened

from localctx.store.schema import migrate
from localctx.store.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def texts(tmp_path) -> Path:
    """A folder of a PDF of two pages, a Word document, and a picture by another name."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.pdf").write_bytes(pdf(["One", "Two"], [("Two", 1)]))
    (folder / "b.docx").write_bytes(docx())
    (folder / "c.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / ".hidden").write_text("x")
    return folder


def added(done: subprocess.CompletedProcess) -> dict[str, tuple[str, int]]:
    """Status and pages by file name, of a report in JSON."""
    return {Path(d["path"]).name: (d["status"], d["pages"]) for d in json.loads(done.stdout)["documents"]}


def test_a_folder_is_added_and_what_failed_is_told(run, home, texts):
    done = run("library", "add", texts, "-", stdin=b"from a pipe")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"{texts / 'a.pdf'}: added",
        f"{texts / 'b.docx'}: added",
        "-: added",
    ]
    assert "2 pages, 8 characters" in lines[0]
    assert "c.txt is a picture; pictures cannot be read yet" in done.stderr
    assert ".hidden is hidden: ignored" in done.stderr
    shown = run("library", "show", "a.pdf").stdout
    assert "2 pages, 1 headings" in shown
    again = run("library", "add", texts / "a.pdf", texts / "b.docx", "--json")
    assert again.returncode == 0
    assert added(again) == {"a.pdf": ("unchanged", 2), "b.docx": ("unchanged", 0)}
    assert {d["why"] for d in json.loads(again.stdout)["documents"]} == {""}


def test_a_changed_file_is_a_new_version_and_the_old_one_can_be_removed(run, home, tmp_path):
    draft = tmp_path / "draft.md"
    ids = []
    for text, status in (("# One", "added"), ("# Two", "new version"), ("# Three", "new version")):
        draft.write_text(text)
        done = run("library", "add", draft, "--json")
        assert added(done) == {"draft.md": (status, 0)}
        ids.append(json.loads(done.stdout)["documents"][0]["id"])
    listed = {d["id"]: d["superseded"] for d in json.loads(run("library", "list", "--json").stdout)}
    assert listed == {ids[0]: ids[1], ids[1]: ids[2], ids[2]: None}
    assert "older version" in run("library", "list").stdout
    assert json.loads(run("library", "show", "draft.md", "--json").stdout)["id"] == ids[2]
    assert "older version" in run("library", "show", ids[0][:8]).stdout
    with closing(Store(home)) as store:
        store.remove_document(ids[1])
        assert store.documents.find(ids[0]).superseded == ids[2]
        store.remove_document(ids[2])
        assert store.documents.find(str(draft)).id == ids[0]


def test_a_text_that_comes_back_is_the_latest_version_again(home, tmp_path):
    from localctx.library.add import add_document

    draft = tmp_path / "draft.txt"
    with closing(Store(home)) as store:

        def add() -> tuple[str, str]:
            done = add_document(store, str(draft))
            return done.id, done.status

        draft.write_text("one")
        first, status = add()
        assert (status, add()) == ("added", (first, "unchanged"))
        draft.write_text("two")
        assert add()[1] == "new version"
        draft.write_text("one")
        assert add() == (first, "new version")
        assert store.documents.find("draft.txt").id == first
        draft.touch()
        assert add() == (first, "unchanged")


def test_two_texts_of_standard_input_are_no_versions_of_each_other(run, home):
    for text in (b"one", b"two"):
        assert added(run("library", "add", "-", "--json", stdin=text)) == {"-": ("added", 0)}
    assert "older version" not in run("library", "list").stdout


def test_texts_kept_before_there_were_versions_become_versions_by_age(home):
    home.mkdir()
    before = list(takewhile(lambda m: m.name != "versions", migrate._migrations))
    with closing(sqlite3.connect(home / "library.db")) as db:
        from sqlite_utils import Database, Migrations

        old = Migrations("localctx")
        old._migrations = before
        old.apply(Database(db))
        for added_at, (id, path) in enumerate([("a" * 64, "/x"), ("b" * 64, "/x"), ("c" * 64, "-"), ("d" * 64, "-")]):
            row = (id, "x", path, "utf-8", 1, 1, "x", added_at, added_at)
            names = "id, name, path, encoding, bytes, chars, text, added, used"
            db.execute(f"INSERT INTO documents ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.commit()
    with closing(Store(home)) as store:
        assert {d.id[0]: d.superseded for d in store.documents.all()} == {
            "a": "b" * 64,
            "b": None,
            "c": None,
            "d": None,
        }
        assert store.documents.find("/x").id == "b" * 64


def test_nothing_found_is_one_line(run, home, tmp_path):
    (tmp_path / "empty").mkdir()
    done = run("library", "add", tmp_path / "empty")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no document in" in done.stderr
    done = run("library", "add", tmp_path / "missing.txt")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("missing.txt does not exist; check the name and the folder\n")


def test_ctrl_c_stops_within_a_second_and_keeps_what_was_added(home, tmp_path):
    (tmp_path / "a.txt").write_text("short")
    (tmp_path / "b.html").write_bytes(b"<html>" + b"<div>" * 400_000)
    command = [sys.executable, "-m", "localctx", "library", "add", tmp_path / "a.txt", tmp_path / "b.html", "--json"]
    environment = {**os.environ, "LOCALCTX_HOME": str(home)}
    with opened(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        deadline = time.monotonic() + 60
        while not Store.is_at(home) or not kept(home):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(0.5)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert seconds_since(start) < 1
    assert process.returncode == 130
    assert b"the documents that were added are kept" in err
    assert b"Traceback" not in err
    report = json.loads(out)
    assert report["stopped"]
    assert [d["status"] for d in report["documents"]] == ["added"]
    assert kept(home) == ["a.txt"]


def kept(home: Path) -> list[str]:
    with closing(sqlite3.connect(home / "library.db")) as db:
        try:
            return [name for (name,) in db.execute("SELECT name FROM documents")]
        except sqlite3.OperationalError:  # being made
            return []
