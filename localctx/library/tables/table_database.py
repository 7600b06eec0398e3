"""Holds a table in SQLite, in memory, and runs a query over it with a limit on the work."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from localctx.library.tables.table import DataTable, TableRow
from localctx.library.tables.table_queries import NAME
from localctx.library.tables.table_question import literal, quoted

MAX_RESULTS = 1000  # rows
_STEPS = 100_000  # instructions of SQLite's virtual machine between two checks
_MAX_CHECKS = 5_000  # checks, which take about five seconds
_TYPES = {"number": "REAL", "day": "TEXT", "text": "TEXT"}
_TOKEN = re.compile(r"""("(?:[^"]|"")*"|'(?:[^']|'')*')|\b(FROM|WHERE|GROUP BY|ORDER BY|LIMIT)\b""")
_WHOLE = re.compile(r"(SUM|AVG|COUNT)\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class QueryResult:
    """The result of a query: the ``labels`` of its columns, its rows of ``values``, and the ``rows`` of the table on
    which the result is based.
    """

    labels: Sequence[str]
    values: Sequence[Sequence[Any]]
    rows: Sequence[TableRow]


@dataclass(frozen=True)
class ParsedQuery:
    """The parts of a query that ``table_queries`` made: the selected expressions, and the text of each clause.

    A clause that the query does not have is ""; a missing limit is 0.
    """

    select: Sequence[str]
    where: str
    group: str
    order: str
    limit: int

    @property
    def by(self) -> str:
        """The expression by which the rows are ordered."""
        return self.order.removesuffix(" DESC").removesuffix(" ASC")

    @property
    def aggregates(self) -> list[re.Match[str]]:
        """The sums, averages and counts among the selected expressions, as regex matches with the groups function and
        column.
        """
        return [match for part in self.select if (match := _WHOLE.fullmatch(part))]


def parse_query(query: str) -> ParsedQuery:
    """Parse a query that ``table_queries`` made, and return its parts."""
    clauses, name, start = dict[str, str](), "SELECT", len("SELECT ")
    for token in _TOKEN.finditer(query):
        if token[2]:
            clauses[name] = query[start : token.start()].strip()
            name, start = token[2], token.end()
    clauses[name] = query[start:].strip()
    select = re.findall(r"""(?:"(?:[^"]|"")*"|[^,"])+""", clauses["SELECT"])
    return ParsedQuery(
        [part.strip() for part in select],
        clauses.get("WHERE", ""),
        clauses.get("GROUP BY", ""),
        clauses.get("ORDER BY", ""),
        int(clauses.get("LIMIT", "0")),
    )


def run_query(table: DataTable, query: str) -> QueryResult:
    """Run a query that ``table_queries`` made over ``table``, and return its result.

    Rows that tie with the last row of the result are included. Raises TimeoutError if the query takes too much work.
    """
    parsed = parse_query(query)
    numbers = _row_numbers(table)
    with opened(table) as db:
        try:
            values = db.execute(_with_ties(db, query, parsed)).fetchmany(MAX_RESULTS)
            rows = db.execute(_rows_of(parsed, values, numbers)).fetchall()
        except sqlite3.OperationalError as e:
            raise TimeoutError from e
    return QueryResult([_label(part) for part in parsed.select], values, [table.rows[number - 1] for (number,) in rows])


@contextmanager
def opened(table: DataTable) -> Iterator[sqlite3.Connection]:
    """Yields a connection to a read-only SQLite database in memory that has the table.

    A query that takes too much work fails with sqlite3.OperationalError.
    """
    db = sqlite3.connect(":memory:")
    try:
        columns = ", ".join(f"{quoted(name)} {_TYPES[table.columns[name].kind]}" for name in table.names)
        db.execute(f"CREATE TABLE {NAME} ({columns})")
        marks = ", ".join("?" * len(table.names))
        db.executemany(f"INSERT INTO {NAME} VALUES ({marks})", zip(*table.values.values(), strict=True))
        db.execute("PRAGMA query_only = 1")
        checks = iter(range(_MAX_CHECKS))
        db.set_progress_handler(lambda: next(checks, None) is None, _STEPS)
        yield db
    finally:
        db.close()


def _with_ties(db: sqlite3.Connection, query: str, parsed: ParsedQuery) -> str:
    """Returns the query. Its limit is raised if rows after the last row of the result have the same value by which the
    rows are ordered.
    """
    if not parsed.limit:
        return query
    clauses = _clause("WHERE", parsed.where) + _clause("GROUP BY", parsed.group)
    filled = (
        f"{clauses} HAVING {parsed.by} IS NOT NULL"
        if parsed.group
        else _clause("WHERE", _all(parsed.where, f"{parsed.by} IS NOT NULL"))
    )
    ordered = f"SELECT {parsed.by} FROM {NAME}{filled} ORDER BY {parsed.order}"
    values = [value for (value,) in islice(db.execute(ordered), MAX_RESULTS)]
    same = len([v for v in values[parsed.limit :] if v == values[parsed.limit - 1]])
    selected = f"SELECT {', '.join(parsed.select)} FROM {NAME}{filled} ORDER BY {parsed.order}"
    return f"{selected} LIMIT {parsed.limit + same}"


def _rows_of(parsed: ParsedQuery, values: Sequence[Sequence[Any]], numbers: str) -> str:
    """Returns a query that selects the numbers of the rows on which a result is based.

    Rows without a value in a column that is used in the computation are left out.
    """
    if parsed.limit and not parsed.group:
        where = _clause("WHERE", _all(parsed.where, f"{parsed.by} IS NOT NULL"))
        return f"SELECT {numbers} FROM {NAME}{where} ORDER BY {parsed.order} LIMIT {len(values)}"
    groups = _in_groups(parsed.group, [value[0] for value in values]) if parsed.group and parsed.limit else ""
    columns = (match[2].removeprefix("DISTINCT ") for match in parsed.aggregates if match[2] != "*")
    where = _clause("WHERE", _all(parsed.where, groups, *(f"{column} IS NOT NULL" for column in columns)))
    return f"SELECT {numbers} FROM {NAME}{where} ORDER BY {numbers}"


def _in_groups(group: str, values: Sequence[Any]) -> str:
    """Returns the condition that a row is in one of the groups; "" if there are none."""
    given = ", ".join(literal(value) for value in values if value is not None)
    conditions = [f"{group} IN ({given})"] * bool(given) + [f"{group} IS NULL"] * (None in values)
    return f"({' OR '.join(conditions)})" if conditions else ""


def _row_numbers(table: DataTable) -> str:
    """Returns one of SQLite's names for the row number (such as ``rowid``) that is not the name of a column of the
    table.
    """
    taken = {name.lower() for name in table.names}
    return next(name for name in ("rowid", "oid", "_rowid_") if name not in taken)


def _all(*conditions: str) -> str:
    return " AND ".join(filter(None, conditions))


def _clause(name: str, text: str) -> str:
    return f" {name} {text}" if text else ""


def _label(part: str) -> str:
    """Returns a selected expression as it is shown: a column's name, or ``SUM(name)``."""
    return re.sub(r'"((?:[^"]|"")*)"', lambda match: match[1].replace('""', '"'), part)
