"""Finds the words of a question that a query does not use. A query that leaves out a word may leave out a condition, so
that its result would be wrong: of "How many invoices are overdue?", it would count all invoices.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

from localctx.library.tables.harmless_words import (
    CURRENCIES,
    DISTINCT,
    HARMLESS,
    HOW,
    LINKING,
    OR,
    SIGNS_BETWEEN,
    is_harmless,
)
from localctx.library.tables.question_words import comparatives, comparisons, vague_words, without_operations
from localctx.library.tables.table_conditions import place_of_value
from localctx.library.tables.table_dates import MONTHS
from localctx.library.tables.table_letters import is_harmless_letter, places_of_letters
from localctx.library.tables.table_question import (
    QuestionWord,
    TableQuestion,
    column_words,
    identifies_rows,
    means_column,
    quoted,
)
from localctx.library.tables.yes_no_columns import NamedCondition, is_yes_no, named_conditions
from localctx.store.search_words import SIGNS

_QUOTED = re.compile(r"""\"(?:[^"]|"")*"|'((?:[^']|'')*)'""")
_IN = re.compile(r"""\"((?:[^"]|"")*)" IN (\((?:'(?:[^']|'')*'(?:, )?)+\))""")
_SPACELESS = re.compile(f"[{SIGNS}]")


def names_rows(asked: TableQuestion) -> bool:
    """Returns True if a word of the question names a column, the sheet or the file of the table."""
    table = asked.table
    names = [*table.names, table.sheet, table.file]
    signs = (part for name in names for part in column_words(name) if _SPACELESS.search(part))
    told = any(means_column(word.text, name) for word in asked.words if not is_harmless(word.text) for name in names)
    return told or any(part[:2] in asked.question for part in signs)


class UnusedWords:
    """Finds the words of the question ``asked`` that a query does not use."""

    def __init__(self, asked: TableQuestion) -> None:
        self.asked = asked

    def of(self, query: str) -> list[str]:
        """Returns the words of the question that ``query`` does not use, in lower case.

        A word is used if it names a value, a condition, a column of the query or the computation. Words that never
        select rows, and names for the rows themselves, do not count.
        """
        return list(_QueryWords(self, query).unused())

    @cached_property
    def named(self) -> list[NamedCondition]:
        """The conditions that the question sets by the names of columns."""
        return list(named_conditions(self.asked))

    @cached_property
    def letters(self) -> dict[str, dict[str, tuple[int, int]]]:
        """The values of one letter that the question names, by column, with their places in the question."""
        return {name: places_of_letters(self.asked, name) for name in self.asked.table.names}

    @cached_property
    def left(self) -> list[QuestionWord]:
        """The words of the question that do not say what to compute."""
        rest = HOW.sub(lambda how: " " * len(how.group()), without_operations(self.asked.question))
        return [word for word in self.asked.words if rest[slice(*word.span)].strip()]

    @cached_property
    def rows(self) -> list[str]:
        """The columns whose names select no rows, because each row has a text, a day or a number of its own there."""
        table = self.asked.table
        filled = [name for name in table.names if None not in table.values[name] and not is_yes_no(table, name)]
        return [name for name in filled if table.columns[name].kind != "number" or identifies_rows(table, name)]


class _QueryWords:
    """Compares the words of a question with a query."""

    def __init__(self, words: UnusedWords, query: str) -> None:
        self._words, self._asked, self._query = words, words.asked, query
        self._left = words.left
        self._spans = [*self._named(), *self._values(query), *self._months()]
        for name in self._columns:
            self._spans += [place for value, place in words.letters[name].items() if f"'{value}'" in query]

    def unused(self) -> Iterator[str]:
        """Yields the words of the question that the query does not use."""
        if not re.search(r"[<>]|BETWEEN", _QUOTED.sub("", self._query)):
            yield from (self._asked.question[:end].split()[-1] for end in self._comparisons())
        yield from (vague for vague in vague_words(self._asked.question) if not self._is_measured(vague.casefold()))
        yield from comparatives(self._asked.question)
        yield from self._dated()
        for at, word in enumerate(self._left):
            if _SPACELESS.search(word.text):
                yield from self._signs(word)
            elif not (self._is_used(word) or self._selects_nothing(at, word)):
                yield word.text

    @cached_property
    def _columns(self) -> list[str]:
        """The columns of the query."""
        return [name for name in self._asked.table.names if quoted(name) in self._query]

    def _named(self) -> Iterator[tuple[int, int]]:
        for named in self._words.named:
            if named.condition in self._query:
                yield from named.spans

    def _values(self, sql: str) -> Iterator[tuple[int, int]]:
        """Yields the places in the question of the values in a part of the query."""
        for value in _QUOTED.findall(sql):
            if value and (place := place_of_value(self._asked, value.replace("''", "'"))):
                yield place

    def _months(self) -> Iterator[tuple[int, int]]:
        for i, month in enumerate(MONTHS, 1):
            if f"-{i:02}-" in self._query:
                yield from (m.span() for m in re.finditer(rf"\b{month}\b", self._asked.question, re.IGNORECASE))

    def _dated(self) -> Iterator[str]:
        """Yields names of columns with yes and no that the question dates, as in "paid in March": no day of the table
        says when that was.
        """
        for named in self._words.named:
            last = max(end for _, end in named.spans)
            after = (word for word in self._left if word.span[0] >= last and word.text not in HARMLESS)
            told = next(after, None)
            if told and (told.text in MONTHS or re.fullmatch(r"(?:19|20)\d\d", told.text)):
                yield named.column.casefold()

    def _comparisons(self) -> Iterator[int]:
        """Yields the ends of words that compare with nothing, unlike the word in "under the flag of Malta"."""
        for _, (_, end) in comparisons(self._asked.question):
            after = (word for word in self._asked.words if word.span[0] >= end and word.text not in HARMLESS)
            compared = next(after, None)
            if not compared or compared not in self._left or not self._is_used(compared):
                yield end

    def _is_used(self, word: QuestionWord) -> bool:
        """Returns True if a word names a value, a condition or a column of the query, or is one of its numbers."""
        if word.text.isdecimal() or _is_in(word, self._spans):
            return True
        return any(means_column(word.text, name) for name in self._columns)

    def _selects_nothing(self, at: int, word: QuestionWord) -> bool:
        if word.text in OR:
            return self._joins_values(at)
        if word.text in DISTINCT:
            return "DISTINCT" in self._query or "GROUP BY" in self._query
        if len(word.text) == 1:
            return is_harmless_letter(self._asked, self._asked.words.index(word))
        if word.text in HARMLESS or self._means_rows(word):
            return True
        if word.text in CURRENCIES:
            return at > 0 and self._left[at - 1].text[-1].isdigit()
        return word.text in LINKING and self._is_beside_used(at)

    def _joins_values(self, at: int) -> bool:
        """Returns True if the next words before and after "or" that say something are values of the same column."""
        for name, texts in _IN.findall(self._query):
            letters = self._words.letters[name.replace('""', '"')].items()
            places = [*self._values(texts), *(place for value, place in letters if f"'{value}'" in texts)]
            sides = (self._left[at + 1 :], reversed(self._left[:at]))
            beside = (self._next_telling(side, name) for side in sides)
            if all(word is not None and _is_in(word, places) for word in beside):
                return True
        return False

    def _next_telling(self, words: Iterable[QuestionWord], name: str) -> QuestionWord | None:
        """Returns the first word that is used by the query, or that says something but not the column's name."""
        for word in words:
            says = word.text not in HARMLESS | LINKING | OR and not means_column(word.text, name)
            if says or _is_in(word, self._spans):
                return word
        return None

    def _means_rows(self, word: QuestionWord) -> bool:
        table = self._asked.table
        return any(means_column(word.text, name) for name in [*self._words.rows, table.sheet, table.file])

    def _is_beside_used(self, at: int) -> bool:
        """Returns True if the next word before or after the word ``at`` that is not harmless is used by the query."""
        sides = (self._left[at + 1 :], reversed(self._left[:at]))
        beside = (next((w for w in side if not self._is_skipped(w)), None) for side in sides)
        return any(word is not None and self._is_used(word) for word in beside)

    def _is_skipped(self, word: QuestionWord) -> bool:
        return (word.text in HARMLESS or len(word.text) == 1) and not _is_in(word, self._spans)

    def _is_measured(self, vague: str) -> bool:
        """Returns True if the question says by which column rows are "top" or "best"."""
        order = self._query.partition(" ORDER BY ")[2]
        named = [name for name in self._columns if quoted(name) in order]
        measured = any(means_column(word.text, name) for name in named for word in self._left)
        return measured and (vague == "top" or "group" in self._asked.wanted.kinds)

    def _signs(self, word: QuestionWord) -> Iterator[str]:
        """Yields what is left of a run of signs without the used signs, the names of columns, and grammatical words."""
        start = word.span[0]
        names = chain.from_iterable(column_words(name) for name in [*self._columns, *self._words.rows])
        used = {i for a, b in self._spans for i in range(a, b)}
        text = "".join(" " if start + i in used else c for i, c in enumerate(self._rest(word)))
        for name in sorted(names, key=len, reverse=True):
            text = text.replace(name, " ").replace(name[:2], " ") if _SPACELESS.search(name) else text
        yield from SIGNS_BETWEEN.sub(" ", text).split()

    def _rest(self, word: QuestionWord) -> str:
        return without_operations(self._asked.question)[slice(*word.span)]


def _is_in(word: QuestionWord, places: Sequence[tuple[int, int]]) -> bool:
    return any(start <= word.span[0] < end for start, end in places)
