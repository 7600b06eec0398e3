"""Collections of documents, and chats found by their words."""

import time

import pytest

from localctx.errors import UsageError
from localctx.store.chat_search import find_chats
from localctx.store.documents import DocumentRow, text_id

pytestmark = pytest.mark.slow


def put(store, text: str, path: str = "-") -> str:
    """A stored document of this text."""
    now = time.time()
    row = DocumentRow(text_id(text), text.split()[0], path, "utf-8", len(text), len(text), now, now)
    store.documents.add(row, text, [])
    return row.id


def test_a_document_can_be_in_several_collections_and_leaves_all_with_the_library(store):
    lease, annex = put(store, "lease of a flat"), put(store, "annex to it")
    flat, law = store.collections.add("The flat", [lease, annex]), store.collections.add("Law", [lease, lease])
    assert store.collections.add("the  FLAT", [annex]) == flat
    assert [(c.name, c.documents) for c in store.collections.all()] == [("Law", 1), ("The flat", 2)]
    assert store.collections.documents(flat) == [annex, lease]
    assert store.collections.names() == {annex: ["The flat"], lease: ["Law", "The flat"]}
    store.collections.take_out(flat, [annex])
    assert store.collections.documents(flat) == [lease]
    store.remove_document(lease)
    assert [c.documents for c in store.collections.all()] == [0, 0]
    store.collections.remove(law)
    assert [c.name for c in store.collections.all()] == ["The flat"]
    store.clear()
    assert store.collections.all() == []


def test_a_collection_needs_a_name_and_takes_only_stored_documents(store):
    with pytest.raises(UsageError, match="needs a name"):
        store.collections.add("  ", [])
    assert store.collections.documents(store.collections.add("empty", ["not there"])) == []


def test_a_file_that_was_read_again_stays_in_its_collection(store):
    old = put(store, "lease of 2024", "/lease.txt")
    flat = store.collections.add("flat", [old])
    new = put(store, "lease of 2025", "/lease.txt")
    assert store.collections.documents(flat) == [new]
    assert store.collections.names() == {new: ["flat"]}
    store.collections.take_out(flat, [new])
    assert store.collections.documents(flat) == []


def test_chats_are_found_by_title_and_by_what_was_said(store):
    rent, pets = store.chats.create("Rent of the flat"), store.chats.create("Übersicht")
    asked = store.chats.append(pets.id, None, "user", "May I keep a HERON?").id
    store.chats.append(pets.id, asked, "assistant", f"{'Yes. ' * 30}A heron with consent, and not two of them.")

    def found(words: str) -> list[tuple[str, str]]:
        return [(f.chat.id, f.said) for f in find_chats(store.db, store.chats, words)]

    assert found("rent") == [(rent.id, "")]
    assert found("übersicht") == [(pets.id, "")]
    assert found("heron keep") == [(pets.id, "May I keep a HERON?")]
    (_, said), *others = found("consent")
    assert said.startswith("… ")
    assert "A heron with consent" in said
    assert others == []
    assert found("heron rent") == found("   ") == []
