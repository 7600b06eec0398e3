"""Finds damage in a database. It runs SQLite's own check, and looks for missing tables and columns, values of the wrong
type, and rows that fail their checksums.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

from sqlite_utils import Database

from localctx.store.row_checksum import CHECKED, checked_columns, checksum_sql, register
from localctx.store.schema import migrate

_TYPES = {"TEXT": "'text'", "INTEGER": "'integer'", "REAL": "'real', 'integer'", "BLOB": "'blob'"}
RowId = int


def examine_database(db: Database) -> str:
    """Returns the first fault of a database as text, or ``ok``. Checksums of rows are not checked here."""
    try:
        return in_a_line(next(_faults(db), "ok"))
    except (sqlite3.DatabaseError, UnicodeError) as e:  # the message of an error may not be UTF-8
        return in_a_line(str(e))


def in_a_line(reason: str) -> str:
    """Returns SQLite's description ``reason`` of the damage as one line, without text from the database."""
    return " ".join(reason.removeprefix("*** in database main ***").partition(" with text ")[0].split())


def damaged_rows(db: Database) -> dict[str, list[RowId]]:
    """Returns the ids of the rows that fail their checksums, by table.

    Raises sqlite3.DatabaseError if a table cannot be read at all; ``examine_database`` reports that.
    """
    found = dict[str, list[RowId]]()
    for table in CHECKED:
        wrong = f"checksum IS NOT {checksum_sql(checked_columns(db, table))}"
        found[table] = [row[0] for row in db.execute(f"SELECT rowid FROM [{table}] WHERE {wrong}")]
    return {table: rows for table, rows in found.items() if rows}


def find_damage(file: Path) -> str:
    """Check the database ``file`` for damage. Returns a description of the damage; empty if the file is intact, or
    cannot be opened now.
    """
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1)) as connection:
            register(connection)
            db = Database(connection)
            if _is_older(db):  # not migrated since an update, so the expected columns do not apply
                return in_a_line(next(_pages_at_fault(db), ""))
            if (fault := examine_database(db)) != "ok":
                return "" if "locked" in fault or "unable to open" in fault else fault
            return ", ".join(f"{len(rows):,} damaged rows of {table}" for table, rows in damaged_rows(db).items())
    except sqlite3.OperationalError:
        return ""
    except (sqlite3.Error, UnicodeError) as e:
        return in_a_line(str(e))


def _is_older(db: Database) -> bool:
    """Returns True if the database records that migrations are pending."""
    try:
        return bool(migrate.pending(db))
    except sqlite3.OperationalError:  # the table of migrations is lost
        return False


@cache
def expected_columns() -> dict[str, dict[str, str]]:
    """Returns the columns that each table of an up-to-date database must have, with their types."""
    with closing(sqlite3.connect(":memory:")) as connection:
        register(connection)
        db = Database(connection)
        migrate.apply(db)
        return {table: _columns(db, table) for table in db.table_names() if not table.startswith("_sqlite")}


def _columns(db: Database, table: str) -> dict[str, str]:
    return {row["name"]: row["type"] for row in db.query(f"SELECT name, type FROM pragma_table_info('{table}')")}


def _faults(db: Database) -> Iterator[str]:
    yield from _pages_at_fault(db)
    for table, columns in expected_columns().items():
        if table.startswith("chunk_words"):
            continue
        there = _columns(db, table)
        yield from (f"the column {column} of {table} is lost" for column in columns if column not in there)
        kinds = ((column, _TYPES[type_]) for column, type_ in columns.items())
        wrong = " OR ".join(f"typeof([{column}]) NOT IN ({kind}, 'null')" for column, kind in kinds)
        if db.execute(f"SELECT 1 FROM [{table}] WHERE {wrong} LIMIT 1").fetchone():
            yield f"a value in {table} is of another type"
    yield from _index_faults(db)


def _pages_at_fault(db: Database) -> Iterator[str]:
    yield from (row[0] for row in db.execute("PRAGMA integrity_check(1)").fetchall() if row[0] != "ok")


def _index_faults(db: Database) -> Iterator[str]:
    """Yields the faults that FTS5 finds in the word index. The check of FTS5 is an INSERT statement."""
    if not db.execute("PRAGMA query_only").fetchone()[0]:
        try:
            db.execute("INSERT INTO chunk_words (chunk_words) VALUES ('integrity-check')")
        except sqlite3.OperationalError as e:
            if "locked" not in str(e) and "readonly" not in str(e):
                yield f"the search index: {e}"
        except sqlite3.DatabaseError as e:
            yield f"the search index: {e}"
