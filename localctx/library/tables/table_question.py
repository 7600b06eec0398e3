"""Relates a question to a table: finds the columns that the question names, and the columns to compute with or to group
by.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from localctx.library.tables.question_words import Computation, wanted
from localctx.library.tables.table import DataTable

_WORD = re.compile(r"[^\W\d_]+n['’]t\b|no\.|[^\W_]+", re.IGNORECASE)  # noqa: RUF001 ("no." is short for number)


class QuestionWord(NamedTuple):
    """A word of a question: its ``text`` in lower case, with "not" for words such as "aren't", and its characters
    ``span``.
    """

    text: str
    span: tuple[int, int]


@dataclass(frozen=True)
class TableQuestion:
    """A question about a table. Its methods return the columns that the question may mean, and the computation that it
    asks for.
    """

    question: str
    table: DataTable

    @cached_property
    def wanted(self) -> Computation:
        """The computation that the question asks for."""
        return wanted(self.question)

    @cached_property
    def words(self) -> tuple[QuestionWord, ...]:
        """The words and numbers of the question in order."""
        found = ((m.group().casefold(), m.span()) for m in _WORD.finditer(self.question))
        return tuple(QuestionWord("not" if re.search("n['’]t$", text) else text, span) for text, span in found)  # noqa: RUF001

    def columns(self, *kinds: str) -> list[str]:
        """Returns the columns of these ``kinds`` (``number``, ``text``, ``day``) that the question names. If it names
        none, returns all columns of these kinds.
        """
        found = [name for name in self.table.names if self.table.columns[name].kind in kinds]
        return best_named(self.question, found) or found

    @property
    def measures(self) -> list[str]:
        """The number columns with which the question may compute: those that it names or, if it names none, all.
        Columns that number the rows are left out, unless there are no others.
        """
        numbers = [name for name in self.table.names if self.table.columns[name].kind == "number"]
        found = [name for name in numbers if not counts_rows(self.table, name)]
        return best_named(self.question, found) or found or self.columns("number")

    def measures_beside(self, where: str) -> list[str]:
        """Returns the number columns with which the question may compute, likeliest first. ``where`` is an SQL
        condition on the rows that the question sets.

        A free column is a number column that is not in the condition and does not number the rows. Returns ``measures``
        if there is no condition, if all number columns are free, or if the question names a measure twice. Otherwise
        returns the free columns that the question names. If it names none, returns all free columns and then
        ``measures``.
        """
        numbers = [name for name in self.table.names if self.table.columns[name].kind == "number"]
        others = [n for n in numbers if quoted(n) not in where and not counts_rows(self.table, n)]
        if not where or len(others) == len(numbers) or any(_is_named_twice(self.question, n) for n in self.measures):
            return self.measures
        return best_named(self.question, others) or [*others, *self.measures]

    @cached_property
    def names_used(self) -> list[str]:
        """The words of the question with a capital letter, except its first word, that are in no column's name, such as
        Norwegian.
        """
        words = re.findall(r"(?<=\w)\W+([^\W\d_]\w+)", self.question)
        known = {name for name in self.table.names if mentions(self.question, name)}
        return [w for w in words if w[0].isupper() and not any(mentions(w, name) for name in known)]

    @property
    def groups(self) -> list[str]:
        """The text and day columns by which rows can be grouped, because some values occur repeatedly."""
        return [name for name in self.columns("text", "day") if repeats(self.table, name)]


def column_words(name: str) -> list[str]:
    """Returns the words of a column's name in lower case. ``square_metres`` and ``unitPrice`` have two words each."""
    return [w.casefold() for w in re.findall(r"[^\W\d_]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name)) if len(w) > 1]


def _is_named_twice(question: str, name: str) -> bool:
    return any(len(re.findall(rf"\b{re.escape(word)}", question.casefold())) > 1 for word in column_words(name))


def _has(question: str, word: str) -> bool:
    stem = word[:-1] if word.endswith("y") else word[: max(4, len(word) - 2)] if len(word) > 4 else word
    if re.search(r"[\u3040-\u9fff\uac00-\ud7af]", word):
        return word in question
    question, stem = _without_accents(question), _without_accents(stem)
    if len(word) > 5 and _without_accents(word) in question:  # part of a compound
        return True
    return bool(re.search(rf"\b{re.escape(stem)}\w{{0,4}}\b", question))


def _without_accents(text: str) -> str:
    """Returns text in lower case without accents, so that Gehälter is a form of Gehalt."""
    return "".join(c for c in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(c))


def means_column(word: str, name: str) -> bool:
    """Returns True if a ``word`` in lower case is a word of a column's name, perhaps with another ending or as a part
    of a compound. Opposites such as "unapproved" are not.
    """
    return any(
        _has(word, part) and not re.match(rf"(?:un|non|nicht|dis){re.escape(part[:4])}", word)
        for part in column_words(name)
    )


def mentions(question: str, name: str) -> bool:
    """Returns True if the question contains a word of ``name``, the name of a column, perhaps with another ending."""
    return any(_has(question, word) for word in column_words(name))


def best_named(question: str, names: Sequence[str]) -> list[str]:
    """Returns those of the column ``names`` that the question names best.

    If the question contains all words of some names, the result is the longest of these. Otherwise it is all names of
    which the question contains a word.
    """
    whole = [name for name in names if mentions_all(question, name)]
    longest = max((len(column_words(name)) for name in whole), default=0)
    return [name for name in whole if len(column_words(name)) == longest] or [n for n in names if mentions(question, n)]


def mentions_all(question: str, name: str) -> bool:
    """Returns True if the question contains all words of ``name``, the name of a column, perhaps with other endings."""
    words = column_words(name)
    return bool(words) and all(_has(question, word) for word in words)


def holds_years(table: DataTable, name: str) -> bool:
    """Returns True if all numbers of a column are whole numbers from 1900 to 2100."""
    values = values_of(table, name)
    return bool(values) and all(1900 <= value <= 2100 and value == int(value) for value in values)


def repeats(table: DataTable, name: str) -> bool:
    """Returns True if some value of the column ``name`` occurs in several rows, so that rows can be grouped by it."""
    filled = [value for value in table.values[name] if value is not None]
    return len(set(filled)) < len(filled)


def tells_rows_apart(table: DataTable, name: str) -> bool:
    """Returns True if the column ``name`` can identify a row: it has texts, or numbers the rows."""
    return table.columns[name].kind == "text" or (table.columns[name].kind == "number" and counts_rows(table, name))


def counts_rows(table: DataTable, name: str) -> bool:
    """Returns True if the column ``name`` only numbers the rows: its numbers rise by one from row to row."""
    values = values_of(table, name)
    return len(values) > 2 and all(b - a == 1 for a, b in pairwise(values))


def identifies_rows(table: DataTable, name: str) -> bool:
    """Returns True if the column ``name`` has a whole number of its own for each row, such as an order's."""
    values = values_of(table, name)
    return len(set(values)) == len(table.rows) and all(value == int(value) for value in values)


def values_of(table: DataTable, name: str) -> list[float]:
    """Returns the numbers of a column, without its empty values."""
    return [value for value in table.values[name] if isinstance(value, float)]


def quoted(name: str) -> str:
    """Returns a column's name quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_text(value: str) -> str:
    """Returns a text quoted for SQL."""
    return "'" + value.replace("'", "''") + "'"


def literal(value: float | str) -> str:
    """Returns a value of a cell in SQL."""
    if isinstance(value, str):
        return quoted_text(value)
    return str(int(value) if value.is_integer() else value)


def is_one_of(name: str, values: Sequence[float | str]) -> str:
    """Returns the SQL condition that a column has one of ``values``."""
    told = [literal(value) for value in values]
    return f"{quoted(name)} = {told[0]}" if len(told) == 1 else f"{quoted(name)} IN ({', '.join(told)})"
