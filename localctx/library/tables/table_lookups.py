"""Makes the SQL query for a question that asks what one row of a table says: "What is the amount of invoice 120?"."""

import re
from collections.abc import Iterator

from localctx.library.tables.table import DataTable
from localctx.library.tables.table_conditions import conditions
from localctx.library.tables.table_database import run_query
from localctx.library.tables.table_dates import with_iso_days
from localctx.library.tables.table_queries import NAME
from localctx.library.tables.table_question import TableQuestion, best_named, quoted
from localctx.library.tables.unused_words import UnusedWords

MAX_WORDS = 20  # of a question about one row
_ASKS = re.compile(
    r"\W*(?:what|which|who|whose|when|where|how (?:much|many|long|high|old|big|large|far))\b", re.IGNORECASE
)


def may_look_up(question: str) -> bool:
    """Returns True if ``question`` may ask what one row of a table says."""
    return bool(_ASKS.match(question)) and len(question.split()) <= MAX_WORDS


def lookup_query(table: DataTable, question: str) -> str | None:
    """Returns the query for the cells that ``question`` asks for. Returns None unless the question names a column and
    the values of exactly one row, and has no other words that may be conditions.
    """
    if not may_look_up(question) or len({name.lower() for name in table.names}) < len(table.names):
        return None
    asked = TableQuestion(with_iso_days(question), table)
    unused = UnusedWords(asked)
    found = [query for query in dict.fromkeys(_cells(asked)) if not unused.of(query)]
    single = [query for query in found if len(run_query(table, query).rows) == 1]
    return single[0] if len(single) == 1 else None


def _cells(asked: TableQuestion) -> Iterator[str]:
    """Yields the queries that select the named columns of the rows that the question names by other columns."""
    for where in filter(None, conditions(asked)):
        if names := best_named(asked.question, [n for n in asked.table.names if quoted(n) not in where]):
            yield f"SELECT {', '.join(map(quoted, names))} FROM {NAME}{where}"
