"""Makes the SQL query for a question about the cells of one row: "What is the amount of invoice A-7?"."""

import re
from collections.abc import Sequence

from localctx.library.tables.table import DataTable
from localctx.library.tables.table_queries import NAME
from localctx.library.tables.table_question import column_words, is_one_of, quoted

_QUESTION = re.compile(
    r"\s*what(?: is|'s|’s| are| was| were) the (?P<columns>.{1,80}?) (?:of|for) (?P<row>.{1,80}?)[\s?]*",  # noqa: RUF001
    re.IGNORECASE,
)
_AND = re.compile(r",? and (?:the )?|, (?:the )?", re.IGNORECASE)


def may_look_up(question: str) -> bool:
    """Returns True if ``question`` has the form of a question about the cells of one row."""
    return bool(_QUESTION.fullmatch(question))


def lookup_query(tables: Sequence[DataTable], question: str) -> tuple[DataTable, str] | None:
    """Returns the table, and the query for the cells that ``question`` asks for. Returns None unless it names columns
    by their whole names, and the only row in all tables that has a certain value.

    Any other word, as in "the overdue amount of A-7" or "of A-7 in May", may be a condition. Then the result is None.
    """
    asked = _QUESTION.fullmatch(question)
    if not asked:
        return None
    found = [(table, where) for table in tables for where in _conditions(table, asked["row"])]
    if len(found) != 1:
        return None
    table, where = found[0]
    names = [_column(table, name) for name in _AND.split(asked["columns"])]
    if not all(names) or len({name.lower() for name in table.names}) < len(table.names):
        return None
    return table, f"SELECT {', '.join(map(quoted, names))} FROM {NAME} WHERE {where}"


def _conditions(table: DataTable, words: str) -> list[str]:
    """Returns a condition for each cell of the table that ``words`` name: its whole text, perhaps after "the" and the
    name of its column or of the sheet.
    """
    said = _normal(words)
    found = list[str]()
    for name in table.names:
        labels = {
            " ".join(column_words(label)) for label in (name, table.sheet, table.sheet.removesuffix("s")) if label
        }
        wanted = {said, said.removeprefix("the ")}
        wanted |= {rest.removeprefix(f"{label} ") for rest in wanted for label in labels}
        for row, value in zip(table.rows, table.values[name], strict=True):
            if value is not None and _normal(row.texts.get(name, "")) in wanted:
                found.append(is_one_of(name, [value]))
    return found


def _column(table: DataTable, words: str) -> str:
    """Returns the column with this name, in the singular or the plural; "" if there is none, or several."""
    said = column_words(words)
    found = [n for n in table.names if said in (own := column_words(n), [*own[:-1], f"{own[-1]}s"] if own else own)]
    return found[0] if len(found) == 1 else ""


def _normal(text: str) -> str:
    return " ".join(text.split()).casefold()
