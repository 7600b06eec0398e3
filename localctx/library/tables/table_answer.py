"""Words the result of a query as an answer: a sentence, or a list of results. Says why a question is not computed."""

from collections.abc import Sequence
from typing import Any

from localctx.library.parsers.sheets.cells import plain_number
from localctx.library.tables.table import DataTable
from localctx.library.tables.table_database import ParsedQuery, QueryResult

MAX_SHOWN = 10  # rows of a result
_NAMES = {"SUM": "total", "AVG": "average"}


def tell_result(table: DataTable, query: ParsedQuery, result: QueryResult) -> str:
    """Returns the result of a query as an answer in English, with the number of rows that it is based on.

    The answer mentions the rows of ``table`` that were left out because they are totals. It lists at most MAX_SHOWN
    results.
    """
    counted = f"{len(result.rows):,} of {len(table.rows):,} rows"
    left_out = f"; row {', '.join(table.totals[:3])} is left out as a total" if table.totals else ""
    if not result.values or (not result.rows and not query.group):
        return f"No row of the table matches ({counted})."
    if query.aggregates and not query.group:
        lines = [
            _aggregate(match[1], match[2], value)
            for match, value in zip(query.aggregates, result.values[0], strict=True)
        ]
        return f"{'; '.join(lines)} ({counted}{left_out})."
    lines = [_line(result.labels, values) for values in result.values[:MAX_SHOWN]]
    more = len(result.values) - MAX_SHOWN
    if len(lines) == 1:
        return f"{lines[0]} ({counted}{left_out})." if query.group else f"{lines[0]}."
    told = [f"- {line}" for line in lines] + ([f"- and {more:,} more"] if more > 0 else [])
    return "\n".join([f"{len(result.values):,} results from {counted}{left_out}:", *told])


def tell_not_computed(table: DataTable, words: Sequence[str]) -> str:
    """Returns the reply that a question over ``table`` is not computed because of these ``words``, with the names of
    the columns.
    """
    said = ", ".join(f"“{word}”" for word in dict.fromkeys(words))
    more = len(table.names) - MAX_SHOWN
    names = ", ".join(table.names[:MAX_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return f"I did not compute this, because I could not relate {said} to the table. Its columns are: {names}."


def show_value(value: Any) -> str:
    """Returns a value of a result as text. A number has at most six decimals; None becomes ``none``."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return plain_number(round(value, 6) if abs(value) >= 1e-3 else value)
    return str(value)


def _aggregate(function: str, column: str, value: Any) -> str:
    if column == "*":
        return f"{show_value(value)} {'row matches' if value == 1 else 'rows match'}"
    name = column.removeprefix("DISTINCT ").strip('"').replace('""', '"')
    if function == "COUNT":
        return f"{show_value(value)} different values of {name}"
    return f"The {_NAMES[function]} of {name} is {show_value(value)}"


def _line(labels: Sequence[str], values: Sequence[Any]) -> str:
    """Returns one result as a line: the first value, then the other values with their names."""
    first, others = show_value(values[0]), list(zip(labels[1:], values[1:], strict=True))
    if not others:
        return f"{_label(labels[0])}: {first}"
    return f"{first} ({', '.join(f'{_label(label)}: {show_value(value)}' for label, value in others)})"


def _label(label: str) -> str:
    if label == "COUNT(*)":
        return "rows"
    for function, name in _NAMES.items():
        if label.startswith(f"{function}("):
            return f"{name} of {label[len(function) + 1 : -1]}"
    return label
