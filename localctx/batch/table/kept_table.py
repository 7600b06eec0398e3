"""The table that the window keeps current: its columns and documents in the store, and what is new in it."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from localctx.batch.table.cells import AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.row_changes import RowChange, row_changes
from localctx.store.documents import DocumentRow
from localctx.store.store import Store

NAME = "window"
"""The name under which the store records the table. Tables in files are recorded under their absolute paths."""


@dataclass(frozen=True)
class KeptTable:
    """A table of all current documents of the ``collection`` with this name, or of the whole library ("").

    ``filled`` is True once the first documents all have rows; only what comes later is new to the user.
    """

    columns: tuple[TableColumn, ...]
    collection: str = ""
    filled: bool = False

    @classmethod
    def load(cls, store: Store) -> "KeptTable | None":
        """Returns the table that is recorded in ``store``, or None. None too if the record is of another version."""
        with suppress(ValueError, TypeError, KeyError):
            if kept := store.results.written(NAME):
                given = json.loads(kept)
                columns = (TableColumn(**{**c, "choices": tuple(c["choices"])}) for c in given["columns"])
                return cls(tuple(columns), given["collection"], given["filled"])
        return None

    def save(self, store: Store) -> None:
        """Record the table in ``store``."""
        store.results.note_written(NAME, "", json.dumps(asdict(self)))  # of no document, so that it outlives them

    @property
    def scope(self) -> str:
        """The documents of the table in words."""
        return f"the collection “{self.collection}”" if self.collection else "the whole library"

    def is_gone(self, store: Store) -> bool:
        """Returns True if the collection of the table was deleted."""
        return bool(self.collection) and store.collections.find(self.collection) is None

    def documents(self, store: Store) -> list[DocumentRow]:
        """Returns the documents that have a row, sorted by name. Older versions have none."""
        rows = [row for row in store.documents.all() if not row.superseded]
        if self.collection:
            inside = set(store.collections.documents(store.collections.find(self.collection) or 0))  # 0 is none
            rows = [row for row in rows if row.id in inside]
        return sorted(rows, key=lambda row: (row.name.casefold(), row.id))


def forget(store: Store) -> None:
    """Remove the record of the table and of the rows that the user has seen. All answers stay."""
    store.results.forget_table(NAME)


def news_of(store: Store, rows: Mapping[str, AnswerRow], paths: Sequence[str]) -> list[RowChange]:
    """Returns what changed since ``note_seen``. ``paths`` are the documents of the table, and ``rows`` those of them
    that have ended; a row in the making is not news. Nor is a file that was moved and kept its name.
    """
    seen = _seen(store)
    now = [row for path in paths if (row := rows.get(path) or seen.get(path))]
    return [change for change in row_changes(seen, now) if not _is_move(change)]


def note_seen(store: Store, rows: Sequence[AnswerRow]) -> None:
    """Record that the user has seen these ``rows``, and that the table has no others."""
    store.results.note_rows(NAME, [row.to_json() for row in rows], _seen(store).keys() - {row.path for row in rows})


def note_told(store: Store, rows: Mapping[str, AnswerRow], changes: Collection[RowChange]) -> None:
    """Record that the user has seen these ``changes`` of ``rows`` (by path), unless they have changed again. Files that
    were moved and kept their names are recorded too.
    """
    seen = _seen(store)
    told = [*changes, *filter(_is_move, row_changes(seen, list(rows.values())))]
    named = {(change.path, change.document) for change in told}
    now = [row.to_json() for row in rows.values() if (row.path, row.document) in named]
    gone = {c.why if c.news == "renamed" else c.path for c in told if c.news in ("renamed", "removed")}
    store.results.note_rows(NAME, now, (gone & seen.keys()) - rows.keys())


def _is_move(change: RowChange) -> bool:
    return change.news == "renamed" and Path(change.path).name == Path(change.why).name


def news_line(change: RowChange, names: Mapping[str, str]) -> str:
    """Returns a change as a line of text, in which ``names`` (by path) stand for the paths of documents."""
    name = lambda path: names.get(path, Path(path).name)  # noqa: E731
    why = name(change.why) if change.news == "renamed" else change.why
    return replace(change, path=name(change.path), why=why).line("")


def _seen(store: Store) -> dict[str, AnswerRow]:
    """Returns the rows that the user has seen, by path; none if they are of another version."""
    with suppress(ValueError, TypeError, KeyError):
        return {path: AnswerRow.from_json(row) for path, row in store.results.written_rows(NAME).items()}
    return {}
