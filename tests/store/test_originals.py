"""Files that were uploaded: kept under the hash of their content, within the budget, as long as their documents."""

import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_files import pdf
from stored_documents import TOKENS, keep, row

from localctx.errors import StoreError
from localctx.library import page_source
from localctx.library.add import add_document
from localctx.library.page_source import SourceFile, find_source
from localctx.store.maintenance.eviction import make_room
from localctx.store.originals import content_id
from localctx.store.store import Store

pytestmark = pytest.mark.slow

PLENTY = 1 << 30


def upload(store: Store, name: str, data: bytes):
    """A file in the folder of uploads, as gradio puts it there."""
    folder = store.home / "uploads" / content_id(data)[:8]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def add(store: Store, *paths, disk: int | None = PLENTY) -> list[str]:
    return [add_document(store, str(path), disk=disk).id for path in paths]


def kept(store: Store) -> dict[str, int]:
    folder = store.home / "originals"
    return {file.name: file.stat().st_size for file in folder.iterdir()} if folder.is_dir() else {}


def document(store: Store, name: str, used: float = 0.0) -> str:
    """A document without a file, used at a time."""
    store.documents.add(row(name), name, [])
    ident = row(name).id
    store.db.table("documents").update(ident, {"used": used})
    return ident


def put(store: Store, name: str, data: bytes, budget: int = PLENTY, used: float = 0.0) -> bool:
    ident = document(store, name, used)
    return store.originals.keep(ident, upload(store, name, data), content_id(data), budget)


def test_an_uploaded_file_outlives_the_upload_and_goes_with_its_document(store):
    data = pdf(["Some text"])
    file = upload(store, "a.pdf", data)
    (ident,) = add(store, file)
    file.unlink()
    assert kept(store) == {content_id(data): len(data)}
    assert (store.home / "originals" / content_id(data)).stat().st_mode & 0o077 == 0
    assert store.originals.read(ident) == data
    assert find_source(store, store.documents.get(ident)).read(store) == data
    assert store.disk_bytes() == store.pages.nbytes() + len(data)
    assert store.remove_document(ident) >= len(data)
    assert kept(store) == {}
    assert store.word_places.of_page(ident, 0) is None


def test_the_same_file_is_kept_once_until_its_last_document_goes(store):
    for name in ("a", "b"):
        assert put(store, name, b"same")
    assert list(kept(store).values()) == [4]
    assert store.originals.nbytes() == 4
    store.remove_document(row("a").id)
    assert store.originals.read(row("b").id) == b"same"
    store.remove_document(row("b").id)
    assert kept(store) == {}


def test_files_at_a_path_of_their_own_are_not_copied(store, tmp_path):
    (tmp_path / "a.pdf").write_bytes(pdf(["Some text"]))
    (ident,) = add(store, tmp_path / "a.pdf")
    assert kept(store) == {}
    assert find_source(store, store.documents.get(ident)) == SourceFile(store.documents.get(ident), tmp_path / "a.pdf")


def test_a_damaged_file_is_as_none(store):
    assert put(store, "a", b"whole")
    (store.home / "originals" / content_id(b"whole")).write_bytes(b"other")
    assert store.originals.read(row("a").id) is None
    assert store.verify().damaged_originals == [content_id(b"whole")]
    (store.home / "originals" / content_id(b"whole")).unlink()
    assert store.originals.read(row("a").id) is None
    assert not store.verify().intact


def test_a_damaged_file_is_replaced_when_it_is_uploaded_again_and_deleted_by_a_repair(store, run):
    for again in (True, False):
        assert put(store, "a", b"whole")
        (store.home / "originals" / content_id(b"whole")).write_bytes(b"other")
        if again:
            assert put(store, "a", b"whole")
            assert store.originals.read(row("a").id) == b"whole"
            assert store.verify().intact
    found = run("library", "verify")
    assert (found.returncode, "1 kept files of documents damaged; delete them" in found.stdout) == (1, True)
    assert run("library", "verify", "--repair").returncode == 0
    assert run("library", "verify").returncode == 0
    assert kept(store) == {}
    assert store.documents.get(row("a").id)


def test_files_take_half_of_the_budget_and_the_last_used_stay(store):
    for i in range(4):
        assert put(store, f"n{i}", bytes([i]) * 40, budget=200, used=float(i))
    assert [store.originals.has(row(f"n{i}").id) for i in range(4)] == [False, False, True, True]
    assert sum(kept(store).values()) == store.originals.nbytes() == 80
    assert not put(store, "large", b"x" * 101, budget=200)
    assert store.originals.nbytes() == 80


def test_the_file_of_a_pinned_document_stays(store):
    assert put(store, "old", b"o" * 60, budget=200)
    store.documents.pin(row("old").id)
    assert not put(store, "new", b"n" * 60, budget=200, used=9.0)
    assert store.originals.has(row("old").id)


def test_pages_are_evicted_before_files_and_files_before_there_is_no_room(store):
    assert put(store, "a", b"a" * 5000)
    keep(store, [row("a").id], TOKENS)
    pages = store.pages.nbytes()
    assert pages
    assert make_room(store, 5000).enough
    assert (store.pages.nbytes(), store.originals.nbytes()) == (0, 5000)
    assert make_room(store, 4000).enough
    assert kept(store) == {}
    assert put(store, "b", b"b" * 5000)
    store.documents.pin(row("b").id)
    assert not make_room(store, 4000).enough
    assert store.originals.has(row("b").id)


def test_what_no_document_has_is_swept(store):
    assert put(store, "a", b"abc")
    (store.home / "originals" / "leftover.part").write_bytes(b"12345")
    assert store.originals.sweep() == 5
    assert list(kept(store).values()) == [3]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 90), st.booleans()), max_size=12))
def test_files_never_take_more_than_half(tmp_path_factory, steps):
    store = Store(tmp_path_factory.mktemp("home"))
    for i, (name, size, remove) in enumerate(steps):
        if remove and store.documents.has(row(name).id):
            store.remove_document(row(name).id)
        else:
            put(store, name, name.encode() * size, budget=200, used=float(i))
        assert sum(kept(store).values()) == store.originals.nbytes() <= 100
    store.close()


# The file that is shown


@pytest.fixture
def pdf_at(store, tmp_path):
    """A stored PDF with its path."""
    file = tmp_path / "lease.pdf"
    file.write_bytes(pdf(["The rent is due."]))
    (ident,) = add(store, file)
    return store.documents.get(ident), file


def test_a_file_that_has_changed_is_not_shown(store, pdf_at):
    document, file = pdf_at
    file.write_bytes(pdf(["The rent was due."]))
    assert "has changed" in find_source(store, document)
    file.unlink()
    assert "no longer in its place" in find_source(store, document)


def test_a_file_with_other_bytes_but_the_same_size_and_time_is_not_drawn(store, pdf_at):
    document, file = pdf_at
    data, about = file.read_bytes(), file.stat()
    file.write_bytes(data.replace(b"rent", b"debt"))
    os.utime(file, ns=(about.st_atime_ns, document.modified))
    source = find_source(store, document)
    assert isinstance(source, SourceFile)
    with pytest.raises(page_source.DocumentError, match="has changed"):
        source.read(store)


def test_an_upload_that_was_not_kept_is_said(store):
    file = upload(store, "a.pdf", pdf(["Some text"]))
    (ident,) = add(store, file, disk=10)
    assert kept(store) == {}
    assert "not kept" in find_source(store, store.documents.get(ident))


def test_a_store_of_before_has_no_boxes_and_finds_them_when_a_page_is_drawn(store, pdf_at):
    document, _ = pdf_at
    store.db.execute("DELETE FROM word_boxes")
    store.db.execute("UPDATE documents SET content = ''")
    (page,) = store.documents.spans(document.id)
    assert page_source.stored_words(store, document, 0, page) is None
    drawing = page_source.draw(find_source(store, store.documents.get(document.id)).read(store), 0)
    text = store.documents.text(document.id)
    assert [text[w.start : w.end] for w in page_source.drawn_words(drawing, text, page)] == text.split()
    assert page_source.drawn_words(drawing, "Other words here", page) == []


def test_adding_again_keeps_a_file_that_was_evicted(store):
    data = pdf(["Some text"])
    (ident,) = add(store, upload(store, "a.pdf", data))
    assert store.originals.evict_one()
    assert not store.originals.has(ident)
    time.sleep(0.01)
    os.utime(upload(store, "a.pdf", data), ns=(0, time.time_ns()))
    assert add(store, upload(store, "a.pdf", data)) == [ident]
    assert store.originals.has(ident)


def test_a_store_that_cannot_be_written_says_so(store):
    (store.home / "originals").write_text("not a folder")
    from localctx.store.store import store_errors

    with pytest.raises(StoreError), store_errors(store.home):
        put(store, "a", b"abc")
