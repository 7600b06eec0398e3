"""Damage to the database and the files beside it: every command says so in a line, a question is still answered, only
what was kept is given out, and what is whole is saved.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from ask_in_process import ask
from damaged_store import BUNDLE, TEXTS, compare_kept, fill, import_again, run_command, trial
from stored_documents import row

from localctx.errors import DamagedStore
from localctx.store import bundle
from localctx.store.integrity import find_damage
from localctx.store.maintenance.salvage import salvage
from localctx.store.pages import page_reader
from localctx.store.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(home) -> Path:
    fill(home)
    return home


def replace(home: Path, old: bytes, new: bytes) -> None:
    """Change the first place in the database file that has these bytes."""
    file = home / "library.db"
    data = file.read_bytes()
    assert old in data
    file.write_bytes(data.replace(old, new, 1))


def write_around(home: Path, *statements: str) -> None:
    """Write to the database as damage does: the triggers that keep checksums do not see it."""
    with closing(sqlite3.connect(home / "library.db")) as db, db:
        triggers = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger'")]
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        for name in names:
            db.execute(f"DROP TRIGGER [{name}]")
        for statement in (*statements, *triggers):
            db.execute(statement)


DAMAGE = {
    "a letter of the schema": lambda home: replace(home, b"CREATE INDEX", b"CREATE \xc9NDEX"),
    "the name of a column": lambda home: replace(home, b'"tokens" BLOB', b'"tokenr" BLOB'),
    "an id in an index": lambda home: replace(home, row("letter 1", TEXTS["letter 1"]).id.encode()[::1], b"0" * 64),
    "the first bytes": lambda home: replace(home, b"SQLite", b"sQLite"),
    "JSON in a row": lambda home: write_around(home, "UPDATE messages SET citations = '[' WHERE id = 2"),
    "a number that became text": lambda home: write_around(home, "UPDATE rates SET per_second = 'much'"),
    "text that is no UTF-8": lambda home: write_around(
        home, "UPDATE documents SET name = CAST(x'ff41' AS TEXT) WHERE name = 'letter 2'"
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_database_costs_each_command_a_line_and_is_repaired(filled, what):
    DAMAGE[what](filled)
    code, out, said = run_command(filled, ["library", "verify"])
    assert code == 1
    assert "damaged" in out + said
    assert "library verify --repair" in out + said
    for command in (["library", "list"], ["chats", "show", "The rent"], ["library", "search", "rent"]):
        code, _, said = run_command(filled, command)
        assert code in (0, 1)
        assert said.count("\n") <= 1 + (code == 0), said
    code, out, said = run_command(filled, ["library", "verify", "--repair"])
    assert (code, said) == (0, "")
    assert "kept as" in out
    assert list(filled.glob("library.db.damaged-*"))
    assert run_command(filled, ["library", "verify"])[0] == 0
    assert run_command(filled, ["library", "search", "rent"])[0] == 0, "what lost passages is indexed again"
    with closing(Store(filled)) as store:
        assert len(store.documents.all()) >= 3
        assert len(store.chats.tree(store.chats.find("The rent").id)) == 6
        assert store.index.by_words("rent", 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A data folder that no test changes."""
    folder = tmp_path_factory.mktemp("damage") / "whole"
    fill(folder)
    return folder


@pytest.mark.parametrize("seed", range(24))
def test_damage_at_random_places_ends_no_command_with_a_traceback(whole, tmp_path, monkeypatch, seed):
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCALCTX_EMBEDDER", "none")
    assert trial(whole, tmp_path / "home", 10_000 + seed) == []


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 16
    file.write_bytes(data)


def test_without_its_checksum_a_damaged_page_is_given_out(whole, home, monkeypatch):
    """What the test before relies on."""
    shutil.copytree(whole, home)
    flip(max((home / "pages").glob("*.kv"), key=lambda file: file.stat().st_size), 5000)
    with monkeypatch.context() as broken:
        broken.setattr(page_reader, "verified", lambda payload, checksum: payload)
        with pytest.raises(AssertionError, match="another page"):
            compare_kept(whole, home)
    compare_kept(whole, home)


def test_without_its_checksum_a_damaged_page_is_imported(whole, home, monkeypatch):
    """What the test before relies on."""
    shutil.copytree(whole, home)
    flip(home / BUNDLE, (home / BUNDLE).stat().st_size - 3000)
    with monkeypatch.context() as broken:
        broken.setattr(bundle, "page_checksum", lambda payload: MagicMock(__ne__=lambda *_: False))
        with pytest.raises(AssertionError, match="another page"):
            import_again(whole, home)
    shutil.rmtree(home / "there")
    import_again(whole, home)


@pytest.mark.parametrize("column", ["text", "stats", "role"])
def test_a_changed_letter_in_a_chat_is_found(filled, column):
    write_around(filled, f"UPDATE messages SET [{column}] = [{column}] || ' ' WHERE id = 3")
    with closing(Store(filled)) as store:
        assert store.verify().damaged_rows == {"messages": [3]}
        store.db.execute("UPDATE messages SET role = role WHERE id = 3")
        assert store.verify().intact, "a row that is written again has its checksum again"


def test_without_the_checksums_a_changed_letter_is_not_found(filled, monkeypatch):
    """What the test before relies on."""
    write_around(filled, "UPDATE messages SET text = text || ' ' WHERE id = 3")
    monkeypatch.setattr("localctx.store.integrity.CHECKED", ())
    with closing(Store(filled)) as store:
        assert store.verify().intact


def test_a_database_of_an_older_version_is_not_said_to_be_damaged(filled):
    with closing(sqlite3.connect(filled / "library.db")) as db, db:
        db.execute("DELETE FROM _sqlite_migrations WHERE name = 'row_checksums'")
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER [{name}]")
        for table in ("documents", "chats", "messages"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    assert find_damage(filled / "library.db") == ""
    with closing(Store(filled)) as store:
        assert store.verify().intact


def test_what_is_saved_is_what_was_there(filled):
    with closing(Store(filled)) as store:
        before = {d.name: store.documents.stored(d.id) for d in store.documents.all()}
        said = [[m.text for m in store.chats.tree(c.id)] for c in store.chats.all()]
    result = salvage(filled)
    assert not result.lost
    assert not result.doubtful
    with closing(Store(filled)) as store:
        assert {d.name: store.documents.stored(d.id) for d in store.documents.all()} == before
        assert [[m.text for m in store.chats.tree(c.id)] for c in store.chats.all()] == said
        assert store.verify().intact
        store.deletions.restore(store.deletions.all()[0].id)
        assert store.documents.find("letter 0")
        assert not list(filled.glob("*.broken*"))


def test_a_database_in_use_is_not_salvaged(filled):
    with closing(sqlite3.connect(filled / "library.db")) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(DamagedStore.__base__, match="in use"):
            salvage(filled)
    assert not list(filled.glob("library.db?*"))


def test_a_question_is_answered_though_the_database_is_damaged(home, tiny_model, document):
    fill(home)
    cold = ask(home.parent / "cold", tiny_model, document, max_tokens=2).ids
    for what in ("a letter of the schema", "the name of a column", "the first bytes"):
        DAMAGE[what](home)
        answer = ask(home, tiny_model, document, max_tokens=2)
        assert answer.ids == cold
        assert "is damaged" in answer.failed
        salvage(home)
