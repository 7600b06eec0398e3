"""The store: documents, caches and pages outlive the process, whoever else writes, and wherever it is killed."""

import dataclasses
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ask_in_process import ask, barrier, prepare_each, said, start
from stored_documents import (
    MODEL,
    OTHER_MODEL,
    SLOT,
    TOKENS,
    add,
    assert_whole,
    documents,
    files,
    keep,
    kept,
    open_cache,
    row,
    segments,
    write,
)

from localctx.errors import DocumentError, StoreError
from localctx.shape import PAGE
from localctx.store.documents import Span
from localctx.store.pages.stored_pages import StoredPages
from localctx.store.store import Store, store_errors

pytestmark = pytest.mark.process

# Documents


def test_the_same_text_is_one_document_under_its_latest_name(store):
    store.documents.add(row("draft.txt", "words"), "words", [])
    store.documents.add(row("final.txt", "words", "/elsewhere/final.txt"), "words", [])
    (only,) = store.documents.all()
    assert (only.name, only.path) == ("final.txt", "/elsewhere/final.txt")
    assert store.documents.text(only.id) == "words"


def test_a_document_is_found_by_id_beginning_name_and_path(store):
    wanted, _ = add(store, "one.txt", "two.txt")
    for name in (wanted, wanted[:4], wanted[:12], "one.txt", "/texts/one.txt"):
        assert store.documents.find(name).id == wanted


@pytest.mark.parametrize("unknown", ["three.txt", "", "f", "%", "/texts"])
def test_an_unknown_name_is_refused_and_says_where_to_look(store, unknown):
    add(store, "one.txt", "two.txt")
    with pytest.raises(DocumentError, match="no document") as e:
        store.documents.find(unknown)
    assert "library list" in e.value.remedy


def test_a_name_of_two_documents_is_refused_with_both_ids(store):
    rows = [row("notes.txt", text, f"/{text}/notes.txt") for text in ("mine", "yours")]
    for r in rows:
        store.documents.add(r, r.id, [])
    with pytest.raises(DocumentError, match="names 2 documents") as e:
        store.documents.find("notes.txt")
    assert all(r.id[:12] in e.value.remedy for r in rows)


def test_spans_come_back_in_order_and_go_with_their_document(store):
    spans = [Span(40, 90, "heading", "Second"), Span(0, 40, "heading", "Für élise")]
    r = row("a.md")
    store.documents.add(r, "x" * 90, spans)
    assert store.documents.spans(r.id) == spans[::-1]
    store.remove_document(r.id)
    assert not store.documents.spans(r.id)
    assert not store.documents.all()


def test_documents_are_listed_last_used_first(store):
    first, second = add(store, "first", "second")
    store.documents.add(dataclasses.replace(store.documents.find(first), used=time.time() + 1), "", ())
    assert [d.id for d in store.documents.all()] == [first, second]


# Caches and pages


def test_a_cache_is_writing_until_it_is_ready(store):
    documents = add(store, "a")
    cache = open_cache(store, documents, TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache)) as writer:
        write(writer, 0, 3)
        writer.commit(3)
        (listed,) = store.caches.of_document(documents[0])
        assert (listed.state, listed.pages, listed.bytes) == ("writing", 3, 3 * 160)
        write(writer, 3, 5)
        writer.commit(5)
    store.caches.mark_ready(cache)
    assert open_cache(store, documents, TOKENS) == cache, "the same cache is opened again, not another made"
    (listed,) = store.caches.of_document(documents[0])
    assert (listed.state, listed.pages, listed.bytes) == ("ready", 5, 5 * 160)


def test_the_longest_prefix_grows_with_each_commit(store):
    cache = open_cache(store, add(store, "a"), TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache)) as writer:
        assert kept(store, TOKENS) == 0
        for page in range(5):
            write(writer, page, page + 1)
            assert kept(store, TOKENS) == page, "a page is found before it is committed"
            writer.commit(page + 1)
            assert kept(store, TOKENS) == page + 1


def test_only_the_same_tokens_under_the_same_fingerprint_are_found(store):
    keep(store, add(store, "a"), TOKENS)
    assert kept(store, TOKENS[: 5 * PAGE]) == 5
    assert kept(store, TOKENS[: 3 * PAGE - 1]) == 2, "an open tail is no page"
    assert kept(store, [*TOKENS[: 2 * PAGE], 999, *TOKENS[2 * PAGE :]]) == 2
    assert kept(store, [999, *TOKENS[1:]]) == 0
    assert kept(store, TOKENS[PAGE:]) == 0, "the same tokens after another past are another page"
    assert kept(store, TOKENS, OTHER_MODEL) == 0


def test_a_page_of_two_caches_goes_with_the_second(store):
    a, b = add(store, "a", "b")
    keep(store, [a], TOKENS)
    keep(store, [b], [*TOKENS[: 3 * PAGE], *TOKENS[:PAGE]])  # three pages are a's, one its own
    assert store.health()["pages"] == 6
    shared, own = sorted(store.folder.glob("*.kv"), key=lambda f: -f.stat().st_size)

    store.remove_document(a)
    assert kept(store, TOKENS) == 3
    assert (shared.exists(), own.exists()) == (True, True)
    assert store.remove_document(b) == 5 * SLOT + SLOT
    assert kept(store, TOKENS) == 0
    assert not files(store)


def test_a_document_removed_while_it_is_written_leaves_nothing(home, store):
    documents = add(store, "a", "b")
    cache = open_cache(store, documents[:1], TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache)) as writer:
        write(writer, 0, 2)
        writer.commit(2)
        with closing(Store(home)) as other:
            other.remove_document(documents[0])
        write(writer, 2, 5)
        with pytest.raises(StoreError, match="removed while it was read"):
            writer.commit(5)
    assert_whole(store)
    store.remove_document(documents[1])
    assert store.health()["pages"] == 0
    assert not files(store)


def test_pages_that_go_with_another_document_before_the_commit_are_written(home, store):
    first, second = add(store, "a", "b")
    keep(store, [first], TOKENS)
    cache = open_cache(store, [second], TOKENS)
    with closing(store.pages.writer(MODEL, TOKENS, SLOT, cache)) as writer:
        write(writer, 0, 2)
        with closing(Store(home)) as other:
            other.remove_document(first)
        writer.commit(2)
        assert kept(store, TOKENS) == 2
    assert kept(store, TOKENS) == 2
    assert_whole(store)


def write_and_hang(say: Callable, home: Path) -> None:
    with closing(Store(home)) as store:
        cache = open_cache(store, add(store, "a"), TOKENS)
        writer = store.pages.writer(MODEL, TOKENS, SLOT, cache)
        write(writer, 0, 2)
        say("written")
        time.sleep(60)
        writer.commit(2)


def test_what_a_crash_leaves_is_swept_once_its_writer_is_dead(home, store):
    writer, its = start(write_and_hang, home)
    assert its.recv() == "written"
    (orphan,) = (f for f in files(store) if f.endswith(".kv"))

    keep(store, add(store, "b"), TOKENS)
    assert orphan in files(store), "the file of a living writer was deleted"
    writer.kill()
    writer.join()
    keep(store, add(store, "c"), TOKENS[PAGE:])
    assert files(store) == segments(store)
    assert orphan not in files(store)


def test_a_file_named_while_it_is_about_to_be_swept_stays(store, monkeypatch):
    cache = open_cache(store, add(store, "a"), TOKENS)
    late = store.pages.writer(MODEL, TOKENS, SLOT, cache)
    write(late, 0, 5)
    discard = StoredPages._discard

    def commit_first(pages: StoredPages, segment: str) -> int:
        late.commit(5)
        late.close()
        return discard(pages, segment)

    monkeypatch.setattr(StoredPages, "_discard", commit_first)
    store.pages.writer(MODEL, TOKENS, SLOT, cache)
    assert kept(store, TOKENS) == 5


# Files that are not as they should be


def test_a_store_of_a_newer_version_is_refused_untouched(home):
    Store(home).close()
    with closing(sqlite3.connect(home / "library.db")) as db, db:
        db.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('localctx', 'from_2031', '')"
        )
    before = (home / "library.db").read_bytes()
    with pytest.raises(StoreError, match=r"newer localctx.*from_2031.; update localctx"):
        Store(home)
    assert (home / "library.db").read_bytes() == before


def test_a_migration_that_fails_half_way_leaves_no_trace(home, monkeypatch):
    from localctx.store.schema import migrate

    step = migrate._migrations[0]

    def half(db) -> None:
        step.fn(db)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(migrate, "_migrations", [type(step)(step.name, half)])
        with pytest.raises(StoreError, match="free some disk space"):
            Store(home)
    with closing(Store(home)) as store:
        assert kept(store, TOKENS) == 0
        keep(store, add(store, "a"), TOKENS)
        assert kept(store, TOKENS) == 5


@pytest.mark.parametrize(("first", "last"), [(0, 100), (4096, 200_000)], ids=["header", "tables"])
def test_a_damaged_database_is_told_with_a_remedy_and_left_as_it_is(home, first, last):
    with closing(Store(home)) as store:
        keep(store, add(store, "a"), TOKENS)
    data = bytearray((home / "library.db").read_bytes())
    data[first:last] = b"\xa5" * len(data[first:last])
    (home / "library.db").write_bytes(data)
    damaged = pytest.raises(StoreError, match=r"library\.db is damaged \(.*\); save what is whole")
    with damaged, closing(Store(home)) as store, store_errors(home):
        store.documents.all()
    assert (home / "library.db").read_bytes() == data


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_home_that_cannot_be_a_folder_is_told_with_a_remedy(home, below):
    home.write_text("I am a file")
    with pytest.raises(StoreError, match=r"cannot be written.*LOCALCTX_HOME") as e:
        Store(home / below)
    assert "disk space" not in e.value.remedy
    assert home.read_text() == "I am a file"


@pytest.mark.parametrize("file", ["pages", "library.db"])
def test_a_store_that_cannot_be_opened_costs_the_keeping_not_the_answer(home, file, tiny_model, document):
    wrong = home / file
    home.mkdir()
    wrong.mkdir() if file == "library.db" else wrong.write_text("")
    answer = ask(home, tiny_model, document, max_tokens=2)
    assert "cannot be written" in answer.failed
    assert "LOCALCTX_HOME" in answer.failed
    assert len(answer.ids) == 2


# Other processes


def keep_together(say: Callable, homes: list[Path], together) -> None:
    for home in homes:
        together.wait(15)
        with closing(Store(home)) as store, store_errors(home):
            keep(store, add(store, "a", "b"), TOKENS)
            keep(store, add(store, "a"), TOKENS)
        say("kept")


def test_processes_that_keep_the_same_documents_at_once_all_succeed(tmp_path):
    homes = [tmp_path / str(i) for i in range(6)]
    together = barrier(3)
    running = [start(keep_together, homes, together) for _ in range(3)]
    for process, connection in running:
        assert said(connection) == ["kept"] * len(homes)
        process.join()
    for home in homes:
        with closing(Store(home)) as store:
            assert_whole(store)
            assert store.health()["pages"] == kept(store, TOKENS) == 5
            assert len(store.documents.all()) == 2


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory) -> list[Path]:
    return documents(tmp_path_factory.mktemp("texts"), 5, 40)


@pytest.fixture(scope="module")
def cold_answers(long_texts, tmp_path_factory, tiny_model) -> list[list[int]]:
    return [ask(tmp_path_factory.mktemp("cold"), tiny_model, t, max_tokens=8).ids for t in long_texts]


@pytest.mark.parametrize("seed", range(8))
def test_kill_9_loses_no_prepared_document_and_spoils_none(seed, home, tiny_model, long_texts, cold_answers):
    process, connection = start(prepare_each, home, tiny_model, long_texts)
    assert connection.recv() == "ready"
    time.sleep(random.Random(seed).uniform(0.05, 1.5))
    process.kill()
    acknowledged = len(said(connection))
    process.join()

    with closing(Store(home)) as store:
        assert_whole(store)
    for i, (text, cold) in enumerate(zip(long_texts[: acknowledged + 2], cold_answers, strict=False)):
        answer = ask(home, tiny_model, text, max_tokens=8)
        assert (answer.ids, answer.notes, answer.failed) == (cold, [], None)
        assert i >= acknowledged or answer.reused >= 40 * PAGE, "an acknowledged document is read again"
    with closing(Store(home)) as store:
        assert_whole(store)
        assert files(store) == segments(store), "what the killed process left is still there"
