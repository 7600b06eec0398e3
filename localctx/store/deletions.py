"""The trash: deleted documents and chats that can be restored for TRASH_DAYS.

Their rows move here from the regular tables, so that no other query finds them.
"""

import base64
import json
import sqlite3
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlite_utils import Database

from localctx.errors import StoreError
from localctx.store.document_files import DocumentFile, DocumentFiles, fill_files

TRASH_DAYS = 7
TRASH_SECONDS = TRASH_DAYS * 24 * 3600  # how long a deletion can be restored

Kind = Literal["document", "chat"]
TableRows = dict[str, list[dict[str, Any]]]
_TABLES: dict[str, str] = {"document": "documents", "chat": "chats"}
_MADE_AGAIN = ("chunks", "indexed", "caches", "cache_documents")  # rebuilt from the text at the next question
# columns that refer to an item of this kind without a foreign key: (kind, table, column)
_WITHOUT_KEY = (("document", "written", "document"),)


@dataclass(frozen=True)
class Deletion:
    """A deleted document or chat in the trash. ``kind`` is ``document`` or ``chat``, ``item`` is the id of the document
    or chat, and ``name`` is the name that it had. ``deleted`` is the time of the deletion in seconds since 1970.
    """

    id: int
    kind: Kind
    item: str
    name: str
    deleted: float


def left_in_trash(deletion: Deletion) -> str:
    """Returns for how long a deleted item can still be restored, in words."""
    hours = max(1, round((deletion.deleted + TRASH_SECONDS - time.time()) / 3600))
    return f"{hours} h" if hours < 24 else f"{round(hours / 24)} d"


class Deletions:
    """The trash of a store: keeps the rows of deleted documents and chats, and restores them."""

    def __init__(self, db: Database, files: DocumentFiles) -> None:
        self._db, self._files = db, files

    def all(self) -> list[Deletion]:
        """Returns all deletions, latest first."""
        rows = self._db.query("SELECT id, kind, item, name, deleted FROM deletions ORDER BY id DESC")
        return [Deletion(**row) for row in rows]

    def keep(self, kind: Kind, item: str) -> Deletion:
        """Copy the rows of a document or chat into the trash, before the item is removed. Raises StoreError if there is
        no such item.
        """
        rows = {_TABLES[kind]: self._select(_TABLES[kind], "id", item)}
        if not rows[_TABLES[kind]]:
            raise StoreError(f"this {kind} was deleted already", "reload the page")
        rows |= {table: self._select(table, column, item) for table, column in self._columns(kind)}
        row: dict[str, Any] = {"kind": kind, "item": item, "name": self._name(kind, rows), "deleted": time.time()}
        content = next((original["content"] for original in rows.get("originals", [])), "")
        deletion: Any = self._db.table("deletions").insert({**row, "content": content, "rows": _packed(rows)}).last_pk
        return Deletion(deletion, **row)

    def restore(self, deletion: int) -> Deletion:
        """Restore the document or chat that the deletion with this id moved to the trash. Raises StoreError if the
        deletion is no longer in the trash.
        """
        with self._db.atomic():
            columns = "id, kind, item, name, deleted, rows"
            rows = list(self._db.query(f"SELECT {columns} FROM deletions WHERE id = ?", [deletion]))
            if not rows:
                raise StoreError("this was deleted for good meanwhile", "add the document again, or begin a new chat")
            row = rows[0]
            kept = _unpacked(row.pop("rows"))
            if row["kind"] == "chat":
                self._free_numbers(kept)
            self._insert(kept, _TABLES[row["kind"]])
            if row["kind"] == "document":
                self._order_versions(row["item"], kept.get("files", []))
            self._db.execute("DELETE FROM deletions WHERE id = ?", [deletion])
        return Deletion(**row)

    def forget(self, before: float, only: Sequence[int] | None = None) -> None:
        """Delete for good the deletions from before the time ``before`` (in seconds since 1970). If ``only`` is given,
        delete only those of them whose ids are in ``only``.
        """
        old = [row["id"] for row in self._db.query("SELECT id FROM deletions WHERE deleted < ?", [before])]
        for deletion in old if only is None else set(old) & set(only):
            self._db.execute("DELETE FROM deletions WHERE id = ?", [deletion])

    def find(self, query: str) -> Deletion:
        """Returns the latest deletion that ``query`` names: by the id of the deletion, or by the name or the beginning
        of the id of the deleted item. Raises StoreError if there is none.
        """
        prefix = query if len(query) > 3 else "never"  # a shorter prefix is ambiguous
        for d in self.all():
            if query in (str(d.id), d.name) or d.item.startswith(prefix):
                return d
        raise StoreError(f"there is no {query!r} in the trash", "see: localctx library trash list")

    def any_before(self, before: float) -> bool:
        """Returns True if the trash has a deletion from before the time ``before`` (in seconds since 1970)."""
        return bool(self._db.table("deletions").count_where("deleted < ?", [before]))

    def _columns(self, kind: Kind) -> list[tuple[str, str]]:
        """Returns the (table, column) pairs that refer to a document or chat, except tables that can be rebuilt."""
        found = [(table, column) for of, table, column in _WITHOUT_KEY if of == kind]
        for table in self._db.table_names():
            keys = self._db.query(f"PRAGMA foreign_key_list([{table}])")
            found += [
                (table, key["from"]) for key in keys if key["table"] == _TABLES[kind] and table not in _MADE_AGAIN
            ]
        return found

    def _select(self, table: str, column: str, item: str) -> list[dict[str, Any]]:
        return list(self._db.query(f'SELECT * FROM [{table}] WHERE "{column}" = ? ORDER BY rowid', [item]))

    def _name(self, kind: Kind, rows: TableRows) -> str:
        return rows["chats"][0]["title"] if kind == "chat" else rows["documents"][0]["name"]

    def _insert(self, kept: TableRows, first: str) -> None:
        """Insert the kept rows again; the rows of the table ``first`` are inserted before all others.

        Existing rows are not changed. Skips rows that refer to a row that no longer exists, such as a removed
        collection.
        """
        new = self._insert_rows(first, kept.pop(first))
        for table, rows in kept.items():
            if new or self._db.table(table).pks != ["rowid"]:  # without a primary key, rows would be duplicated
                self._insert_rows(table, rows)

    def _insert_rows(self, table: str, rows: list[dict[str, Any]]) -> int:
        inserted = 0
        for row in rows:
            columns, values = ", ".join(f"[{name}]" for name in row), ", ".join("?" * len(row))
            sql = f"INSERT OR IGNORE INTO [{table}] ({columns}) VALUES ({values})"
            try:
                inserted += self._db.execute(sql, list(row.values())).rowcount
            except sqlite3.IntegrityError:
                continue
        return inserted

    def _free_numbers(self, kept: TableRows) -> None:
        """Give the kept messages of a chat new ids if newer messages took any of the old ids."""
        taken = {row["id"] for row in self._db.query("SELECT id FROM messages")}
        if not any(m["id"] in taken for m in kept["messages"]):
            return
        first = max([*taken, *(m["id"] for m in kept["messages"])]) + 1
        numbers = {m["id"]: first + i for i, m in enumerate(kept["messages"])}
        for message in kept["messages"]:
            message["id"], message["parent"] = numbers[message["id"]], numbers.get(message["parent"])
        for chat in kept["chats"]:
            chat["leaf"] = numbers.get(chat["leaf"])

    def _order_versions(self, document: str, files: list[dict[str, Any]]) -> None:
        """Assign a restored document its files again, except files from whose path a newer document was read meanwhile.

        If no file is left, the restored document becomes an older version of the newer document. If its own newer
        version was deleted meanwhile, that link is removed first.
        """
        gone = "id = ? AND superseded NOT IN (SELECT id FROM documents)"
        self._db.execute(f"UPDATE documents SET superseded = NULL WHERE {gone}", [document])
        names = DocumentFile.__annotations__
        for file in (DocumentFile(**{name: row[name] for name in names}) for row in files):
            if self._is_older(self._files.get(file.path), document):
                self._files.assign(file)
        fill_files(self._db)
        self._db.execute(
            """UPDATE documents SET superseded = (SELECT document FROM files WHERE files.path = documents.path)
            WHERE id = ? AND superseded IS NULL AND path <> '-' AND id NOT IN (SELECT document FROM files)""",
            [document],
        )

    def _is_older(self, there: DocumentFile | None, document: str) -> bool:
        """Returns True if the file ``there`` exists and its document was added before ``document``."""
        added = "SELECT 1 FROM documents AS a, documents AS b WHERE a.id = ? AND b.id = ? AND a.added < b.added"
        return bool(there and list(self._db.query(added, [there.document, document])))


def _packed(rows: TableRows) -> bytes:
    return zlib.compress(json.dumps(rows, default=lambda data: {"base64": base64.b64encode(data).decode()}).encode())


def _unpacked(packed: bytes) -> TableRows:
    def data(value: dict[str, Any]) -> Any:
        return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value

    rows: TableRows = json.loads(zlib.decompress(packed), object_hook=data)
    return rows
