"""Deletions: what is deleted is found nowhere, comes back whole, and is forgotten for good after a while."""

import time
from contextlib import closing

import pytest
from stored_caches import shelve, tokens_of
from stored_documents import add, assert_whole, keep, kept, row

from localctx.errors import ChatError, StoreError
from localctx.store.chat_search import find_chats
from localctx.store.deletions import TRASH_SECONDS
from localctx.store.documents import Span
from localctx.store.store import Store
from localctx.store.word_places import PageBoxes

pytestmark = pytest.mark.slow

SPANS = [Span(0, 4, "page", "1"), Span(4, 9, "page", "2")]


def rows_of(store: Store) -> dict[str, list]:
    """All rows of all tables but those of deletions and of times."""
    tables = set(store.db.table_names()) - {"deletions", "_sqlite_migrations", "sqlite_sequence"}
    return {
        table: sorted(map(repr, store.db.query(f"SELECT * FROM [{table}]")))
        for table in tables
        if not table.startswith(("chunk", "cache", "pages", "segments"))
    }


def test_a_document_comes_back_with_all_that_was_made_of_it_but_its_pages(store):
    document = shelve(store, "river.txt", 1, 10)
    other = shelve(store, "lake.txt", 2, 10)
    store.documents.add(row("sea.txt", "two words"), "two words", SPANS)
    sea = row("sea.txt", "two words").id
    store.documents.pin(sea)
    store.results.put(sea, "recipe", {"summary": "Wet."})
    store.results.note_written("/out/sea.md", sea, "recipe")
    store.word_places.add(sea, [PageBoxes(0, 10.0, 20.0, b"\x00\xff")])
    store.collections.add("Waters", [sea, other])
    chat = store.chats.create("About the sea", [sea, other]).id
    before = rows_of(store)
    deletions = [store.delete("document", d) for d in (document, sea)]
    assert [d.name for d in store.documents.all()] == ["lake.txt"]
    assert not store.documents.has(sea)
    assert store.results.get(sea, "recipe") is None
    assert [d.removed for d in store.chats.get(chat).documents] == [True, False]
    assert [d.name for d in store.deletions.all()] == ["sea.txt", "river.txt"]
    for deletion in deletions:
        store.deletions.restore(deletion.id)
    assert rows_of(store) == before
    assert store.documents.spans(sea) == SPANS
    assert kept(store, tokens_of(1)) == 0
    assert store.deletions.all() == []
    assert_whole(store)


def test_a_chat_comes_back_with_every_version_and_is_found_nowhere_meanwhile(store):
    (document,) = add(store, "river.txt")
    chat = store.chats.create("Herons", [document]).id
    asked = store.chats.append(chat, None, "user", "Who fishes?")
    store.chats.append(chat, asked.id, "assistant", "Herons.", [{"quote": "x"}], {"model": "m"}, "eos")
    again = store.chats.edit(asked, "Who else fishes?")
    tree = store.chats.tree(chat)
    deletion = store.delete("chat", chat)
    assert deletion.name == "Herons"
    assert store.chats.all() == []
    assert find_chats(store.db, store.chats, "fishes") == []
    with pytest.raises(ChatError, match="was deleted"):
        store.chats.messages(chat)
    assert store.deletions.restore(deletion.id).item == chat
    assert store.chats.tree(chat) == tree
    assert store.chats.get(chat).leaf == again.id
    assert len(find_chats(store.db, store.chats, "fishes")) == 1


def test_a_chat_comes_back_although_newer_messages_took_its_numbers(store):
    chat = store.chats.create("Herons").id
    asked = store.chats.append(chat, None, "user", "Who fishes?")
    store.chats.append(chat, asked.id, "assistant", "Herons.")
    deletion = store.delete("chat", chat)
    newer = store.chats.create("Storks").id
    for text in ("And who else?", "Storks."):
        store.chats.append(newer, store.chats.get(newer).leaf, "user", text)
    store.deletions.restore(deletion.id)
    assert [m.text for m in store.chats.messages(chat)] == ["Who fishes?", "Herons."]
    assert [m.text for m in store.chats.messages(newer)] == ["And who else?", "Storks."]


def test_a_document_that_was_added_again_is_there_once(store):
    store.documents.add(row("sea.txt", "two words"), "two words", SPANS)
    sea = row("sea.txt", "two words").id
    store.results.put(sea, "recipe", {"summary": "Wet."})
    deletion = store.delete("document", sea)
    store.documents.add(row("sea again.txt", "two words"), "two words", SPANS)
    store.deletions.restore(deletion.id)
    assert [d.name for d in store.documents.all()] == ["sea again.txt"]
    assert store.documents.spans(sea) == SPANS
    assert store.results.get(sea, "recipe") == {"summary": "Wet."}


def test_the_last_version_of_a_file_is_again_the_last(store):
    for text in ("first", "second"):
        store.documents.add(row("log.txt", text, "/log.txt"), text, [])
    first, second = (row("log.txt", text).id for text in ("first", "second"))
    deletion = store.delete("document", second)
    assert store.documents.find("log.txt").id == first
    store.deletions.restore(deletion.id)
    assert store.documents.find("log.txt").id == second
    assert {d.id: d.superseded for d in store.documents.all()} == {first: second, second: None}


def test_a_version_that_comes_back_without_its_successor_is_the_last(store):
    for text in ("first", "second"):
        store.documents.add(row("log.txt", text, "/log.txt"), text, [])
    first, second = (row("log.txt", text).id for text in ("first", "second"))
    deletion = store.delete("document", first)
    store.delete("document", second)
    store.deletions.restore(deletion.id)
    assert store.documents.find("log.txt").superseded is None


def test_after_a_while_it_is_forgotten_at_the_next_start(home, store):
    document, stays = shelve(store, "river.txt", 1, 10), shelve(store, "lake.txt", 2, 10)
    chat = store.chats.create("Herons", [document]).id
    for kind, item in (("document", document), ("chat", chat)):
        store.delete(kind, item)
    with closing(Store(home)) as later:
        assert len(later.deletions.all()) == 2
    store.db.execute("UPDATE deletions SET deleted = deleted - ?", [TRASH_SECONDS + 1])
    first = store.deletions.all()[-1]
    with closing(Store(home)) as later:
        assert later.deletions.all() == []
        assert kept(later, tokens_of(1)) == 0
        assert kept(later, tokens_of(2)) == 5
        assert [d.id for d in later.documents.all()] == [stays]
        with pytest.raises(StoreError, match="for good"):
            later.deletions.restore(first.id)
    assert_whole(store)


def test_what_was_read_again_meanwhile_stays(store):
    document = shelve(store, "river.txt", 1, 10)
    store.delete("document", document)
    add(store, "river.txt")
    keep(store, [document], tokens_of(1))
    store.forget_deleted(time.time() + 1)
    assert kept(store, tokens_of(1)) == 5
    assert store.deletions.all() == []


def test_the_commands_delete_for_good_when_they_are_told_to(store, run):
    shelve(store, "river.txt", 1, 10)
    chat = store.chats.create("Herons").id
    assert run("library", "rm", "river.txt", "--now").returncode == 0
    assert run("chats", "rm", chat, "--now").returncode == 0
    assert store.deletions.all() == []
    assert kept(store, tokens_of(1)) == 0


def test_clearing_everything_leaves_nothing_to_bring_back(store):
    store.delete("document", shelve(store, "river.txt", 1, 10))
    store.clear()
    assert store.deletions.all() == []
    assert store.db.table("pages").count == 0
