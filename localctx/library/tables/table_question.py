"""A question about a table: the columns it names, and what its words want computed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from localctx.library.tables.question_words import Computation, wanted
from localctx.library.tables.table import DataTable


@dataclass(frozen=True)
class TableQuestion:
    """A question about a table: its words, what it wants computed, and the columns by kind that it may be about."""

    question: str
    table: DataTable

    @cached_property
    def wanted(self) -> Computation:
        """What the question wants computed."""
        return wanted(self.question)

    def columns(self, *kinds: str) -> list[str]:
        """Returns the columns of these kinds: those that the question names, if it names any, else all."""
        found = [name for name in self.table.names if self.table.columns[name].kind in kinds]
        return best_named(self.question, found) or found

    @property
    def measures(self) -> list[str]:
        """The columns of numbers to compute with: not those of row numbers, unless there are no others."""
        numbers = [name for name in self.table.names if self.table.columns[name].kind == "number"]
        found = [name for name in numbers if not counts_rows(self.table, name)]
        return best_named(self.question, found) or found or self.columns("number")

    def measures_beside(self, where: str) -> list[str]:
        """Returns the columns of numbers to compute with, where rows meet a condition. Those of the condition are last,
        unless the question names no others, or them twice.
        """
        numbers = [name for name in self.table.names if self.table.columns[name].kind == "number"]
        others = [n for n in numbers if quoted(n) not in where and not counts_rows(self.table, n)]
        if not where or len(others) == len(numbers) or any(_is_named_twice(self.question, n) for n in self.measures):
            return self.measures
        return best_named(self.question, others) or [*others, *self.measures]

    @cached_property
    def names_used(self) -> list[str]:
        """The words of the question with a capital letter inside it that name no column, such as Norwegian."""
        words = re.findall(r"(?<=\w)\W+([^\W\d_]\w+)", self.question)
        known = {name for name in self.table.names if mentions(self.question, name)}
        return [w for w in words if w[0].isupper() and not any(mentions(w, name) for name in known)]

    @property
    def groups(self) -> list[str]:
        """The columns of texts and days whose values repeat."""
        return [name for name in self.columns("text", "day") if repeats(self.table, name)]


def _words(name: str) -> list[str]:
    """Returns the words of a column's name, also of one such as square_metres or unitPrice."""
    return [w.casefold() for w in re.findall(r"[^\W\d_]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name)) if len(w) > 1]


def _is_named_twice(question: str, name: str) -> bool:
    return any(len(re.findall(rf"\b{re.escape(word)}", question.casefold())) > 1 for word in _words(name))


def _has(question: str, word: str) -> bool:
    stem = word[:-1] if word.endswith("y") else word[: max(4, len(word) - 2)] if len(word) > 4 else word
    if re.search(r"[\u3040-\u9fff\uac00-\ud7af]", word):
        return word in question
    if len(word) > 5 and word in question.casefold():  # part of a compound
        return True
    return bool(re.search(rf"\b{re.escape(stem)}\w{{0,4}}\b", question.casefold()))


def mentions(question: str, name: str) -> bool:
    """Returns True if the question has a word of a column's name."""
    return any(_has(question, word) for word in _words(name))


def best_named(question: str, names: Sequence[str]) -> list[str]:
    """Returns those of the columns that the question names best: with all words of a long name, or with any."""
    whole = [name for name in names if mentions_all(question, name)]
    longest = max((len(_words(name)) for name in whole), default=0)
    return [name for name in whole if len(_words(name)) == longest] or [n for n in names if mentions(question, n)]


def mentions_all(question: str, name: str) -> bool:
    """Returns True if the question has all words of a column's name."""
    words = _words(name)
    return bool(words) and all(_has(question, word) for word in words)


def holds_years(table: DataTable, name: str) -> bool:
    """Returns True of a column of years."""
    values = values_of(table, name)
    return bool(values) and all(1900 <= value <= 2100 and value == int(value) for value in values)


def repeats(table: DataTable, name: str) -> bool:
    """Returns True of a column with a value that several rows have: it names groups."""
    filled = [value for value in table.values[name] if value is not None]
    return len(set(filled)) < len(filled)


def tells_rows_apart(table: DataTable, name: str) -> bool:
    """Returns True of a column of texts or of row numbers: it says which row is meant."""
    return table.columns[name].kind == "text" or (table.columns[name].kind == "number" and counts_rows(table, name))


def counts_rows(table: DataTable, name: str) -> bool:
    """Returns True of a column of row numbers or identifiers: whole numbers that rise by one."""
    values = values_of(table, name)
    return len(values) > 2 and all(b - a == 1 for a, b in pairwise(values))


def values_of(table: DataTable, name: str) -> list[float]:
    """Returns the numbers of a column."""
    return [value for value in table.values[name] if isinstance(value, float)]


def quoted(name: str) -> str:
    """Returns a column's name as SQL."""
    return '"' + name.replace('"', '""') + '"'
