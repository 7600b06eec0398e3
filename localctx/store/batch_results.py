"""Results: what a batch made of documents, by recipe, and which files say so."""

import json
import time
from typing import Any

from sqlite_utils import Database


class BatchResults:
    """The results of a store. A recipe is a hash of all that a result depends on, beside the document."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def get(self, document: str, recipe: str) -> dict[str, Any] | None:
        """What was made of a document by this recipe; None where nothing was."""
        where = "SELECT result FROM results WHERE document = ? AND recipe = ?"
        row = next(iter(self._db.query(where, [document, recipe])), None)
        return json.loads(row["result"]) if row else None

    def put(self, document: str, recipe: str, result: dict[str, Any]) -> None:
        """Remember a result; the document must be kept."""
        row = {"document": document, "recipe": recipe, "result": json.dumps(result), "made": time.time()}
        self._db.table("results").upsert(row, pk=("document", "recipe"))

    def remove_parts(self, document: str, recipe: str) -> None:
        """Forget what was remembered on the way to a result."""
        with self._db.atomic():
            where = "DELETE FROM results WHERE document = ? AND recipe LIKE ?"
            self._db.execute(where, [document, part_of(recipe, "%")])

    def written(self, file: str) -> str | None:
        """What was last said to be in ``file``; None where nothing was."""
        row = next(iter(self._db.query("SELECT holds FROM written WHERE file = ?", [file])), None)
        return row["holds"] if row else None

    def note_written(self, file: str, document: str, holds: str) -> None:
        """Remember that ``file`` has a document's result; ``holds`` names which, and how it is written."""
        self._db.table("written").upsert({"file": file, "document": document, "holds": holds}, pk="file")

    def remove_of(self, document: str) -> None:
        """Forget what was made of a document; the files stay."""
        for table in ("results", "written"):
            self._db.execute(f"DELETE FROM {table} WHERE document = ?", [document])


def part_of(recipe: str, part: str) -> str:
    """The recipe of something that is made on the way."""
    return f"{recipe}/{part}"
