"""The shelf: kept pages within a budget, pins, compaction, and the commands for them."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ask_in_process import ask, start
from command_checks import assert_one_line
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from stored_caches import shelve, tokens_of
from stored_documents import (
    MODEL,
    OTHER_MODEL,
    SLOT,
    add,
    assert_whole,
    files,
    keep,
    kept,
    open_cache,
    row,
    segments,
    write,
)
from tiny_models import KEPT

from localctx import budget
from localctx.engine.persistence import page_persister as keeping
from localctx.kv.pages import page_names
from localctx.shape import PAGE
from localctx.store.maintenance.eviction import make_room
from localctx.store.pages.page_reader import PageFile, PageReader
from localctx.store.pages.page_writer import find_row
from localctx.store.store import Store

pytestmark = pytest.mark.slow

MUCH = 1 << 40


def names_given_up(store: Store, limit: int, need: int = 0, using: str = "") -> list[str]:
    return [name for gone in make_room(store, limit, need, using).evicted for name in gone.names]


# What goes, and what stays


def test_within_the_budget_nothing_goes(store):
    shelve(store, "a", 1, 10)
    room = make_room(store, 6 * SLOT, SLOT)
    assert (room.enough, room.evicted) == (True, [])


def test_the_longest_unused_goes_first_and_no_more_than_needed(store):
    for n, (name, ago) in enumerate({"old": 300, "new": 10, "older": 900}.items()):
        shelve(store, name, n, ago)
    assert names_given_up(store, 10 * SLOT) == ["older"]
    assert names_given_up(store, 10 * SLOT, need=1) == ["old"]
    assert store.pages.nbytes() == 5 * SLOT
    assert len(store.documents.all()) == 3, "a document went with its pages"
    assert kept(store, tokens_of(1)) == 5
    assert store.caches.of_document(add(store, "old")[0])[0].state == "writing"


def test_what_took_longer_to_read_is_kept_longer(store):
    shelve(store, "slow", 1, 500)
    shelve(store, "fast", 2, 100, fingerprint=OTHER_MODEL)
    store.caches.note_rate(MODEL, 10.0)
    store.caches.note_rate(OTHER_MODEL, 1000.0)
    assert names_given_up(store, 5 * SLOT) == ["fast"]
    store.caches.note_rate(OTHER_MODEL, 10.0)
    shelve(store, "fast", 2, 100, fingerprint=OTHER_MODEL)
    assert names_given_up(store, 5 * SLOT) == ["slow"], "as fast as the other, it is older"


def test_a_pinned_document_and_the_cache_in_use_stay(store):
    pinned, _, _ = (shelve(store, name, n, 1000 - n) for n, name in enumerate(["pinned", "used", "other"]))
    store.documents.pin(pinned)
    (used,) = store.caches.of_document(add(store, "used")[0])
    assert names_given_up(store, 12 * SLOT, using=used.id) == ["other"]
    room = make_room(store, 9 * SLOT, using=used.id)
    assert (room.enough, room.evicted) == (False, [])
    assert names_given_up(store, 5 * SLOT) == ["used"]
    store.documents.add(row("pinned"), "pinned", [])
    assert store.documents.find("pinned").pinned, "reading it again unpinned it"
    store.documents.pin(pinned, False)
    assert names_given_up(store, 0) == ["pinned"]
    assert not files(store)


def test_nothing_is_given_up_in_vain(store):
    pinned = shelve(store, "pinned", 1, 100)
    shelve(store, "free", 2, 100)
    store.documents.pin(pinned)
    room = make_room(store, 6 * SLOT, need=2 * SLOT)
    assert (room.enough, room.evicted) == (False, [])
    assert make_room(store, 0, SLOT).evicted == []
    assert kept(store, tokens_of(2)) == 5


def test_shared_pages_count_once_and_go_with_the_last(store):
    a, b = add(store, "a", "b")
    keep(store, [a], tokens_of(1, 5))
    keep(store, [a, b], tokens_of(1, 8))
    assert store.pages.nbytes() == 8 * SLOT
    assert store.caches.usage(a) == (5, 5 * PAGE, 5 * 160)
    assert store.caches.usage(b) == (0, 0, 0), "nothing of it was read by itself"
    assert make_room(store, 8 * SLOT).evicted == []
    store.db.execute("UPDATE caches SET used = used - 100 WHERE tokens = ?", [5 * PAGE])
    (gone,) = make_room(store, 7 * SLOT).evicted
    assert (gone.names, gone.tokens, gone.bytes) == (("a", "b"), 8 * PAGE, 8 * SLOT), "a alone freed nothing"
    assert "a, b: 512 tokens given up to make room on disk (32.0 KiB)" in str(gone)


def test_who_reads_pages_goes_on_reading_them_when_they_are_given_up(home, store):
    shelve(store, "a", 1, 100)
    shelve(store, "b", 2, 10)
    with closing(Store(home)) as reader:
        mapped = reader.pages.longest_prefix(MODEL, tokens_of(1)).payloads
        before = [p.tobytes() for p in mapped]
        make_room(store, 0)
        assert [p.tobytes() for p in mapped] == before
        again = reader.pages.longest_prefix(MODEL, tokens_of(1))
        assert (again.payloads, again.fault) == ([], None)


# Compaction


def half_dead(store: Store) -> Path:
    """A page file of ten slots, of which the first, third, ... are dead; the file."""
    a, b = add(store, "a", "b")
    cache = open_cache(store, [a], tokens_of(1, 10))
    with closing(store.pages.writer(MODEL, tokens_of(1, 10), SLOT, cache)) as writer:
        write(writer, 0, 10)
        writer.commit(10)
    (file,) = store.folder.glob("*.kv")
    store.db.execute("DELETE FROM pages WHERE slot % 2 = 0")
    open_cache(store, [b], [])
    return file


def test_dead_slots_come_back_as_bytes_and_no_page_changes(store):
    old = half_dead(store)
    before = {name: payload(store, name) for name in stored_names(store)}
    assert len(before) == 5
    assert store.pages.compact(0.6) == 0, "too little of it is dead"
    assert store.pages.compact(0.5) == 5 * SLOT
    assert not old.exists()
    assert store.pages.nbytes() == store.pages.live() == 5 * SLOT
    assert {name: payload(store, name) for name in stored_names(store)} == before
    assert files(store) == segments(store)
    assert store.pages.compact() == 0


def stored_names(store: Store) -> list[bytes]:
    return [r["name"] for r in store.db.query("SELECT name FROM pages ORDER BY name")]


def payload(store: Store, name: bytes) -> bytes:
    row = find_row(store.db, name)
    return PageReader(store.folder).open(row, row["tokens"]).payload.tobytes()


def test_a_damaged_page_is_not_copied(store):
    old = half_dead(store)
    with old.open("r+b") as f:
        f.seek(3 * SLOT)
        f.write(b"\xff" * 8)
    store.pages.compact()
    assert len(stored_names(store)) == 4
    assert_whole(store)


def test_a_file_that_is_being_written_is_left_alone(store):
    half_dead(store)
    cache = open_cache(store, add(store, "c"), tokens_of(3))
    with closing(store.pages.writer(MODEL, tokens_of(3), SLOT, cache)) as writer:
        write(writer, 0, 2)
        writer.commit(2)
        write(writer, 2, 5)
        assert store.pages.compact() == 5 * SLOT
        assert store.pages.compact() == 0
        writer.commit(5)
    assert kept(store, tokens_of(3)) == 5


def test_a_disk_without_room_for_the_copy_costs_nothing(store, monkeypatch):
    old = half_dead(store)

    def full(*_) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PageFile, "append", full)
    assert store.pages.compact() == 0
    assert old.exists()
    assert files(store) - {old.with_suffix(".lock").name} == segments(store)
    assert_whole(store)


def test_a_page_that_moves_while_it_is_looked_up_is_found(home, store, monkeypatch):
    cache = keep(store, add(store, "a", "b")[:1], tokens_of(1))
    keep(store, add(store, "b"), tokens_of(1, 8))
    with closing(Store(home)) as other:
        open_page, moved = PageReader.open, []

        def compact_first(reader, row, tokens):
            if not moved:
                moved.append(1)
                other.caches.drop_pages(cache)
                (first,) = other.db.query("SELECT name FROM pages ORDER BY rowid DESC LIMIT 1")
                other.pages.unlink([first["name"]])
                assert other.pages.compact()
            return open_page(reader, row, tokens)

        monkeypatch.setattr(PageReader, "open", compact_first)
        prefix = store.pages.longest_prefix(MODEL, tokens_of(1, 8))
    assert (len(prefix.payloads), prefix.fault) == (7, None)


STEPS = ["append", "sync", "insert", "unlink"]


def compact_and_die(say: Callable, home: Path, step: str) -> None:
    from localctx.store.pages.stored_pages import StoredPages

    def die(*_) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    owner = StoredPages if step == "unlink" else PageFile
    if step == "insert":
        StoredPages._forget_empty_files = die  # type: ignore[method-assign] (inside the transaction)
    else:
        setattr(owner, {"unlink": "unlink_files"}.get(step, step), die)
    with closing(Store(home)) as store:
        store.pages.compact()
    say("survived")


@pytest.mark.parametrize("step", STEPS)
def test_kill_9_while_a_file_is_rewritten_loses_no_page(home, store, step):
    half_dead(store)
    before = {name: payload(store, name) for name in stored_names(store)}
    process, connection = start(compact_and_die, home, step)
    process.join()
    with pytest.raises(EOFError):
        connection.recv()
    assert {name: payload(store, name) for name in stored_names(store)} == before
    assert_whole(store)
    keep(store, add(store, "next"), tokens_of(9))  # a writer sweeps
    assert files(store) == segments(store)


# Whatever happens


class Shelf(RuleBasedStateMachine):
    """Documents of several lengths that share their beginning, kept, pinned, removed; and room made in between."""

    folder: Path

    @initialize()
    def open(self) -> None:
        self.home = self.folder / str(time.time_ns())
        self.store = Store(self.home)
        self.store.db.execute("PRAGMA synchronous = OFF")
        self.ids: dict[str, str] = {}
        self.caches: dict[str, list[bytes]] = {}  # by document: the pages of its cache
        self.pinned: set[str] = set()

    @rule(n=st.integers(0, 5), pages=st.integers(1, 9), beginning=st.integers(0, 2))
    def keep(self, n: int, pages: int, beginning: int) -> None:
        tokens = [*tokens_of(beginning, 3), *range(n, n + pages * PAGE)][: pages * PAGE]
        (document,) = add(self.store, f"{n} {pages} {beginning}")
        self.ids[f"{n} {pages} {beginning}"] = document
        cache = keep(self.store, [document], tokens)
        self.store.db.execute("UPDATE caches SET used = used - ? WHERE id = ?", [n * 100, cache])
        self.caches[document] = [name for name, _ in page_names(MODEL, tokens)]

    @precondition(lambda self: self.ids)
    @rule(which=st.integers(0), pinned=st.booleans())
    def pin(self, which: int, pinned: bool) -> None:
        document = list(self.ids.values())[which % len(self.ids)]
        self.store.documents.pin(document, pinned)
        (self.pinned.add if pinned else self.pinned.discard)(document)

    @precondition(lambda self: self.ids)
    @rule(which=st.integers(0))
    def remove(self, which: int) -> None:
        name = list(self.ids)[which % len(self.ids)]
        document = self.ids.pop(name)
        self.store.remove_document(document)
        self.caches.pop(document)
        self.pinned.discard(document)

    @rule(slots=st.integers(0, 30), need=st.integers(0, 5))
    def make_room(self, slots: int, need: int) -> None:
        before = self.pages()
        room = make_room(self.store, slots * SLOT, need * SLOT)
        held = {name for document in self.pinned for name in self.caches[document]}
        assert held <= self.pages(), "a pinned document lost a page"
        assert room.enough == (self.store.pages.nbytes() + need * SLOT <= slots * SLOT)
        assert room.enough == (len(held) + need <= slots) or self.pages() == held, "it could have made room"
        if not room.evicted and room.enough:
            assert self.pages() == before or self.store.pages.nbytes() <= slots * SLOT
        for document, pages in list(self.caches.items()):
            self.caches[document] = pages if self.listed(document) else []

    @rule()
    def compact(self) -> None:
        before = self.pages()
        while self.store.pages.compact():
            pass
        assert self.pages() == before
        assert self.store.pages.nbytes() == self.store.pages.live()

    @invariant()
    def what_sql_says_is_on_the_disk(self) -> None:
        if not hasattr(self, "store"):
            return
        assert {name for pages in self.caches.values() for name in pages} == self.pages(), (
            "held, but gone, or the reverse"
        )
        assert {f for f in files(self.store) if f.endswith(".kv")} == segments(self.store)
        assert self.store.pages.verify() == []
        assert {d.id for d in self.store.documents.all()} == set(self.ids.values())

    def pages(self) -> set[bytes]:
        return set(stored_names(self.store))

    def listed(self, document: str) -> bool:
        return any(c.pages for c in self.store.caches.of_document(document))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.home)


def test_whatever_happens_the_budget_holds_and_pins_hold(tmp_path, monkeypatch):
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(Shelf, "folder", tmp_path, raising=False)
    run_state_machine_as_test(Shelf, settings=settings(max_examples=25, stateful_step_count=12, deadline=None))


# Reading within a budget


@pytest.fixture
def two(tmp_path) -> list[Path]:
    texts = [tmp_path / f"{n}.txt" for n in range(2)]
    for n, text in enumerate(texts):
        text.write_text("".join(f"River {i} is {(i + n) * 37} km long.\n" for i in range(26)))
    return texts


def test_reading_one_document_gives_up_another_and_says_so(home, tiny_model, two, monkeypatch):
    a, b = two
    first = ask(home, tiny_model, a, max_tokens=1)
    size = sum(f.stat().st_size for f in (home / "pages").iterdir())
    again = ask(home, tiny_model, b, max_tokens=1, disk=str(size + size // 2))
    assert first.notes == []
    (note,) = again.notes
    assert note.startswith("0.txt: 653 tokens given up to make room on disk")
    assert sum(f.stat().st_size for f in (home / "pages").iterdir()) <= size + size // 2
    assert ask(home, tiny_model, b, max_tokens=1).reused == KEPT + 2
    with closing(Store(home)) as store:
        store.documents.pin(store.documents.find("1.txt").id)
    third = ask(home, tiny_model, a, max_tokens=1, disk=str(size))
    assert (len(third.notes), third.failed) == (1, None)
    assert "653 tokens are not kept: kept pages may take" in third.notes[0]
    assert ask(home, tiny_model, b, max_tokens=1).reused == KEPT + 2


def test_a_document_larger_than_the_budget_is_kept_in_part(home, tiny_model, two):
    whole = ask(home, tiny_model, two[0], max_tokens=4)
    with closing(Store(home)) as store:
        size = store.pages.nbytes()
        store.remove_document(store.documents.all()[0].id)
    part = ask(home, tiny_model, two[0], max_tokens=4, disk=str(size // 2))
    assert part.ids == whole.ids
    assert "tokens are not kept" in part.notes[0]
    with closing(Store(home)) as store:
        assert store.pages.nbytes() <= size // 2
        assert [c.state for c in store.caches.of_document(store.documents.all()[0].id)] == ["writing"]
    again = ask(home, tiny_model, two[0], max_tokens=4, disk=str(size // 2))
    assert 0 < again.reused <= whole.report.to_json()["tokens"]["prompt"] // 2
    assert again.ids == whole.ids


def test_without_a_word_a_fifth_of_the_disk_is_the_budget(home, monkeypatch):
    monkeypatch.setattr(budget, "measure_disk", lambda folder: budget.Measured(800, 5000))
    assert budget.measure_store_budget(home, 200) == 200
    assert budget.measure_store_budget(home, 0) == 160
    assert budget.measure_store_budget(home, 200, disk=7) == 7
    assert keeping.measure_store_budget is budget.measure_store_budget


# The command


def test_the_command_pins_verifies_exports_and_imports(
    run,
    home,
    tmp_path,
    tiny_model,
    sharp_model,
    document,
    monkeypatch,
):
    run("prepare", document, "--model", tiny_model)
    assert run("library", "pin", "rivers.txt").stdout == "rivers.txt is pinned\n"
    (listed,) = json.loads(run("library", "list", "--json").stdout)
    assert (listed["pinned"], listed["pages"], listed["kept_bytes"]) == (True, 11, listed["caches"][0]["bytes"])
    plain = run("library", "list").stdout.splitlines()
    assert max(map(len, plain)) <= 80
    assert plain[1].endswith("pinned")
    assert ", pinned" in run("library", "show", "rivers.txt").stdout
    run("library", "unpin", "rivers.txt")
    assert not json.loads(run("library", "list", "--json").stdout)[0]["pinned"]

    path = tmp_path / "rivers.lctx"
    assert "exported to" in run("library", "export", "rivers.txt", "-o", path).stdout
    assert_one_line(run("library", "export", "rivers.txt", "-o", path), 1, "exists", "another name")

    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "elsewhere"))
    refused = run("library", "import", path, "--model", sharp_model)
    assert_one_line(refused, 1, "its pages were made by tiny with int8 KV", "--text-only")
    assert json.loads(run("library", "list", "--json").stdout) == []
    assert (
        run("library", "import", path, "--model", sharp_model, "--text-only").stdout == "rivers.txt imported, 0 pages\n"
    )
    assert run("library", "import", path, "--model", tiny_model).stdout == (
        "rivers.txt imported, 11 pages; 11 of 11 pages computed again: equal\n"
    )
    done = json.loads(run("ask", document, "How long is river 7?", "--model", tiny_model, "--json").stdout)
    assert done["tokens"]["reused"] == KEPT
    assert_one_line(run("library", "import", document), 1, "not an exported document", "export it again")


def test_verify_finds_damage_and_repair_costs_only_the_reading(run, home, tiny_model, document):
    run("prepare", document, "--model", tiny_model)
    assert run("library", "verify").stdout.endswith("no damage found\n")
    (file,) = (home / "pages").glob("*.kv")
    with file.open("r+b") as f:
        f.seek(file.stat().st_size // 2)
        f.write(b"\xff" * 8)
    done = run("library", "verify")
    assert (done.returncode, "1 pages damaged" in done.stdout, "--repair" in done.stdout) == (1, True, True)
    done = run("library", "verify", "--repair", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["damaged_pages"], found["repaired"]) == (0, 1, True)
    assert run("library", "verify").returncode == 0
    assert json.loads(run("library", "list", "--json").stdout)[0]["pages"] == 10
    with closing(Store(home)) as store:
        store.db.execute("UPDATE documents SET text = text || '.'")
    assert any("text of document" in p for p in json.loads(run("doctor", "--json").stdout)["problems"])
    done = run("library", "verify", "--repair")
    assert (done.returncode, "was damaged; read the file again" in done.stdout) == (0, True)
    assert json.loads(run("doctor", "--json").stdout)["problems"] == []
