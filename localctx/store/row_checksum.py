"""Checksums of database rows that cannot be rebuilt. The checksums detect changed values, which SQLite's own check does
not.

Triggers update the column ``checksum`` of these tables whenever a statement writes a row.
"""

import sqlite3
import struct
from collections.abc import Sequence
from typing import Any

from sqlite_utils import Database
from xxhash import xxh3_64_intdigest

CHECKED = (
    *("documents", "spans", "chats", "chat_documents", "messages", "collections", "collection_documents"),
    *("results", "verdicts", "deletions", "watched_folders", "files"),
)
"""The tables whose rows have a checksum."""
_BY_ID = {("documents", "text")}  # the id of a document is a hash of its text
_BIG = 1 << 63  # subtracted, because SQLite's integers are signed


def row_checksum(*values: Any) -> int:
    """Returns the XXH3 checksum of a row's values; text is passed as bytes. The checksum detects damage, not deliberate
    changes.
    """
    return xxh3_64_intdigest(b"".join(map(_bytes, values))) - _BIG


def register(connection: sqlite3.Connection) -> None:
    """Make ``row_checksum`` a function of SQL on this connection."""
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)


def checked_columns(db: Database, table: str) -> list[tuple[str, str]]:
    """Returns the columns of a table that the checksum of its rows covers, with their types."""
    columns = db.query(f"SELECT name, type FROM pragma_table_info('{table}')")
    return [(c["name"], c["type"]) for c in columns if c["name"] != "checksum" and (table, c["name"]) not in _BY_ID]


def checksum_sql(columns: Sequence[tuple[str, str]], of: str = "") -> str:
    """Returns an SQL expression that computes the checksum of a row from ``columns``. ``of`` is the prefix of the
    columns, such as ``new.``.

    Text is passed as bytes, because damaged text may not be UTF-8.
    """
    values = (f"CAST({of}[{name}] AS BLOB)" if type_ == "TEXT" else f"{of}[{name}]" for name, type_ in columns)
    return f"row_checksum({', '.join(values)})"


def add_checksums(db: Database, table: str) -> None:
    """Add the checksum column and its triggers to a table, and compute the checksums of its rows.

    A migration that adds a column to such a table must call ``drop_triggers`` before, and ``add_checksums`` afterwards.
    """
    register(db.conn)
    columns = checked_columns(db, table)
    if "checksum" not in db.table(table).columns_dict:
        db.execute(f"ALTER TABLE [{table}] ADD COLUMN checksum INTEGER")
    update = f"UPDATE [{table}] SET checksum = {{}}"
    db.execute(update.format(checksum_sql(columns)))
    when = {"inserted": "INSERT", "updated": f"UPDATE OF {', '.join(f'[{name}]' for name, _ in columns)}"}
    for name, event in when.items():
        db.execute(
            f"""CREATE TRIGGER [{table}_{name}] AFTER {event} ON [{table}]
            BEGIN {update.format(checksum_sql(columns, "new."))} WHERE rowid = new.rowid; END"""
        )


def drop_triggers(db: Database, table: str) -> None:
    """Drop the triggers that ``add_checksums`` created, before a column is added to the table."""
    for name in ("inserted", "updated"):
        db.execute(f"DROP TRIGGER [{table}_{name}]")


def _bytes(value: Any) -> bytes:
    """Returns a value as bytes, with its type and length (a float has a fixed length), so that different rows never
    give the same bytes.
    """
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    data = value if isinstance(value, bytes) else repr(value).encode()
    return b"%s%d:%s" % (type(value).__name__[:1].encode(), len(data), data)
