"""Defines the columns of a table: each column has a question for every document, and values of one kind."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localctx.errors import UsageError
from localctx.settings.kinds import one_of

KINDS = ("text", "number", "date", "money", "yes/no", "choice", "list")
"""The kinds of a column's values."""

_COLUMN = re.compile(r"(?P<name>[^:()?]+?)\s*(?:\((?P<kind>[^()]*)\))?\s*(?::\s*(?P<question>.+))?", re.DOTALL)
_EXAMPLE = 'for example "supplier", "signed (date)" or "rent (money): How much is the rent?"'
_QUESTIONS = {"date": "What is the date of {name}?", "list": "What are the {name}?", "yes/no": "Is there {name}?"}
_SCHEMA_KINDS = {"number": "number", "integer": "number", "boolean": "yes/no", "array": "list"}


@dataclass(frozen=True)
class TableColumn:
    """A column: its ``name``, the ``question`` put to every document, and the ``kind`` of its values.

    ``choices`` are the values that a column of the kind ``choice`` can have. Raises UsageError for a wrong kind.
    """

    name: str
    question: str = ""
    kind: str = "text"
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"{self.kind} is no kind of a column", f"use {one_of(KINDS)}")
        if (self.kind == "choice") != bool(self.choices):
            raise UsageError(f"the column {self.name} has no choices", "give them as (choice: paid, open)")
        if not self.question:
            object.__setattr__(self, "question", _question(self))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return asdict(self)


def parse_column(given: str) -> TableColumn:
    """Returns the column that ``NAME``, ``NAME (KIND)`` or ``NAME (KIND): QUESTION`` describes.

    A choice lists its values: ``NAME (choice: paid, open)``. A question alone also names the column. Raises UsageError
    for any other text.
    """
    given = given.strip()
    if re.search(r"[?？]$", given) and not re.match(r"[^:?？]+[:]", given):  # noqa: RUF001
        return TableColumn(given.rstrip("?？ "), given)  # noqa: RUF001
    found = _COLUMN.fullmatch(given)
    if not found:
        raise UsageError(f"{given!r} does not describe a column", _EXAMPLE)
    name, question = found["name"].strip(), (found["question"] or "").strip()
    kind, _, choices = (found["kind"] or ("date" if name.lower() == "date" else "text")).partition(":")
    return TableColumn(name, question, kind.strip(), _choices(choices))


def load_columns(file: Path) -> list[TableColumn]:
    """Returns the columns that a TOML file or a JSON schema describes.

    TOML has a table for each column, with ``question``, ``kind`` and ``choices``, all of them optional. Raises
    UsageError.
    """
    try:
        text = file.read_text(encoding="utf-8")
        described = json.loads(text) if file.suffix.lower() == ".json" else tomllib.loads(text)
        columns = list(_of_schema(described) if "properties" in described else _of_toml(described))
    except OSError as e:
        raise UsageError(f"{file} cannot be read ({e.strerror})", "name a .toml file or a JSON schema") from e
    except (ValueError, TypeError, AttributeError) as e:
        raise UsageError(f"{file} does not describe columns ({e})", "see `localctx table --help`") from e
    return columns


def check_columns(columns: Sequence[TableColumn]) -> Sequence[TableColumn]:
    """Returns ``columns`` unchanged. Raises UsageError if there is none, or if two have the same name."""
    if not columns:
        raise UsageError("the table has no column", f"add one, {_EXAMPLE}")
    names = [column.name.casefold() for column in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"two columns are named {twice}", "give each a name of its own")
    return columns


def _of_toml(described: Mapping[str, Any]) -> Iterator[TableColumn]:
    for name, column in described.items():
        unknown = column.keys() - {"question", "kind", "choices"}
        if unknown:
            raise ValueError(f"{name} has {', '.join(sorted(unknown))}")
        choices = tuple(map(str, column.get("choices", ())))
        yield TableColumn(
            name, column.get("question", ""), column.get("kind", "choice" if choices else "text"), choices
        )


def _of_schema(schema: Mapping[str, Any]) -> Iterator[TableColumn]:
    for name, value in schema["properties"].items():
        choices = tuple(map(str, value.get("enum", ())))
        dates = value.get("format") in ("date", "date-time")
        kind = "choice" if choices else "date" if dates else _SCHEMA_KINDS.get(value.get("type", ""), "text")
        description = value.get("description", "").strip()
        yield TableColumn(name, description if description.endswith("?") else "", kind, choices)


def _question(column: "TableColumn") -> str:
    name = re.sub(r"[_\s]+", " ", column.name).strip()
    if column.kind == "choice":
        return f"Is it {' or '.join(column.choices)}?"
    if column.kind == "date" and re.search(r"ed$", name):
        return f"On which date was it {name}?"
    if column.kind == "date" and re.search(r"\b(date|day|datum)\b", name, re.IGNORECASE):
        return f"What is the {name}?"
    return _QUESTIONS.get(column.kind, "What is the {name}?").format(name=name)


def _choices(text: str) -> tuple[str, ...]:
    return tuple(choice.strip() for choice in re.split(r"[,|]", text) if choice.strip())
