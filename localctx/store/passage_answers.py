"""Passage answers: when a question is asked about every passage of some documents, stores the answer from each
passage.
"""

import json
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlite_utils import Database

MAX_RECIPES = 64  # only the answers to the latest questions are stored

PassageKey = tuple[str, int, int]
"""A document's id and the characters ``start..end`` of its text."""


class StoredAnswer(NamedTuple):
    """The answer from one passage, and the characters ``start..end`` of the document that support it. ``sure`` is False
    if the passage probably answers the question, but the model did not state an answer.
    """

    text: str
    start: int
    end: int
    sure: bool = True


class PassageAnswers:
    """The answers from single passages in a store. A recipe is a hash of everything on which an answer depends except
    the passage, such as the question and the model.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def of(self, recipe: str, documents: Sequence[str]) -> dict[PassageKey, StoredAnswer | None]:
        """Returns a dict from passages of these documents to the answers that are stored under ``recipe`` (a hash of
        the question, the model and so on). The value None means that the passage does not answer the question.
        """
        rows = self._db.query(
            """SELECT document, start, "end", answer, quote_start, quote_end, sure FROM passage_answers
            WHERE recipe = ? AND document IN (SELECT value FROM json_each(?))""",
            [recipe, json.dumps(list(documents))],
        )
        return {
            (row["document"], row["start"], row["end"]): None
            if row["answer"] is None
            else StoredAnswer(row["answer"], row["quote_start"], row["quote_end"], bool(row["sure"]))
            for row in rows
        }

    def put(self, recipe: str, answers: Iterable[tuple[PassageKey, StoredAnswer | None]]) -> None:
        """Store answers from passages under ``recipe`` (a hash of the question, the model and so on), in one
        transaction. The passages' documents must be stored. Only the answers of the latest MAX_RECIPES recipes are
        kept.
        """
        made = time.time()
        values = ((key, answer or (None, None, None, True)) for key, answer in answers)
        rows = [(recipe, *key, *about, made, sure) for key, (*about, sure) in values]
        with self._db.atomic():
            self._db.conn.executemany("INSERT OR REPLACE INTO passage_answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._db.execute(
                """DELETE FROM passage_answers WHERE recipe NOT IN
                (SELECT recipe FROM passage_answers GROUP BY recipe ORDER BY max(made) DESC LIMIT ?)""",
                [MAX_RECIPES],
            )

    def remove_document(self, document: str) -> None:
        """Remove all answers from a document's passages."""
        self._db.execute("DELETE FROM passage_answers WHERE document = ?", [document])
