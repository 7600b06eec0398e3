"""Salvages a damaged database: copies readable, intact rows to a new one, and keeps the damaged file beside it.

Reads rows by rowid from both ends of each damaged range, without indexes. Rebuilds the indexes and the word index.
Keeps readable messages of a chat even if letters in them may have changed.
"""

import json
import os
import shutil
import sqlite3
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from localctx.errors import StoreError
from localctx.store.database import file_time, open_database
from localctx.store.document_files import fill_files
from localctx.store.documents import text_id
from localctx.store.integrity import expected_columns
from localctx.store.row_checksum import CHECKED, row_checksum
from localctx.store.schema import migrate
from localctx.store.search_words import words_of_chunks
from localctx.system import sync

_HEADER = 100  # bytes of an SQLite file's header
_MAX_ROWID = (1 << 63) - 1
_MAX_TRIES = 20_000  # attempts to read a range of a table
_UNREADABLE = (sqlite3.Error, ValueError, OverflowError, MemoryError)
_KEPT_READABLE = ("documents", "chats", "messages")  # tables whose rows are kept despite a wrong checksum
_PLAIN: dict[str, dict[str, Any]] = {  # replacements for damaged values
    "documents": {"name": "a recovered document", "path": "-", "encoding": "utf-8", "content": "", "modified": 0},
    "chats": {"title": "a recovered chat", "settings": "{}"},
    "messages": {"role": "user", "text": "", "citations": "[]", "stats": "{}", "stopped": ""},
}
_JSON = {"settings": dict, "citations": list, "stats": dict, "result": dict, "report": dict}


@dataclass
class Salvaged:
    """The result of salvaging a database. ``saved`` and ``lost`` count the rows of each table that were copied and that
    could not be copied. ``doubtful`` counts the saved rows that may have changed values.

    ``aside`` is the path of the damaged file.
    """

    saved: Counter[str] = field(default_factory=Counter)
    doubtful: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    aside: Path = Path()


def salvage(home: Path) -> Salvaged:
    """Replace the damaged database of the data folder ``home`` by a new one with all its intact rows.

    Nothing changes until the new database is complete, and the old file is kept. Raises StoreError if another process
    is using the database, and OSError, sqlite3.Error or StoreError if the new database cannot be written.
    """
    file = home / "library.db"
    broken, new = file.with_suffix(".broken"), file.with_suffix(".salvaged")
    try:
        _copy_for_reading(file, broken)
        result = _copy_rows(broken, new)
        result.aside = file.with_name(f"library.db.damaged-{file_time()}")
        _exchange(file, new, result.aside)
    finally:
        for left in (broken, new):
            for suffix in ("", "-journal"):
                Path(f"{left}{suffix}").unlink(missing_ok=True)
    return result


def _copy_for_reading(file: Path, copy: Path) -> None:
    """Copy the database, and write the header of a new database into the copy. Only the few header fields that differ
    between databases are kept or computed.
    """
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(file, timeout=5)) as db:
        try:
            db.execute("BEGIN EXCLUSIVE")  # also rolls back the journal of a killed process
            db.execute("ROLLBACK")
        except sqlite3.OperationalError as e:
            if "locked" in str(e):
                raise StoreError(f"{file} is in use", "close every other localctx, then try again") from e
    shutil.copyfile(file, copy)
    copy.chmod(0o600)
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (x)")
        header = bytearray(db.serialize()[:_HEADER])
    data = copy.open("r+b")
    with data:
        old = data.read(_HEADER).ljust(_HEADER, b"\0")
        header[28:32] = (copy.stat().st_size // 4096).to_bytes(4, "big")
        header[40:44] = old[40:44]
        header[60:64] = old[60:64]
        data.seek(0)
        data.write(header)


def _mend_schema(copy: Path) -> None:
    """Replace the table definitions of the copy by the current ones. This is safe for an older database, because
    migrations only append columns to a table.
    """
    with closing(sqlite3.connect(":memory:")) as fresh:
        migrate.apply(Database(fresh))
        known = fresh.execute("SELECT sql, name FROM sqlite_master WHERE type = 'table'").fetchall()
    with suppress(*_UNREADABLE), closing(sqlite3.connect(copy)) as db, db:
        db.execute("PRAGMA writable_schema = ON")
        db.executemany("UPDATE sqlite_master SET sql = ? WHERE name = ? AND rootpage > 0", known)


def _copy_rows(broken: Path, new: Path) -> Salvaged:
    result = Salvaged()
    _mend_schema(broken)
    with closing(sqlite3.connect(broken)) as old, closing(open_database(new)) as db:
        old.text_factory = bytes
        old.execute("PRAGMA writable_schema = ON")  # makes SQLite skip malformed schema entries
        db.execute("PRAGMA foreign_keys = OFF")
        with db.atomic():
            for table, columns in _in_order():
                _copy_table(old, db, table, columns, result)
            _mend_links(db, result)
            _index_words(db)
        if fault := next((row[0] for row in db.execute("PRAGMA integrity_check") if row[0] != "ok"), ""):
            raise StoreError(f"{new} could not be written ({fault})", "check the disk")
    return result


def _in_order() -> list[tuple[str, dict[str, str]]]:
    return [(table, columns) for table, columns in expected_columns().items() if not table.startswith("chunk_words")]


def _copy_table(old: sqlite3.Connection, db: Database, table: str, columns: dict[str, str], result: Salvaged) -> None:
    """Copy the intact or acceptable rows of a table."""
    there = _columns_there(old, table)
    names = [name for name in columns if name in there]
    if not names:
        return
    read = f"SELECT rowid, {', '.join(f'[{name}]' for name in names)} FROM [{table}] NOT INDEXED"
    marks = ", ".join("?" * len(names))
    insert = f"INSERT OR IGNORE INTO [{table}] ({', '.join(f'[{n}]' for n in names)}) VALUES ({marks})"
    for values in _rows(old, read, result, table):
        row = _accepted(table, dict(zip(names, values, strict=True)), columns, result)
        try:
            saved = db.execute(insert, [row[name] for name in names]).rowcount if row else 0
        except sqlite3.IntegrityError:
            saved = 0
        (result.saved if saved > 0 else result.lost)[table] += 1


def _columns_there(old: sqlite3.Connection, table: str) -> set[str]:
    with suppress(sqlite3.Error):
        found = old.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
        return {name.decode(errors="replace") for (name,) in found}
    return set()


def _rows(old: sqlite3.Connection, read: str, result: Salvaged, table: str) -> Iterator[Sequence[Any]]:
    """Yields the readable rows of a table. Reads each range of rowids from both ends; where reading fails, divides the
    unread rest into two ranges.
    """
    parts, tries = deque([(-_MAX_ROWID - 1, _MAX_ROWID)]), 0
    while parts and (tries := tries + 1) < _MAX_TRIES:
        first, last = parts.popleft()
        at = first
        try:
            for rowid, *values in old.execute(f"{read} WHERE rowid BETWEEN ? AND ? ORDER BY rowid", [first, last]):
                at = min(rowid, _MAX_ROWID - 1) + 1
                yield values
            continue
        except _UNREADABLE:
            first = at
        at = last
        try:
            for rowid, *values in old.execute(f"{read} WHERE rowid BETWEEN ? AND ? ORDER BY rowid DESC", [first, last]):
                at = max(rowid, -_MAX_ROWID) - 1
                yield values
        except _UNREADABLE:
            last = at
        if first < last:
            middle = (first + last) // 2
            parts += [(first, middle), (middle + 1, last)]
        elif first == last:
            result.lost[table] += 1


def _accepted(table: str, row: dict[str, Any], columns: dict[str, str], result: Salvaged) -> dict[str, Any] | None:
    """Returns the row to write, with damaged values replaced, or None if the row must be dropped."""
    whole = table not in CHECKED or row.get("checksum") is None or row["checksum"] == _checksum_of(table, row)
    plain = _PLAIN.get(table, {})
    doubtful = not whole
    for name, value in list(row.items()):
        kind = columns[name]
        good, row[name] = _typed(value, kind, name)
        if not good:
            if table not in _KEPT_READABLE or name not in plain:
                return None
            row[name], doubtful = plain[name], True
    if not whole and table not in _KEPT_READABLE:
        return None
    if table == "documents" and text_id(row.get("text") or "") != row.get("id"):
        return None
    if doubtful:
        result.doubtful[table] += 1
    return row


def _typed(value: Any, kind: str, name: str) -> tuple[bool, Any]:
    """Returns whether the value has the type of its column, and the value (text decoded). A JSON value must also be an
    object or list, as its column requires.
    """
    if value is None:
        return True, None
    if kind == "TEXT":
        try:
            text = value.decode()
            return name not in _JSON or isinstance(json.loads(text), _JSON[name]), text
        except (AttributeError, ValueError, RecursionError):
            return False, None
    good = {"INTEGER": (int,), "REAL": (int, float), "BLOB": (bytes,)}[kind]
    return isinstance(value, good), value


def _checksum_of(table: str, row: dict[str, Any]) -> int:
    left_out = {"checksum", "text"} if table == "documents" else {"checksum"}
    return row_checksum(*(value for name, value in row.items() if name not in left_out))


def _mend_links(db: Database, result: Salvaged) -> None:
    """Turn replies to lost messages into first messages, and remove rows that refer to lost rows."""
    db.execute("UPDATE messages SET parent = NULL WHERE parent NOT IN (SELECT id FROM messages) OR parent >= id")
    last = "SELECT max(id) FROM messages WHERE chat = chats.id"
    db.execute(f"UPDATE chats SET leaf = ({last}) WHERE leaf NOT IN (SELECT id FROM messages WHERE chat = chats.id)")
    db.execute("UPDATE documents SET superseded = NULL WHERE superseded NOT IN (SELECT id FROM documents)")
    while broken := db.execute("PRAGMA foreign_key_check").fetchall():
        for table, rowid, *_ in broken:
            removed = db.execute(f"DELETE FROM [{table}] WHERE rowid = ?", [rowid]).rowcount
            result.saved[table] -= removed
            result.lost[table] += removed
    fill_files(db)
    if result.lost["chunks"]:  # some documents may lack chunks, so all are indexed anew
        for table in ("vectors", "chunks", "indexed"):
            db.execute(f"DELETE FROM [{table}]")
    db.execute("DELETE FROM vector_removals WHERE rowid > 1")
    db.execute("INSERT OR IGNORE INTO vector_removals (rowid, count) VALUES (1, 0)")


def _index_words(db: Database) -> None:
    """Build the word index from chunks and texts."""
    for chunk, _, words, _ in words_of_chunks(db):
        db.execute("INSERT INTO chunk_words (rowid, words) VALUES (?, ?)", [chunk, words])


def _exchange(file: Path, new: Path, aside: Path) -> None:
    """Replace the damaged database with the new one and keep it as ``aside``. At every moment, ``file`` exists."""
    sync(new)
    try:
        os.link(file, aside)
    except OSError:
        shutil.copyfile(file, aside)
    journal = Path(f"{file}-journal")
    if journal.exists():
        journal.replace(f"{aside}-journal")
    new.replace(file)
