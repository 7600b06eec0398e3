"""Batch results: one result per document and recipe (a hash of the task, model and settings). Also records which output
file has which result.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlite_utils import Database


class BatchResults:
    """The results of batch jobs in a store. A recipe is a hash of everything on which a result depends except the
    document, such as the task, the model and its settings.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, document: str, recipe: str) -> dict[str, Any] | None:
        """Returns the result that was stored for a document under ``recipe`` (a hash of the task, model and settings),
        or None.
        """
        where = "SELECT result FROM results WHERE document = ? AND recipe = ?"
        row = next(iter(self._db.query(where, [document, recipe])), None)
        return json.loads(row["result"]) if row else None

    def put(self, document: str, recipe: str, result: dict[str, Any]) -> None:
        """Store the ``result`` of a document under ``recipe`` (a hash of the task, model and settings). The document
        must be stored.
        """
        row = {"document": document, "recipe": recipe, "result": json.dumps(result), "made": time.time()}
        self._db.table("results").upsert(row, pk=("document", "recipe"))

    def of(self, document: str) -> Iterator[dict[str, Any]]:
        """Yields all results for a document, oldest first, except the intermediate ones (see ``parts``)."""
        where = "document = ? AND instr(recipe, '/') = 0 ORDER BY made"
        yield from (
            json.loads(row["result"]) for row in self._db.query(f"SELECT result FROM results WHERE {where}", [document])
        )

    def parts(self, recipe: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yields the intermediate results that were stored under ``recipe``, such as summaries of sections: (document,
        name of the part, result).
        """
        for row in self._db.query("SELECT * FROM results WHERE recipe LIKE ?", [part_of(recipe, "%")]):
            yield row["document"], row["recipe"].partition("/")[2], json.loads(row["result"])

    def remove(self, document: str, recipes: Sequence[str]) -> None:
        """Remove the results of a document under these ``recipes``, and their intermediate results."""
        with self._db.atomic():
            for recipe in recipes:
                self._db.execute("DELETE FROM results WHERE document = ? AND recipe = ?", [document, recipe])
                self.remove_parts(document, recipe)

    def remove_parts(self, document: str, recipe: str) -> None:
        """Remove the intermediate results of a document under ``recipe``, such as summaries of sections."""
        with self._db.atomic():
            where = "DELETE FROM results WHERE document = ? AND recipe LIKE ?"
            self._db.execute(where, [document, part_of(recipe, "%")])

    def written(self, file: str) -> str | None:
        """Returns the description of the result in the output file ``file``, as ``note_written`` last recorded it, or
        None if nothing was recorded for this file.
        """
        row = next(iter(self._db.query("SELECT holds FROM written WHERE file = ?", [file])), None)
        return row["holds"] if row else None

    def note_written(self, file: str, document: str, holds: str) -> None:
        """Record that the output file ``file`` has the result of a document. ``holds`` describes the result and its
        format, so that an outdated file can be recognized.
        """
        self._db.table("written").upsert({"file": file, "document": document, "holds": holds}, pk="file")

    def written_rows(self, table: str) -> dict[str, dict[str, Any]]:
        """Returns the rows of the output table ``table`` (a file) as JSON, as ``note_rows`` recorded them. The keys are
        the paths of the documents.
        """
        start = _row_name(table, "")
        rows = self._db.query("SELECT file, holds FROM written WHERE substr(file, 1, ?) = ?", [len(start), start])
        return {row["file"].removeprefix(start): json.loads(row["holds"]) for row in rows}

    def note_rows(self, table: str, rows: Iterable[Mapping[str, Any]], removed: Iterable[str]) -> None:
        """Record that the output table ``table`` (a file) now has these rows, which are JSON objects with ``path`` and
        ``document``, and no longer has the rows of the paths ``removed``.
        """
        with self._db.atomic():
            for path in removed:
                self._db.execute("DELETE FROM written WHERE file = ?", [_row_name(table, path)])
            for row in rows:
                self.note_written(_row_name(table, row["path"]), row["document"], json.dumps(row))

    def forget_table(self, table: str) -> None:
        """Remove what ``note_written`` and ``note_rows`` recorded of the output table ``table``."""
        start = _row_name(table, "")
        where = "DELETE FROM written WHERE file = ? OR substr(file, 1, ?) = ?"
        self._db.execute(where, [table, len(start), start])

    def tables(self) -> set[str]:
        """Returns the paths of the output tables whose rows ``note_rows`` recorded."""
        found = self._db.query("SELECT DISTINCT substr(file, 1, instr(file, char(10)) - 1) AS name FROM written")
        return {row["name"] for row in found} - {""}

    def remove_document(self, document: str) -> None:
        """Remove every result of a document. The output files stay."""
        for table in ("results", "written"):
            self._db.execute(f"DELETE FROM {table} WHERE document = ?", [document])


def _row_name(table: str, path: str) -> str:
    """Returns the name under which the row of the document at ``path`` is recorded, among the names of output files."""
    return f"{table}\n{path}"


def part_of(recipe: str, part: str) -> str:
    """Returns the recipe under which an intermediate result is stored. ``recipe`` is the recipe of the whole result,
    and ``part`` names the intermediate result.
    """
    return f"{recipe}/{part}"
