"""A full disk: each command says so in one line, deleting works and relieves it, and the store is usable after."""

import errno
import os
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from damaged_store import fill, run_command
from stored_caches import tokens_of
from stored_documents import add, keep, kept, row

from localctx.errors import StoreError
from localctx.store.disk_reserve import DiskReserve
from localctx.store.pages.page_reader import PageFile
from localctx.store.store import Store, store_errors

pytestmark = pytest.mark.slow


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of 8 MB at ``folder``; yields False where this machine does not let us mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and not subprocess.run(mount, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_disk(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_relieved_by_the_commands_themselves(tmp_path):
    with small_disk(disk := tmp_path / "disk") as mounted:
        fill(home := disk / "home")
        (relieve if mounted else relieve_by_reserve)(home, tmp_path / "new.txt")


def relieve(home: Path, new: Path) -> None:
    """Fill the disk, and run each command."""
    fill_disk(home.parent)
    new.write_text("A new letter about the rent. " * 4000)
    for command in (["library", "list"], ["library", "search", "rent"], ["chats", "show", "The rent"]):
        assert run_command(home, command)[0] == 0, command
    code, _, said = run_command(home, ["library", "add", str(new), "-q"])
    assert (code, said.count("\n")) == (1, 1)
    assert "free some disk space" in said
    for command in (["library", "rm", "letter 1"], ["chats", "rm", "Two"], ["library", "rm", "letter 2", "--now"]):
        code, _, said = run_command(home, command)
        assert (code, said) == (0, ""), command
    assert run_command(home, ["library", "trash", "empty"])[0] == 0
    assert run_command(home, ["library", "verify"])[0] == 0
    (home.parent / "filler").unlink()
    assert run_command(home, ["library", "add", str(new), "-q"])[0] == 0
    assert (home / "reserve").exists(), "the reserve is made again once there is room"


def relieve_by_reserve(home: Path, _: Path) -> None:
    """Where nothing can be mounted: the reserve is given up while something is deleted."""
    seen = list[bool]()
    with closing(Store(home)) as store:
        store.reserve._room = lambda: 0  # type: ignore[method-assign]
        store.db.conn.set_trace_callback(lambda sql: seen.append((home / "reserve").exists()))
        store.delete("document", store.documents.find("letter 1").id)
    assert seen[-1] is False


def test_the_reserve_holds_real_bytes_and_never_raises(tmp_path):
    (tmp_path / "library.db").write_bytes(bytes(3 << 20))
    reserve = DiskReserve(tmp_path / "reserve", tmp_path / "library.db")
    reserve.fill()
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 3 << 20
    nowhere = DiskReserve(tmp_path / "none" / "reserve", tmp_path / "none" / "library.db")
    nowhere.fill()
    with nowhere.freed():
        pass


STEPS = {
    "a document": lambda store: add(store, "new"),
    "a chat": lambda store: store.chats.create("New"),
    "pages": lambda store: keep(store, add(store, "new"), tokens_of(9)),
    "the index": lambda store: store.index.add(row("short").id, "short", [(0, 5, "short")], False),
    "the trash": lambda store: store.delete("document", row("short").id),
    "collections": lambda store: store.collections.add("New", [row("short").id]),
}


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def fill_database(store: Store) -> None:
    """Let the database not grow, and use up its free pages."""
    pages = store.db.execute("PRAGMA page_count").fetchone()[0]
    store.db.execute(f"PRAGMA max_page_count = {pages}")
    with suppress(sqlite3.OperationalError):
        for i in range(1000):
            text = f"{i} " * 30_000
            store.documents.add(row(f"filler {i}", text), text, [])


@pytest.mark.parametrize("what", STEPS)
def test_a_disk_that_is_full_at_a_step_costs_one_line_and_leaves_the_store_usable(home, monkeypatch, what):
    """SQLite is told that its file may not grow, and page files that there is no space: at every write."""
    fill(home)
    with closing(Store(home)) as store:
        fill_database(store)
        monkeypatch.setattr(PageFile, "append", no_space)
        line = ""
        try:
            with store_errors(home):
                STEPS[what](store)
        except StoreError as e:
            line = str(e)
        assert not line or re.search("(full|No space).*; free some disk space", line)
        assert "\n" not in line
        assert line or what != "pages", "others need a few bytes only"
        monkeypatch.undo()
        store.db.execute("PRAGMA max_page_count = 1073741823")
        assert store.verify().intact
        if line:
            STEPS[what](store)
    monkeypatch.setenv("LOCALCTX_HOME", str(home))
    with closing(Store(home)) as store:
        assert store.verify().intact
        assert what == "the trash" or kept(store, tokens_of(1)) == 5


def test_an_error_of_sqlite_on_a_full_disk_is_not_taken_for_damage(home):
    fill(home)
    with pytest.raises(StoreError, match="free some disk space"), store_errors(home):
        raise sqlite3.OperationalError("database or disk is full")
