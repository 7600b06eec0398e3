"""The table that the window keeps current, in the store: its documents, and what is new in it."""

from dataclasses import replace

import pytest
from stored_documents import add, row

from localctx.batch.table.cells import AnswerCell, AnswerRow
from localctx.batch.table.columns import parse_column
from localctx.batch.table.kept_table import NAME, KeptTable, forget, news_line, news_of, note_seen, note_told
from localctx.batch.table.row_changes import RowChange

TABLE = KeptTable((parse_column("rent (money)"), parse_column("state (choice: paid, open)")))


def rent(name: str, value: float, document: str = "") -> AnswerRow:
    cell = AnswerCell("rent", "found", f"{value:.2f} EUR", value, "EUR", page="2")
    return AnswerRow(f"/f/{name}", name, document or name, (cell,))


def news(store, *rows: AnswerRow, pending: tuple[str, ...] = ()) -> list[str]:
    """What is new, as lines; the files ``pending`` have no row yet."""
    paths = [r.path for r in rows] + [f"/f/{name}" for name in pending]
    return [news_line(change, {}) for change in news_of(store, {r.path: r for r in rows}, paths)]


def see(store, *rows: AnswerRow) -> None:
    note_seen(store, rows)


def test_it_is_found_again_until_it_is_forgotten(store):
    assert KeptTable.load(store) is None
    TABLE.save(store)
    assert KeptTable.load(store) == TABLE
    replace(TABLE, collection="Leases", filled=True).save(store)
    assert KeptTable.load(store) == KeptTable(TABLE.columns, "Leases", True)
    see(store, rent("a", 1))
    forget(store)
    assert (KeptTable.load(store), store.results.written_rows(NAME)) == (None, {})


@pytest.mark.parametrize("kept", ["", "[1]", '{"columns": [{"name": "x", "colour": "red"}]}', "no json"])
def test_a_record_of_another_version_is_no_table(store, kept):
    store.results.note_written(NAME, "", kept)
    assert KeptTable.load(store) is None


def test_it_goes_with_all_data(store):
    add(store, "river.txt")
    TABLE.save(store)
    see(store, rent("a", 1, row("river.txt").id))
    store.clear()
    assert list(store.db.query("SELECT * FROM written")) == []


def test_its_documents_are_the_newest_of_the_library_or_of_a_collection(store):
    ids = dict(zip("bac", add(store, "b", "a", "c"), strict=True))
    store.documents.add(row("a", "a newer text"), "a newer text", [])
    newer = row("a", "a newer text").id
    assert [d.id for d in TABLE.documents(store)] == [newer, ids["b"], ids["c"]]
    leases = replace(TABLE, collection="Leases")
    assert leases.is_gone(store)
    assert leases.documents(store) == []
    store.collections.add("Leases", [ids["a"], ids["c"]])
    assert [d.id for d in leases.documents(store)] == [newer, ids["c"]]
    assert not leases.is_gone(store)
    assert not TABLE.is_gone(store)


def test_news_are_what_changed_since_it_was_seen(store):
    see(store, rent("a", 1200), rent("b", 2))
    assert news(store, rent("a", 1200), rent("b", 2)) == []
    now = rent("a", 1300, "newer"), rent("c", 3)
    told = ["a: rent 1,200 EUR -> 1,300 EUR (page 2)", "c: added, rent 3 EUR", "b: removed"]
    assert news(store, *now) == told
    assert news(store, *now) == told
    see(store, *now)
    assert news(store, *now) == []


def test_a_row_in_the_making_is_no_news(store):
    see(store, rent("a", 1200))
    assert news(store, pending=("a", "b")) == []


def test_only_what_was_told_counts_as_seen(store):
    see(store, rent("a", 1), rent("gone", 4), rent("later", 5))
    first = {r.path: r for r in (rent("a", 2), rent("later", 5))}
    told = news_of(store, first, list(first))
    now = rent("a", 2), rent("b", 3)  # by the time that the user says so
    note_told(store, {r.path: r for r in now}, told)
    assert news(store, *now) == ["b: added, rent 3 EUR", "later: removed"]


def test_a_move_that_was_not_told_stays_no_news_once_others_were_seen(store):
    see(store, rent("old/a", 1, "1"), rent("b", 2))
    now = rent("new/a", 1, "1"), rent("b", 3, "newer")
    rows = {r.path: r for r in now}
    note_told(store, rows, news_of(store, rows, list(rows)))
    assert news(store, *now) == []


def test_a_file_that_moved_is_news_only_under_another_name(store):
    see(store, rent("old/a", 1, "1"), rent("old/b", 2, "2"))
    assert news(store, rent("new/a", 1, "1"), rent("new/c", 2, "2")) == ["c: renamed from b"]


def test_names_stand_for_paths():
    assert news_line(RowChange("0" * 64, "removed"), {"0" * 64: "typed.txt"}) == "typed.txt: removed"
    assert news_line(RowChange("/f/a", "failed", why="/f/b is odd"), {}) == "a: cannot be read: /f/b is odd"


def test_a_deleted_document_takes_its_row_along_and_brings_it_back(store):
    (river,) = add(store, "river.txt")
    TABLE.save(store)
    see(store, rent("river.txt", 1, river))
    deletion = store.delete("document", river)
    assert store.results.written_rows(NAME) == {}
    assert KeptTable.load(store) == TABLE
    store.deletions.restore(deletion.id)
    assert news(store, rent("river.txt", 1, river)) == []
