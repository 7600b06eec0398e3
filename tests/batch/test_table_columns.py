"""The columns of a table: what their short form, a TOML file and a JSON schema describe."""

import json

import pytest

from localctx.batch.table.columns import TableColumn, check_columns, load_columns, parse_column
from localctx.errors import UsageError


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ("supplier", TableColumn("supplier", "What is the supplier?")),
        ("date", TableColumn("date", "What is the date?", "date")),
        ("signed (date)", TableColumn("signed", "On which date was it signed?", "date")),
        ("start (date)", TableColumn("start", "What is the date of start?", "date")),
        ("rent (money): How much is the rent?", TableColumn("rent", "How much is the rent?", "money")),
        ("date:Which date is it?", TableColumn("date", "Which date is it?", "date")),
        ("When does it end?", TableColumn("When does it end", "When does it end?")),
        ("Wem gehört es: dem Mieter?", TableColumn("Wem gehört es", "dem Mieter?")),
        ("state (choice: paid, open)", TableColumn("state", "Is it paid or open?", "choice", ("paid", "open"))),
        ("invoice_number", TableColumn("invoice_number", "What is the invoice number?")),
    ],
)
def test_a_column_is_said_in_short(given, column):
    assert parse_column(given) == column


@pytest.mark.parametrize("given", ["", "(money)", "rent (coins)", "a (choice)", "rent (money", "rent (money: a)"])
def test_what_describes_no_column_is_refused(given):
    with pytest.raises(UsageError):
        parse_column(given)


def test_a_file_describes_columns(tmp_path):
    toml = tmp_path / "fields.toml"
    toml.write_text('[supplier]\n[rent]\nkind = "money"\nquestion = "How much?"\n[state]\nchoices = ["paid", "open"]\n')
    assert [(c.name, c.kind, c.question) for c in load_columns(toml)] == [
        ("supplier", "text", "What is the supplier?"),
        ("rent", "money", "How much?"),
        ("state", "choice", "Is it paid or open?"),
    ]
    schema = tmp_path / "fields.json"
    properties = {
        "supplier": {"type": "string", "description": "Who delivers?"},
        "signed": {"type": "string", "format": "date"},
        "total": {"type": "number", "description": "The sum of all."},
        "paid": {"type": "boolean"},
        "state": {"enum": ["a", "b"]},
        "items": {"type": "array"},
    }
    schema.write_text(json.dumps({"type": "object", "properties": properties}))
    columns = load_columns(schema)
    assert [c.kind for c in columns] == ["text", "date", "number", "yes/no", "choice", "list"]
    assert columns[0].question == "Who delivers?"
    assert columns[2].question == "What is the total?"


@pytest.mark.parametrize("text", ["supplier = 1\n", "[a]\ncolour = 1\n", "[a\n", '[a]\nkind = "coins"\n'])
def test_a_file_of_something_else_is_refused_with_its_name(tmp_path, text):
    file = tmp_path / "fields.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"fields\.toml|coins"):
        load_columns(file)
    with pytest.raises(UsageError, match="cannot be read"):
        load_columns(tmp_path / "none.toml")


def test_a_table_has_columns_of_different_names():
    with pytest.raises(UsageError, match="no column"):
        check_columns([])
    with pytest.raises(UsageError, match="two columns"):
        check_columns([TableColumn("Rent"), TableColumn("rent")])
