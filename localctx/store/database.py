"""Opens the store's database: sets up the connection, and copies the file before running migrations."""

import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from localctx.errors import StoreError
from localctx.store.row_checksum import register
from localctx.store.schema import migrate

COPIES = 2  # copies of the database made before migrations; older ones are deleted


class _Connection(sqlite3.Connection):
    """A connection whose transactions take the write lock at their start, so that two processes wait for each other.

    If both processes read first and then wrote, SQLite would refuse one of the writes immediately.
    """

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute("BEGIN IMMEDIATE" if sql == "BEGIN" else sql, *parameters)


def open_database(file: Path) -> Database:
    """Open the database ``file``; create or migrate it if needed. Raises StoreError if a newer version has written the
    database, and sqlite3.Error or OSError if it cannot be opened.
    """
    connection = sqlite3.connect(file, timeout=30, check_same_thread=False, factory=_Connection)
    try:
        return _prepare(Database(connection), file)
    except BaseException:
        connection.close()
        raise


def copies(home: Path) -> list[Path]:
    """Returns the copies of a data folder's database that were made before migrations, oldest first."""
    return sorted((home / "backups").glob("library-*.db"))


def copy_database(db: Database, target: Path) -> None:
    """Write a copy of the database to the new file ``target``, atomically. Raises sqlite3.Error, OSError."""
    part = target.with_suffix(".part")
    part.unlink(missing_ok=True)
    try:
        db.execute("VACUUM INTO ?", [str(part)])
        part.chmod(0o600)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _prepare(db: Database, file: Path) -> Database:
    for pragma in ("foreign_keys = ON", "synchronous = EXTRA", "secure_delete = ON"):
        db.execute(f"PRAGMA {pragma}")
    register(db.conn)
    known = {m.name for m in migrate._migrations}
    if newer := [m.name for m in migrate.applied(db) if m.name not in known]:
        raise StoreError(f"{file} was written by a newer localctx ({newer[-1]})", "update localctx")
    if migrate.pending(db):
        if migrate.applied(db):
            _copy_before_change(db, file.parent)
        with db.atomic():  # a second process finds the migration done
            migrate.apply(db)
    file.chmod(0o600)
    return db


def _copy_before_change(db: Database, home: Path) -> None:
    """Copy the database before a migration and delete the oldest copies."""
    folder = home / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    copy_database(db, folder / f"library-{file_time()}.db")
    for old in copies(home)[:-COPIES]:
        with suppress(OSError):
            old.unlink()


def file_time() -> str:
    """Returns the current UTC time, to the nanosecond, as text for a file name. Such names sort by time."""
    seconds, rest = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(seconds))}-{rest:09}"
