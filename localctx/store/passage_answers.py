"""Passage answers: stores the answer of each passage, when a question was asked of every passage of some documents."""

import json
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlite_utils import Database

MAX_RECIPES = 64  # only the answers to the latest questions are stored

PassageKey = tuple[str, int, int]
"""A document's id and the characters ``start..end`` of its text."""


class StoredAnswer(NamedTuple):
    """The answer of one passage, and the range of characters ``start..end`` of the document that supports it."""

    text: str
    start: int
    end: int


class PassageAnswers:
    """The passage answers in a store. A recipe is a hash of everything on which an answer depends, except the
    passage.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def of(self, recipe: str, documents: Sequence[str]) -> dict[PassageKey, StoredAnswer | None]:
        """Returns the answers that are stored for passages of these documents, by passage. The value is None for a
        passage that has no answer.
        """
        rows = self._db.query(
            """SELECT document, start, "end", answer, quote_start, quote_end FROM passage_answers
            WHERE recipe = ? AND document IN (SELECT value FROM json_each(?))""",
            [recipe, json.dumps(list(documents))],
        )
        return {
            (row["document"], row["start"], row["end"]): None
            if row["answer"] is None
            else StoredAnswer(row["answer"], row["quote_start"], row["quote_end"])
            for row in rows
        }

    def put(self, recipe: str, answers: Iterable[tuple[PassageKey, StoredAnswer | None]]) -> None:
        """Store answers in one transaction; their documents must be stored. Keeps the latest MAX_RECIPES recipes."""
        made = time.time()
        rows = [(recipe, *key, *(answer or (None, None, None)), made) for key, answer in answers]
        with self._db.atomic():
            self._db.conn.executemany("INSERT OR REPLACE INTO passage_answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.execute(
                """DELETE FROM passage_answers WHERE recipe NOT IN
                (SELECT recipe FROM passage_answers GROUP BY recipe ORDER BY max(made) DESC LIMIT ?)""",
                [MAX_RECIPES],
            )

    def remove_document(self, document: str) -> None:
        """Remove every answer of a document's passages."""
        self._db.execute("DELETE FROM passage_answers WHERE document = ?", [document])
