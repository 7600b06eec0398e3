"""Makes the cells of a row from the answers about one document.

A cell has a value only if a quotation of the document holds it. Otherwise it is empty, and says what was answered.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from localctx.batch.outputs import ResultEntry
from localctx.batch.table.columns import TableColumn
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.values import Value, day_comes_first, read_values

CellState = Literal["found", "unsure", "missing", "corrected"]


@dataclass(frozen=True)
class AnswerCell:
    """The value of one column for one document. ``state`` says how it was found.

    ``found``: ``value`` is the value as JSON, ``shown`` is its text in the same form for all documents, and ``printed``
    are the words of the document, in the quotation ``quote`` on ``page``. ``unsure``: an answer was given, but no
    quotation contains it, or it is not of the column's kind; ``printed`` is then the answer. ``missing``: the document
    does not say it. ``corrected``: a person set ``shown``.
    """

    column: str
    state: CellState
    shown: str = ""
    value: Any = None
    unit: str = ""
    printed: str = ""
    quote: str = ""
    page: str | None = None
    start: int = 0
    end: int = 0
    confidence: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class AnswerRow:
    """The row of a document in a table: its ``path``, ``name`` and id, and its ``cells``. If the document could not be
    read, there are no cells, and ``why`` is the reason.
    """

    path: str
    name: str
    document: str
    cells: tuple[AnswerCell, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the row as JSON, with its cells by the names of their columns."""
        cells = {cell.column: cell.to_json() for cell in self.cells}
        return {"path": self.path, "name": self.name, "document": self.document, "cells": cells, "why": self.why}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "AnswerRow":
        """Returns the row that ``to_json`` converted to ``row``."""
        cells = tuple(AnswerCell(**cell) for cell in row["cells"].values())
        return cls(row["path"], row["name"], row["document"], cells, row["why"])


def is_number(value: Any) -> bool:
    """Returns True for a number. True and False, the values of yes and no, are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def cells_of(columns: Sequence[TableColumn], entry: ResultEntry) -> list[AnswerCell]:
    """Returns the cells of a document, a cell for each column. ``entry`` has the answers to their questions."""
    answers = {answer["question"]: answer for answer in entry["answers"]}
    return [_cell(column, answers[column.question]) for column in columns]


def _cell(column: TableColumn, answer: Mapping[str, Any]) -> AnswerCell:
    if not answer["answered"]:
        return AnswerCell(column.name, "missing", confidence=answer["confidence"])
    quotes = list(_quotes(answer))
    everything = " ".join(quote["quote"] for quote in quotes)
    language, day_first = language_of(everything) or "en", day_comes_first(everything)
    for value in read_values(column.kind, answer["answer"], language, day_first, column.choices):
        for quote in quotes:
            if held := _held(column, quote["quote"], value, language, day_first):
                return _found(column, held, quote, answer["confidence"])
    printed = " ".join(answer["answer"].split())
    return AnswerCell(column.name, "unsure", printed=printed, confidence=answer["confidence"])


def _quotes(answer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the citations of an answer, then the passages that support its sentences."""
    yield from answer["citations"]
    yield from (sentence["source"] for sentence in answer["sentences"] if sentence["source"])


def _found(column: TableColumn, value: Value, quote: Mapping[str, Any], confidence: float | None) -> AnswerCell:
    return AnswerCell(
        column.name,
        "found",
        shown=value.shown,
        value=value.value,
        unit=value.unit,
        printed=value.printed,
        quote=quote["quote"],
        page=quote["page"],
        start=quote["start"],
        end=quote["end"],
        confidence=confidence,
    )


def _held(column: TableColumn, quote: str, value: Value, language: str, day_first: bool | None) -> Value | None:
    """Returns the value as ``quote`` prints it, or None if ``quote`` does not contain it. For yes and no, any quotation
    is enough.

    A number, an amount or a date may be printed in another form than in the answer, but not in another currency.
    """
    if column.kind in ("number", "money", "date"):
        others = read_values(column.kind, quote, language, day_first)
        return next((o for o in others if o.value == value.value and value.unit in ("", o.unit)), None)
    parts = value.value if column.kind == "list" else [value.printed]
    return value if column.kind == "yes/no" or all(_plain(part) in _plain(quote) for part in parts) else None


def _plain(text: str) -> str:
    """Returns the text for comparison: in lower case, with the same kind of letters, blanks and quotation marks."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.sub(r"[\s\"'“”„‘’«»*_-]+", " ", text).strip()  # noqa: RUF001
