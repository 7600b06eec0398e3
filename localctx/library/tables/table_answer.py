"""Words the result of a query as an answer: a sentence, or a list of results. Says why a question is not computed."""

import re
from collections.abc import Sequence
from typing import Any

from localctx.document_parts import count_parts
from localctx.library.parsers.sheets.cells import plain_number
from localctx.library.tables.table import DataTable
from localctx.library.tables.table_database import ParsedQuery, QueryResult
from localctx.library.tables.table_question import holds_years, identifies_rows

MAX_SHOWN = 10  # rows of a result
_SAMPLE = 1000  # rows whose texts are looked at for their decimals
_DECIMALS = re.compile(r"\d[.,](\d+)\D*$")
_NAMES = {"SUM": "total", "AVG": "average"}


def tell_result(table: DataTable, query: ParsedQuery, result: QueryResult, question: str = "") -> str:
    """Returns the result of a query as an answer in English, with the number of rows that it is based on.

    The answer mentions the rows of ``table`` that were left out because they are totals. It lists at most MAX_SHOWN
    results. Names of columns are written as in the ``question``: "Net amount" becomes "net amount" if it says so.
    """
    if not result.values or (not result.rows and not query.group):
        return f"No row of the table matches ({_of_all(table, result)})."
    left_out = f"row {', '.join(table.totals[:3])} is left out as a total" if table.totals else ""
    tell = _Result(table, question)
    counted = "; ".join(filter(None, (_counted(table, result), left_out)))
    if query.aggregates and not query.group:
        ((aggregate, value),) = zip(query.aggregates, result.values[0], strict=True)
        if aggregate[2] == "*":
            matched = _of_all(table, result) if query.where else count_parts("row", len(table.rows))
            return f"{matched}{f' ({left_out})' * bool(left_out)}."
        return f"{tell.aggregate(aggregate, value)} ({counted})."
    lines = [tell.line(result.labels, values) for values in result.values[:MAX_SHOWN]]
    more = len(result.values) - MAX_SHOWN
    if len(lines) == 1 and query.where and not (query.group or query.order):
        return f"{tell.cells(result.labels, result.values[0])}."
    if len(lines) == 1:
        return f"{lines[0]} ({counted})." if query.group else f"{lines[0]}."
    told = [f"- {line}" for line in lines] + ([f"- and {more:,} more"] if more > 0 else [])
    found = counted if len(result.values) == len(result.rows) else f"{len(result.values):,} results from {counted}"
    return "\n".join([f"{found[:1].upper()}{found[1:]}:", *told])


def _counted(table: DataTable, result: QueryResult) -> str:
    """Returns the number of rows of a result: ``37 of 200 rows`` or ``all 200 rows``."""
    is_whole = len(result.rows) == len(table.rows) > 1
    return f"all {count_parts('row', len(table.rows))}" if is_whole else _of_all(table, result)


def _of_all(table: DataTable, result: QueryResult) -> str:
    return f"{len(result.rows):,} of {count_parts('row', len(table.rows))}"


def tell_not_computed(table: DataTable, words: Sequence[str]) -> str:
    """Returns the reply that a question over ``table`` is not computed because of these ``words``, with the names of
    the columns.
    """
    said = ", ".join(f"“{word}”" for word in dict.fromkeys(words))
    more = len(table.names) - MAX_SHOWN
    names = ", ".join(table.names[:MAX_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return f"I did not compute this, because I could not relate {said} to the table. Its columns are: {names}."


def show_value(value: Any, decimals: int | None = None, grouped: bool = True) -> str:
    """Returns a value of a result as text. A number has at most six decimals, or exactly ``decimals``, and if
    ``grouped``, commas between thousands; None becomes ``none``.
    """
    if value is None:
        return "none"
    if not isinstance(value, float | int):
        return str(value)
    if decimals is not None:
        return f"{value:{',' * grouped}.{decimals}f}"
    text = plain_number(round(value, 6) if abs(value) >= 1e-3 else value)
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}" if grouped and re.fullmatch(r"-?[1-9]\d*", whole) else text


class _Result:
    """Words the values of a result over ``table``, with the names of columns as ``question`` writes them."""

    def __init__(self, table: DataTable, question: str) -> None:
        self._table, self._question = table, question

    def aggregate(self, match: re.Match[str], value: Any) -> str:
        """Returns a sum, an average or a number of values as text. ``match`` has its function and column."""
        name = match[2].removeprefix("DISTINCT ").strip('"').replace('""', '"')
        if match[1] == "COUNT":
            return f"{show_value(value)} different values of {self._name(name)}"
        return f"{_NAMES[match[1]].capitalize()} {self._name(name)}: {self._value(f'{match[1]}({name})', value)}"

    def line(self, labels: Sequence[str], values: Sequence[Any]) -> str:
        """Returns one result as a line: the first value, then the other values with their names."""
        shown = [self._value(label, value) for label, value in zip(labels, values, strict=True)]
        others = [f"{self._label(label)}: {value}" for label, value in zip(labels[1:], shown[1:], strict=True)]
        return f"{shown[0]} ({', '.join(others)})" if others else f"{self._label(labels[0])}: {shown[0]}"

    def cells(self, labels: Sequence[str], values: Sequence[Any]) -> str:
        """Returns the values of one row as a line, each with its name."""
        return "; ".join(f"{label}: {self._value(label, value)}" for label, value in zip(labels, values, strict=True))

    def _value(self, label: str, value: Any) -> str:
        if label not in self._table.columns:
            summed = label.removeprefix("SUM(").removesuffix(")") if label.startswith("SUM(") else ""
            return show_value(value, _decimals(self._table, summed, most=True))
        numbers_rows = self._table.columns[label].kind == "number" and (
            identifies_rows(self._table, label) or holds_years(self._table, label)
        )
        return show_value(value, _decimals(self._table, label), not numbers_rows)

    def _label(self, label: str) -> str:
        if label == "COUNT(*)":
            return "rows"
        for function, name in _NAMES.items():
            if label.startswith(f"{function}("):
                return f"{name} {self._name(label[len(function) + 1 : -1])}"
        return label

    def _name(self, name: str) -> str:
        return name.lower() if name.lower() in self._question else name


def _decimals(table: DataTable, name: str, most: bool = False) -> int | None:
    """Returns 2 if all numbers of a column are written with two decimals, as amounts of money are, else None.

    If ``most``, it is enough that one is, and that none has more.
    """
    if name not in table.columns or table.columns[name].kind != "number":
        return None
    texts = [row.texts.get(name, "") for row in table.rows[:_SAMPLE]]
    counts = {len(match[1]) if (match := _DECIMALS.search(text)) else 0 for text in texts if text}
    return 2 if counts and max(counts) == 2 and (most or min(counts) == 2) else None
