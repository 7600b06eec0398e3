"""Stored answers of passages: found again, and gone with their document."""

import sqlite3
from contextlib import closing

import pytest
from stored_documents import add

from localctx.store import passage_answers
from localctx.store.passage_answers import StoredAnswer
from localctx.store.store import Store

pytestmark = pytest.mark.slow

SAID = StoredAnswer("a heron", 3, 9)


def test_answers_are_found_again_by_what_they_depend_on(store):
    one, two = add(store, "one.txt", "two.txt")
    store.passage_answers.put("q", [((one, 0, 10), SAID), ((one, 10, 20), None), ((two, 0, 10), SAID)])
    store.passage_answers.put("q", [((one, 10, 20), SAID._replace(text="two herons"))])
    assert store.passage_answers.of("q", [one]) == {
        (one, 0, 10): SAID,
        (one, 10, 20): SAID._replace(text="two herons"),
    }
    assert set(store.passage_answers.of("q", [one, two])) == {(one, 0, 10), (one, 10, 20), (two, 0, 10)}
    assert store.passage_answers.of("another", [one, two]) == {}


def test_they_go_with_their_document_and_belong_to_one(store, home):
    one, two = add(store, "one.txt", "two.txt")
    store.passage_answers.put("q", [((one, 0, 10), SAID), ((two, 0, 10), None)])
    store.remove_document(one)
    assert store.passage_answers.of("q", [one, two]) == {(two, 0, 10): None}
    with pytest.raises(sqlite3.IntegrityError):
        store.passage_answers.put("q", [((one, 0, 10), SAID)])
    store.clear()
    assert SAID.text.encode() not in (home / "library.db").read_bytes()


def test_only_the_last_questions_are_kept(store, monkeypatch):
    monkeypatch.setattr(passage_answers, "MAX_RECIPES", 2)
    (one,) = add(store, "one.txt")
    for recipe in ("first", "second", "third"):
        store.passage_answers.put(recipe, [((one, 0, 10), SAID)])
    assert [bool(store.passage_answers.of(r, [one])) for r in ("first", "second", "third")] == [False, True, True]


def test_a_store_from_before_gets_the_table(home):
    with closing(Store(home)) as store:
        (one,) = add(store, "one.txt")
        store.db.execute("DROP TABLE passage_answers")
        store.db.execute("DELETE FROM _sqlite_migrations WHERE name IN ('passage_answers', 'sure_answers')")
        store.db.conn.commit()
    with closing(Store(home)) as store:
        assert store.passage_answers.of("q", [one]) == {}
        store.passage_answers.put("q", [((one, 0, 1), None)])
        assert store.documents.has(one)
