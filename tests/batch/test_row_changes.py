"""The changes between two versions of a table, in words and in JSON."""

import json

import pytest

from localctx.batch.table.cells import AnswerCell, AnswerRow
from localctx.batch.table.row_changes import row_changes


def rent(value: float, page: str | None = "2") -> AnswerCell:
    return AnswerCell("rent", "found", f"{value:.2f} EUR", value, "EUR", page=page)


def row(name: str, *cells: AnswerCell, document: str = "", why: str = "") -> AnswerRow:
    return AnswerRow(f"/f/{name}", name, "" if why else document or name, cells, why)


def lines(before: list[AnswerRow], after: list[AnswerRow]) -> list[str]:
    return [change.line("/f") for change in row_changes({r.path: r for r in before}, after)]


def test_a_changed_cell_names_both_values_and_the_place_of_the_new_one():
    assert lines([row("c-7.docx", rent(1200))], [row("c-7.docx", rent(1300.5))]) == [
        "c-7.docx: rent 1,200 EUR -> 1,300.50 EUR (page 2)"
    ]


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (AnswerCell("rent", "missing"), "nothing"),
        (AnswerCell("rent", "unsure", printed="a lot"), "nothing (unsure: a lot)"),
        (AnswerCell("rent", "corrected", "5", "5"), "5 (corrected)"),
        (AnswerCell("rent", "found", "yes", True), "yes"),
        (AnswerCell("rent", "found", "1200.5", 1200.5, page="slide 3"), "1,200.5 (slide 3)"),
    ],
)
def test_each_state_of_a_cell_is_said(cell, told):
    assert lines([row("a", rent(1))], [row("a", cell)]) == [f"a: rent 1 EUR -> {told}"]


def test_another_place_of_the_same_value_is_no_change():
    assert lines([row("a", rent(1, "2"))], [row("a", rent(1, "3"))]) == []


def test_rows_come_and_go():
    silent = AnswerCell("rent", "missing")
    assert lines([row("a", rent(1))], [row("b", rent(2)), row("x/c", silent), row("d", why="d is broken")]) == [
        "b: added, rent 2 EUR",
        "x/c: added, nothing found",
        "d: cannot be read: d is broken",
        "a: removed",
    ]


def test_a_row_of_the_same_text_was_renamed_once():
    one, two = row("new", rent(1), document="1"), row("copy", rent(1), document="1")
    assert lines([row("old", rent(1), document="1")], [one, two]) == [
        "new: renamed from old",
        "copy: added, rent 1 EUR",
    ]
    assert lines([row("old", why="?")], [row("new", why="?")]) == ["new: cannot be read: ?", "old: removed"]


def test_a_document_that_cannot_be_read_any_more_says_so_once():
    broken = row("a", why="a is broken")
    assert lines([row("a", rent(1))], [broken]) == ["a: cannot be read: a is broken"]
    assert lines([broken], [broken]) == []
    assert lines([broken], [row("a", rent(1))]) == ["a: rent nothing -> 1 EUR (page 2)"]


def test_a_change_and_a_row_are_json():
    (change,) = row_changes({"/f/a": row("a", rent(1))}, [row("a", rent(2))])
    said = json.loads(json.dumps(change.to_json()))
    assert (said["news"], said["before"]["value"], said["cells"][0]["value"]) == ("changed", 1, 2)
    made = row("a", rent(2))
    assert AnswerRow.from_json(json.loads(json.dumps(made.to_json()))) == made
