"""Files with the same text: each keeps its name and is current or edited by itself."""

import dataclasses
import sqlite3
import time
from contextlib import closing

import pytest
from helpers.stored_documents import row

from localctx.errors import DocumentError
from localctx.store.maintenance.salvage import salvage
from localctx.store.store import Store

MILL = "The gate code of the mill is heron."
FORGE = "The gate code of the forge is otter."
NORTH, SOUTH = "/north/rules.txt", "/south/rules.txt"


def read(store: Store, path: str, text: str, **values: object) -> str:
    r = dataclasses.replace(row(path.rpartition("/")[2], text, path), **values)
    store.documents.add(r, text, [])
    return r.id


def current(store: Store) -> dict[str, str]:
    """The path of each file, with its text."""
    rows = [d for d in store.documents.by_file() if not d.superseded]
    return {d.path: store.documents.text(d.id) for d in rows}


@pytest.fixture
def twins(store) -> str:
    read(store, NORTH, MILL)
    return read(store, SOUTH, MILL)


def test_an_edited_file_leaves_its_copy_current(store, twins):
    read(store, SOUTH, FORGE)
    assert current(store) == {NORTH: MILL, SOUTH: FORGE}
    assert store.documents.get(twins).path == NORTH
    read(store, NORTH, FORGE)
    assert current(store) == {NORTH: FORGE, SOUTH: FORGE}
    assert store.documents.get(twins).superseded


def test_each_of_three_copies_goes_its_own_way_and_comes_back(store, twins):
    read(store, "/east/c.txt", MILL)
    read(store, NORTH, FORGE)
    read(store, "/east/c.txt", "Closed.")
    assert current(store) == {NORTH: FORGE, SOUTH: MILL, "/east/c.txt": "Closed."}
    read(store, NORTH, MILL)
    assert current(store) == {NORTH: MILL, SOUTH: MILL, "/east/c.txt": "Closed."}
    assert store.documents.get(row("", FORGE).id).superseded == twins


def test_a_document_is_found_by_each_of_its_names_under_that_name(store):
    document = read(store, "/a/invoice.txt", MILL)
    read(store, "/b/copy.txt", MILL)
    for query, path in (("invoice.txt", "/a/invoice.txt"), ("copy.txt", "/b/copy.txt"), ("/a/invoice.txt",) * 2):
        found = store.documents.find(query)
        assert (found.id, found.path, found.name) == (document, path, path.rpartition("/")[2])
    assert store.documents.find_unchanged("/a/invoice.txt", len(MILL), 0).name == "invoice.txt"
    assert store.documents.find_unchanged("/b/copy.txt", len(MILL), 0).name == "copy.txt"


def test_a_file_found_by_its_path_wins_over_another_of_its_name(store, twins):
    read(store, "/east/rules.txt", FORGE)
    assert store.documents.find("/east/rules.txt").path == "/east/rules.txt"
    with pytest.raises(DocumentError, match="names 2 documents"):
        store.documents.find("rules.txt")


def test_a_removed_file_leaves_the_other(store, twins):
    assert store.documents.files.one_of_several(twins, SOUTH).path == SOUTH
    store.documents.files.forget(SOUTH)
    assert current(store) == {NORTH: MILL}
    assert store.documents.get(twins).path == NORTH
    assert store.documents.files.one_of_several(twins, NORTH) is None


def test_a_name_of_two_files_with_one_text_must_be_told_apart(store, twins):
    with pytest.raises(DocumentError, match="2 files with the same text"):
        store.documents.files.one_of_several(twins, "rules.txt")
    assert store.documents.files.one_of_several(twins, twins) is None


def test_an_answer_about_an_earlier_text_does_not_bring_it_back(store):
    asked = dataclasses.replace(row("log.txt", MILL, NORTH), used=time.time() - 60)
    store.documents.add(asked, MILL, [])
    read(store, NORTH, FORGE)
    store.documents.add(asked, MILL, [])  # the end of a long answer, whose question came first
    assert current(store) == {NORTH: FORGE}


def test_a_moved_file_is_listed_once(store, tmp_path):
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text(MILL)
    read(store, str(old), MILL, modified=7)
    read(store, str(new), MILL, modified=7)
    assert set(current(store)) == {str(old), str(new)}
    old.unlink()
    read(store, str(new), MILL, modified=7)
    assert set(current(store)) == {str(new)}


def test_an_upload_that_is_sent_again_is_listed_once(store):
    uploads = store.home / "uploads"
    for folder in ("a", "b"):
        (uploads / folder).mkdir(parents=True)
        (uploads / folder / "rules.txt").write_text(MILL)
        read(store, str(uploads / folder / "rules.txt"), MILL)
    assert set(current(store)) == {str(uploads / "b" / "rules.txt")}


def test_a_new_version_of_one_copy_joins_the_collections_of_both(store, twins):
    collection = store.collections.add("Rules", [twins])
    new = read(store, SOUTH, FORGE)
    assert set(store.collections.documents(collection)) == {twins, new}


def test_a_chat_keeps_the_name_under_which_it_was_begun(store):
    document = read(store, "/a/invoice.txt", MILL)
    chat = store.chats.create("Codes", [document]).id
    read(store, "/b/copy.txt", MILL)
    assert [d.name for d in store.chats.get(chat).documents] == ["invoice.txt"]
    store.chats.set_documents(chat, [document])
    assert [d.name for d in store.chats.get(chat).documents] == ["invoice.txt"]
    assert store.documents.named(document, "invoice.txt").path == "/a/invoice.txt"
    store.documents.files.forget("/a/invoice.txt")
    assert [d.name for d in store.chats.get(chat).documents] == ["copy.txt"]


def test_files_leave_and_come_back_with_their_document(store, twins):
    deletion = store.delete("document", twins)
    assert not current(store)
    store.deletions.restore(deletion.id)
    assert current(store) == {NORTH: MILL, SOUTH: MILL}


def test_a_file_edited_while_its_document_was_in_the_trash_stays_edited(store, twins):
    deletion = store.delete("document", twins)
    read(store, SOUTH, FORGE, added=time.time() + 1)
    store.deletions.restore(deletion.id)
    assert current(store) == {NORTH: MILL, SOUTH: FORGE}


def test_the_earlier_text_is_current_when_its_successor_is_deleted(store):
    first = read(store, NORTH, MILL)
    second = read(store, NORTH, FORGE)
    deletion = store.delete("document", second)
    assert current(store) == {NORTH: MILL}
    store.deletions.restore(deletion.id)
    assert current(store) == {NORTH: FORGE}
    assert store.documents.get(first).superseded == second


def test_an_older_store_learns_the_files_of_its_documents(home, store, twins):
    read(store, "/east/c.txt", FORGE)
    store.db.execute(
        "INSERT INTO watched_files (path, bytes, modified, content, document, gone) VALUES (?, ?, 5, 'x', ?, 0)",
        [NORTH, len(MILL), twins],
    )
    for sql in ("DROP TABLE files", "DELETE FROM _sqlite_migrations WHERE name = 'files'"):
        store.db.execute(sql)
    store.close()
    with closing(Store(home)) as migrated:
        assert current(migrated) == {NORTH: MILL, SOUTH: MILL, "/east/c.txt": FORGE}
        assert migrated.documents.find(NORTH).encoding == "utf-8"
        assert migrated.verify().intact


def test_files_survive_a_salvage_and_damaged_ones_are_named_after_their_document(home, store, twins):
    store.close()
    with closing(sqlite3.connect(home / "library.db")) as db, db:
        db.execute("DROP TRIGGER files_updated")
        db.execute("UPDATE files SET name = 'rulez.txt'")
    with closing(Store(home)) as damaged:
        assert damaged.verify().damaged_rows.keys() == {"files"}
    salvage(home)
    with closing(Store(home)) as saved:
        assert current(saved) == {SOUTH: MILL}
        assert saved.verify().intact
