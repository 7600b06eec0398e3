"""Makes the SQL queries that may answer a question about a table, from the columns of the table and the values that the
question names.

The words of the question decide what is computed and which rows count. Where several columns fit, there are several
queries, and a model chooses one.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, product

from localctx.library.tables.harmless_words import is_harmless
from localctx.library.tables.question_words import extremes, next_words_after_extremes
from localctx.library.tables.table import DataTable
from localctx.library.tables.table_conditions import conditions, named_values, numbers_in
from localctx.library.tables.table_dates import with_iso_days
from localctx.library.tables.table_question import (
    TableQuestion,
    best_named,
    column_words,
    counts_rows,
    identifies_rows,
    means_column,
    mentions,
    mentions_all,
    quoted,
    repeats,
    tells_rows_apart,
)
from localctx.library.tables.unused_words import UnusedWords, names_rows

NAME = "t"
"""The name of the table in queries."""

MAX_QUERIES = 2000
_MAX_BEST = 100  # rows asked for, as in "the top 5"
_WHOLE = {"count", "sum", "mean", "max", "min", "vague"}
_MAX_LISTED = 6  # columns shown of the rows that a condition selects


def queries(table: DataTable, question: str) -> list[str]:
    """Returns the SQL queries that may answer ``question`` over the table, at most MAX_QUERIES.

    Returns [] if the question asks for no computation or for both the highest and the lowest, or if names of columns
    differ only in capitals (SQL ignores them). Queries that do not use every number and every word of the question are
    left out.
    """
    asked = TableQuestion(with_iso_days(question), table)
    unused = UnusedWords(asked)
    return [query for query in _candidates(asked) if not unused.of(query)]


def why_not_computed(table: DataTable, question: str) -> list[str]:
    """Returns the words for which no query answers ``question``: those that the best query does not use, else those
    that ask for the highest or lowest of something that the question does not name.

    Returns [] if the question does not ask for a count, a sum, an average, or the highest or lowest over the rows of
    the table: if it names none of its columns, or the value of a single row.
    """
    asked = TableQuestion(with_iso_days(question), table)
    if not asked.wanted.kinds & _WHOLE or not names_rows(asked) or _names_one_row(asked):
        return []
    return min(map(UnusedWords(asked).of, _candidates(asked)), key=len, default=extremes(question))


def _candidates(asked: TableQuestion) -> list[str]:
    """Returns the queries for the question that use every number of it."""
    if not asked.wanted.computes or {"max", "min"} <= asked.wanted.kinds:
        return []
    if len({name.lower() for name in asked.table.names}) < len(asked.table.names):
        return []
    forms = ((where, *form) for where in conditions(asked) for form in _forms(asked, where))
    found = (f"{select} FROM {NAME}{where}{rest}" for where, select, rest in forms)
    numbers = [re.compile(rf"(?<![\d.]){re.escape(number)}(?!\d)") for number in numbers_in(asked.question)]
    using = (query for query in found if all(number.search(query) for number in numbers))
    return list(dict.fromkeys(islice(using, MAX_QUERIES)))


def _names_one_row(asked: TableQuestion) -> bool:
    """Returns True if the question names a value that only one row has, so that it may ask what that row says."""
    quoting = [name for name in asked.table.names if not repeats(asked.table, name)]
    return any(quoted(name) in condition for found in named_values(asked) for condition in found for name in quoting)


def likeliest_table(tables: Sequence[DataTable], question: str) -> DataTable:
    """Returns the table that the question is most likely about: the one of which it names the most columns and values.

    On a tie, returns the table with the most rows.
    """

    def rank(table: DataTable) -> tuple[int, int]:
        asked = TableQuestion(with_iso_days(question), table)
        named = sum(mentions(question, name) for name in (*table.names, table.sheet)) + len(list(named_values(asked)))
        return named, len(table.rows)

    return tables[0] if len(tables) == 1 else max(tables, key=rank)


def _forms(asked: TableQuestion, where: str) -> Iterator[tuple[str, str]]:
    """Yields (SELECT clause, GROUP BY and ORDER BY clauses) for each thing that the question may ask for."""
    kinds, ends = asked.wanted.kinds, asked.wanted.kinds & {"max", "min"}
    values = list(_aggregates(asked, where))
    by_group = "group" in kinds and any(
        mentions(asked.question, name) for name in asked.groups if quoted(name) not in where
    )
    if by_group or (ends and _asks_for_group(asked)):
        yield from _grouped(asked, where, values, ends)
    if ends and not kinds & {"sum", "mean"} and not (_asks_for_group(asked) and not _counted(asked)):
        yield from _extremes(asked, where, "DESC" if "max" in ends else "ASC")
    elif not by_group and not ends:
        yield from ((f"SELECT {value}", "") for value in values)
    if not values and not ends and where:
        named = [name for name in asked.table.names if mentions(asked.question, name)]
        shown = list(dict.fromkeys([*named, *asked.columns("text")[:1], *asked.table.names]))[:_MAX_LISTED]
        yield f"SELECT {', '.join(map(quoted, shown))}", ""


def _aggregates(asked: TableQuestion, where: str) -> Iterator[str]:
    """Yields the sums, averages and counts that the question may ask for, as SQL."""
    kinds = asked.wanted.kinds
    for kind, function in (("sum", "SUM"), ("mean", "AVG")):
        if kind in kinds:
            yield from (f"{function}({quoted(name)})" for name in asked.measures_beside(where))
    if "count" in kinds and not kinds & {"sum", "mean"}:
        measures = [n for n in asked.columns("number") if _is_counted(asked, n) and not counts_rows(asked.table, n)]
        measures = [n for n in measures if quoted(n) not in where]
        yield from (f"SUM({quoted(name)})" for name in measures)
        different = [n for n in asked.columns("text") if _is_counted(asked, n) and repeats(asked.table, n)]
        different = [n for n in different if quoted(n) not in where]
        yield from (f"COUNT(DISTINCT {quoted(name)})" for name in different)
        if not measures and not different:
            yield "COUNT(*)"


def _asks_for_group(asked: TableQuestion) -> bool:
    """Returns True if the question may ask for the group with the highest or lowest value.

    Such a question names a text or day column with repeated values, and asks for a sum, a mean, a count or "most".
    """
    whole = asked.wanted.kinds & {"sum", "mean", "count", "most"}
    return bool(whole) and any(mentions(asked.question, name) for name in asked.groups)


def _grouped(
    asked: TableQuestion, where: str, values: Sequence[str], ends: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Yields the clauses that compute ``values`` by group.

    If ``ends`` names ``max`` or ``min``, only the group with the highest or lowest value is selected.
    """
    summed = _counted(asked) or ([] if asked.wanted.counted else asked.measures_beside(where))
    whole = values or [f"SUM({quoted(name)})" for name in summed] or ["COUNT(*)"]
    groups = [name for name in asked.groups if quoted(name) not in where] or asked.groups
    for group, value in product(groups, whole):
        order = f" ORDER BY {value} {'DESC' if 'max' in ends else 'ASC'} LIMIT {_how_many(asked)}" if ends else ""
        yield f"SELECT {quoted(group)}, {value}", f" GROUP BY {quoted(group)}{order}"


def _counted(asked: TableQuestion) -> list[str]:
    """Returns the number columns that the question counts: ``units`` for "the most units"."""
    return [name for name in asked.measures if _is_counted(asked, name)]


def _is_counted(asked: TableQuestion, name: str) -> bool:
    """Returns True if the question counts ``name``: its words are after "how many", and no other noun is first.

    "How many invoices" counts the rows where the column ``Invoice`` has a number of its own for each row. "How many
    units" counts the column ``Units`` even there, as it is named in the same form.
    """
    if identifies_rows(asked.table, name) and not set(column_words(name)) <= {word.text for word in asked.words}:
        return False
    first = next((word for word in asked.wanted.counted.casefold().split() if not is_harmless(word)), "")
    return means_column(first, name) and mentions_all(asked.wanted.counted, name)


def _extremes(asked: TableQuestion, where: str, order: str) -> Iterator[tuple[str, str]]:
    """Yields the clauses that select the rows with the highest or lowest values or days.

    One row is selected, or as many rows as the question says, as in "the top 5".
    """
    named = [n for n in asked.table.names if mentions(asked.question, n) and tells_rows_apart(asked.table, n)]
    labels = named or asked.columns("text")[:1]
    by = [*asked.measures_beside(where), *asked.columns("day")]
    if "latest" in map(str.casefold, extremes(asked.question)):  # the latest row has not the highest number
        by = [name for name in by if not identifies_rows(asked.table, name)]
    free = [n for n in by if quoted(n) not in where or asked.table.columns[n].kind == "day"]
    measured = best_named(asked.question, free)
    if _ranks_groups(asked) or (not measured and any(mentions(asked.question, name) for name in _repeated(asked))):
        return
    for column in measured or by:
        shown = dict.fromkeys([*labels, column] if named else [column, *labels])
        yield f"SELECT {', '.join(map(quoted, shown))}", f" ORDER BY {quoted(column)} {order} LIMIT {_how_many(asked)}"


def _ranks_groups(asked: TableQuestion) -> bool:
    """Returns True if "the top", "the largest" and the like are said of a column with repeated values, as in "the top 5
    customers". Then no single row is meant.
    """
    said = next_words_after_extremes(asked.question)
    return any(means_column(word, name) for word in said for name in _repeated(asked))


def _repeated(asked: TableQuestion) -> list[str]:
    """Returns the text columns with repeated values."""
    return [n for n in asked.table.names if asked.table.columns[n].kind == "text" and repeats(asked.table, n)]


def _how_many(asked: TableQuestion) -> str:
    """Returns how many rows or groups the question asks for, as "5" in "the top 5"."""
    compares = asked.wanted.kinds & {"over", "under", "over or equal", "under or equal", "between"}
    numbers = [] if compares else [n for n in numbers_in(asked.question) if n.isdigit() and 1 < int(n) <= _MAX_BEST]
    return next(iter(numbers), "1")
