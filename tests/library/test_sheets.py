"""Sheets and CSV files: each row with its header, group and place; values as the sheet shows them; what is left out."""

import io
import re
from io import BytesIO
from zipfile import ZipFile

import pytest
from made_files import with_member
from office_files import rents, saved, xlsx

from localctx.errors import DocumentError
from localctx.library.parsers.archive import Archive
from localctx.library.parsers.sheets.cells import plain_number, tell_ranges
from localctx.library.parsers.sheets.number_format import shown_cell
from localctx.library.parsers.sheets.values import column_of
from localctx.library.read_document import Document, read_document

SHEET = "xl/worksheets/sheet1.xml"


@pytest.fixture
def read(tmp_path, parsed_here):
    """Reads bytes as a file of a name."""

    def read(data: bytes | str, name: str) -> Document:
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_document(str(tmp_path / name))

    return read


def rows(document: Document) -> dict[str, str]:
    """The rows of a document with one sheet, by their numbers."""
    return {s.label: document.text[s.start : s.end].strip() for s in document.spans if s.kind == "row"}


def made(*values: tuple, name: str = "S", merged: tuple[str, ...] = ()):
    """A workbook of openpyxl with one sheet, and that sheet."""
    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = name
    for row in values:
        sheet.append(list(row))
    for place in merged:
        sheet.merge_cells(place)
    return book, sheet


# Merged cells and headers


def test_a_value_merged_over_rows_is_in_each_of_them(read):
    book, _ = made(
        ("Team", "Player", "Goals"),
        ("Red", "Ada", 3),
        (None, "Bo", 1),
        (None, "Cy", 2),
        ("Blue", "Di", 5),
        (None, "Ed", 4),
        merged=("A2:A4", "A5:A6"),
    )
    found = rows(read(saved(book), "a.xlsx"))
    assert found["4"] == "Team: Red; Player: Cy; Goals: 2"
    assert found["6"] == "Team: Blue; Player: Ed; Goals: 4"


def test_a_value_merged_over_rows_and_columns_is_said_once_in_a_row(read):
    book, _ = made(
        ("Day", "Hall", "Yard", "Guests"),
        ("Monday", "closed", None, 0),
        ("Tuesday", None, None, 7),
        merged=("B2:C3",),
    )
    found = rows(read(saved(book), "a.xlsx"))
    assert found["3"] == "Day: Tuesday; Hall: closed; Guests: 7"


@pytest.mark.parametrize(
    "merged", [("A1:A2", "B1:C1", "D1:E1"), ("B1:C1", "D1:E1"), ()], ids=["merged", "across", "only gaps"]
)
def test_two_header_rows_are_joined(read, merged):
    years = ("Item" if "A1:A2" in merged else None, 2023, None, 2024, None)
    book, _ = made(years, ("Item", "Q1", "Q2", "Q1", "Q2"), ("Oil", 1, 2, 3, 4), ("Salt", 5, 6, 7, 8), merged=merged)
    found = rows(read(saved(book), "a.xlsx"))
    assert found["4"] == "Item: Salt; 2023 / Q1: 5; 2023 / Q2: 6; 2024 / Q1: 7; 2024 / Q2: 8"


def test_a_title_merged_over_the_whole_table_names_no_group(read):
    book, _ = made(("Costs of 2026",), ("Item", "May", "June"), ("Oil", 1, 2), ("Salt", 5, 6), merged=("A1:C1",))
    assert rows(read(saved(book), "a.xlsx"))["4"] == "Item: Salt; May: 5; June: 6"


def test_a_timetable_has_one_header_row(read):
    book, _ = made((None, "Mon", "Tue", "Wed"), ("8:00", "Maths", "Maths", "Art"), ("9:00", "Art", "Latin", "Art"))
    assert rows(read(saved(book), "a.xlsx"))["3"] == "9:00; Mon: Art; Tue: Latin; Wed: Art"


# Values


@pytest.mark.parametrize(
    ("value", "code", "shown"),
    [
        (1e15, "General", "1000000000000000"),
        (123456789012345678, "General", "123456789012346000"),
        (2.5e-7, "General", "0.00000025"),
        (0.1 + 0.2, "General", "0.3"),
        (0.05, "0%", "5%"),
        (0.0525, "0%", "5.25%"),
        (0.29, "0.00%", "29.00%"),
        (1200, '#,##0.00 "€"', "1,200.00 €"),
        (-1200.456, "[$£-809]#,##0.00", "-£1200.456"),
        (99.5, '_-* #,##0.00\\ "kr"_-', "99.50 kr"),
        (-7, "#,##0;[Red](#,##0)", "-7"),
        (8000000, '0.0,, "million"', "8000000"),
        (4711, "00000", "04711"),
        (1.25, "# ?/?", "1.25"),
        (1, '"on";"off"', "1"),
        (46143, "d.m.yy", "2026-05-01"),
        (46143.75, "dd/mm/yyyy hh:mm", "2026-05-01 18:00:00"),
        (0.5, "h:mm AM/PM", "12:00:00"),
        (2.125, "[hh]:mm", "51:00"),
        (0.0104282407, "[m]:ss", "0:15:01"),
        (46143, 'yyyy"年"m"月"d"日"', "2026-05-01"),
        (3, '0 "days"', "3 days"),
        (-1, "yyyy-mm-dd", "-1"),
        (1e10, "yyyy-mm-dd", "10000000000"),
    ],
)
def test_numbers_are_shown_as_the_sheet_shows_them_without_losing_digits(value, code, shown):
    assert shown_cell(float(value), code, False).shown == shown


def test_days_of_a_workbook_that_counts_from_1904():
    assert shown_cell(0.0, "yyyy-mm-dd", True).shown == "1904-01-01"
    assert [shown_cell(day, "d.m.yy", False).shown for day in (1.0, 61.0)] == ["1900-01-01", "1900-03-01"]


def test_huge_and_tiny_numbers_keep_their_exponent():
    assert [plain_number(x) for x in (1e300, 1e-300, -1e20)] == ["1e+300", "1e-300", "-100000000000000000000"]


def test_errors_and_formulas_without_a_value_are_kept_and_noted(read):
    book, sheet = made(("Item", "Cost", "Note"), ("Oil", 3, "a"), ("Salt", 4, "b"), ("Sum", "=SUM(B2:B3)", "c"))
    sheet["D2"] = "=B2*2"
    sheet["B5"], sheet["A5"] = "#DIV/0!", "Share"
    document = read(saved(book), "a.xlsx")
    assert rows(document)["4"] == "Item: Sum; Cost: =SUM(B2:B3); Note: c"
    assert rows(document)["5"] == "Item: Share; Cost: #DIV/0!"
    assert document.row.unread == "2 formulas without a stored value, first in S!D2"


def test_a_line_break_in_a_cell_stays_inside_its_row(read):
    book, _ = made(("Name", "Address", "Size"), ("Oda", "Quay 1\nVarna", 3), ("Sven", "Hill 2\r\nOlmen", 4))
    assert rows(read(saved(book), "a.xlsx"))["2"] == "Name: Oda; Address: Quay 1 Varna; Size: 3"


def test_rich_texts_are_whole_and_pronunciations_are_left_out(read):
    rich = "<r><t>To</t></r><r><rPr><b/></rPr><t xml:space='preserve'>kyo x</t></r><rPh><t>トウ</t></rPh>"
    plain = xlsx({"S": [["City", "n", "m"], ["Tokyo x", 1, 2], ["Oslo", 3, 4]]})
    sheet = Archive(plain).read(SHEET).decode().replace("<is><t>Tokyo x</t></is>", f"<is>{rich}</is>")
    assert rows(read(with_member(plain, SHEET, sheet), "a.xlsx"))["2"] == "City: Tokyo x; n: 1; m: 2"


def test_texts_that_cells_share_and_the_results_of_formulas(read):
    import xlsxwriter

    book = xlsxwriter.Workbook(buffer := io.BytesIO())
    sheet = book.add_worksheet("S")
    for number, values in enumerate((("Item", "Cost", "By"), ("Oil", 3, "Oda"), ("Salt", 4, "Oda"))):
        sheet.write_row(number, 0, values)
    sheet.write_rich_string("A4", "all ", book.add_format({"bold": True}), "together")
    sheet.write_formula("B4", "=SUM(B2:B3)", None, 7)
    book.close()
    document = read(buffer.getvalue(), "a.xlsx")
    assert rows(document)["4"] == "Item: all together; Cost: 7"
    assert not document.row.unread


# What is left out, and said


def test_hidden_sheets_rows_and_columns_are_left_out_and_said(read):
    book, sheet = made(("a", "b", "c", "d"), *((f"x{i}", i, -i, 0) for i in range(1, 9)), name="Open")
    for number in (3, 4, 7):
        sheet.row_dimensions[number].hidden = True
    sheet.column_dimensions["C"].hidden = True
    book.create_sheet("Costs").append(["secret"])
    book["Costs"].sheet_state = "hidden"
    document = read(saved(book), "a.xlsx")
    assert list(rows(document)) == ["1", "2", "5", "6", "8", "9"]
    assert rows(document)["5"] == "a: x4; b: 4; d: 0"
    assert document.row.unread.splitlines() == [
        "the hidden rows 3-4, 7 of Open",
        "the hidden column C of Open",
        "the hidden sheet Costs",
    ]


def test_comments_are_named_as_comments_beside_their_row(read):
    from openpyxl.comments import Comment

    book, sheet = made(("Item", "Cost", "By"), ("Oil", 3, "x"), ("Salt", 4, "y"))
    sheet["B2"].comment = Comment("Oda:\nask again", "Oda")
    sheet["D9"].comment = Comment("on an empty cell", "Sven")
    document = read(saved(book), "a.xlsx")
    assert rows(document)["2"] == "Item: Oil; Cost: 3; By: x\n\nComment on B2 by Oda: ask again"
    assert rows(document)["9"] == "Comment on D9 by Sven: on an empty cell"


@pytest.mark.parametrize("far", ["ZZ50001", "XFD1048576"])
def test_a_cell_far_away_costs_nothing(read, far):
    book, sheet = made(("Item", "Cost", "By"), ("Oil", 3, "x"), ("Salt", 4, "y"))
    sheet[far] = "stray"
    found = rows(read(saved(book), "a.xlsx"))
    assert found["3"] == "Item: Salt; Cost: 4; By: y"
    assert list(found.values())[-1] == "stray"


def test_a_damaged_sheet_costs_only_its_rest(read):
    data = rents()
    text = Archive(data).read(SHEET).decode()
    document = read(with_member(data, SHEET, text[: text.index('r="6"')]), "a.xlsx")
    assert "Second" in document.text
    assert "Tenant\tAnn" in document.text
    assert "Third" not in document.text
    assert document.row.unread.splitlines()[0] == "the sheet Prices after row 5, because it is damaged"


def test_an_entity_bomb_costs_its_sheet(read):
    text = Archive(rents()).read(SHEET).decode()
    laughs = "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10))
    bomb = f"<!DOCTYPE l [<!ENTITY a0 'ha'>{laughs}]>"
    document = read(with_member(rents(), SHEET, bomb + re.sub(r"<v>\d+</v>", "<v>&a9;</v>", text)), "a.xlsx")
    assert "haha" not in document.text
    assert "Income; 2024: 5" in document.text


# CSV


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("name,rent,town\nAda,120,Varna\nBo,90,Olmen\n", "name: Bo; rent: 90; town: Olmen"),
        ("name;rent\nAda;1.200,50\nBo;90,00\n", "name: Bo; rent: 90,00"),
        ("name\trent\nAda\t120\nBo\t90\n", "name: Bo; rent: 90"),
        ("name|rent\nAda|120\nBo|90\n", "name: Bo; rent: 90"),
        ('sep=;\nname;"the ""rent"""\nBo;90\n', 'name: Bo; the "rent": 90'),
        ('name,about\nAda,"one\ntwo"\nBo,"three,\r\nfour"\n', "name: Bo; about: three, four"),
        ("name,town\r\nAda,Varna\r\nBo,Olmen\r\n", "name: Bo; town: Olmen"),
        ("\ufeffname,rent\nAda,1\nBo,\n", "Bo"),
        ("Report of May\n\nname,rent,town\nAda,120,x\nBo,90,y\n", "name: Bo; rent: 90; town: y"),
        ("year,2024,2025\nAda,1,2\nBo,3,4\n", "year: Bo; 2024: 3; 2025: 4"),
        ("Ada,3\nBo,4\n", "Bo\t4"),
        ("north,oil,5\nsouth,oil,6\n", "south\toil\t6"),
        ('name,size\nBo,5" pipe\n', 'name: Bo; size: 5" pipe'),
    ],
)
def test_each_row_of_a_csv_file_names_its_values(read, text, row):
    found = rows(read(text, "a.csv"))
    assert list(found.values())[-1] == row


def test_a_row_of_a_csv_file_is_numbered_as_in_a_spreadsheet(read):
    text = "name,rent\n" + "".join(f'"n\n{i}",{i}\n' for i in range(400))
    assert rows(read(text, "a.csv"))["320"] == "name: n 318; rent: 318"


def test_a_quotation_mark_that_is_never_closed_costs_no_row(read):
    text = 'name,rent\nAda,"open\n' + "".join(f"n{i},{i}\n" for i in range(300))
    found = rows(read(text, "a.csv"))
    assert len(found) == 302
    assert found["302"] == "name: n299; rent: 299"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "cp1252"])
def test_csv_files_in_other_encodings(read, encoding):
    text = "Straße;Größe;Preis in €\nHöhenweg;3;5\nMühlgasse;4;6\n" * 3
    assert rows(read(text.encode(encoding), "a.csv"))["2"] == "Straße: Höhenweg; Größe: 3; Preis in €: 5"


# The values of a column


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1.500", "2,75"], "number", [1500.0, 2.75]),
        (["1,500", "20"], "number", [1500.0, 20.0]),
        (["1'234.50", "2.00"], "number", [1234.5, 2.0]),
        (["12 000 kr", "300 kr"], "number", [12000.0, 300.0]),
        (["€ 1,234.50", "-€ 2.00"], "number", [1234.5, -2.0]),
        (["(30)", "\u22125"], "number", [-30.0, -5.0]),
        (["15.7%", "3%"], "number", [15.7, 3.0]),
        (["00501", "10115"], "text", ["00501", "10115"]),
        (["10.0.0.1", "10.0.0.10"], "text", ["10.0.0.1", "10.0.0.10"]),
        (["A1", "B2"], "text", ["A1", "B2"]),
        (["2026-05-01", "2025-12-31T08:00"], "day", ["2026-05-01", "2025-12-31"]),
        (["1.2.2026", "13.2.2026"], "day", ["2026-02-01", "2026-02-13"]),
        (["1/2/2026", "3/14/26"], "day", ["2026-01-02", "2026-03-14"]),
        (["31.2.2026"], "text", ["31.2.2026"]),
    ],
)
def test_columns_of_numbers_money_and_days(texts, kind, values):
    column = column_of(texts)
    assert (column.kind, [column.value(text) for text in texts]) == (kind, values)


def test_one_odd_value_in_ten_leaves_a_column_of_numbers():
    column = column_of([*map(str, range(9)), "unknown"])
    assert (column.kind, column.value("unknown")) == ("number", None)


def test_runs_of_numbers_are_joined():
    assert tell_ranges([3, 4, 5, 9]) == "3-5, 9"
    assert tell_ranges(list(range(1, 40, 2))) == "1, 3, 5, 7, 9, 11, 13, 15 and 12 more"


def test_a_moment_that_is_shown_as_a_time_keeps_its_day():
    assert shown_cell(45000.5, "h:mm", False).shown == "2023-03-15 12:00:00"


def test_shared_texts_are_found_whatever_the_capitals_of_their_part_and_missing_ones_are_told(read):
    import xlsxwriter  # which writes shared texts, as Excel does; openpyxl writes none

    made_by_excel = BytesIO()
    with xlsxwriter.Workbook(made_by_excel) as book:
        sheet = book.add_worksheet("S")
        for row, values in enumerate((("Name", "City"), ("Ann", "Oslo"))):
            sheet.write_row(row, 0, values)
    with ZipFile(made_by_excel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    texts = members.pop("xl/sharedStrings.xml").replace(b"Ann", b"An_x006E_")
    for added, text, unread in (
        ({"xl/SharedStrings.xml": texts}, "S\n\nName\tCity\n\nAnn\tOslo", ""),
        ({}, "", "the texts of 4 cells of S, which are not in the file"),
    ):
        changed = BytesIO()
        with ZipFile(changed, "w") as archive:
            for name, content in (members | added).items():
                archive.writestr(name, content)
        if text:
            assert read(changed.getvalue(), "a.xlsx").text == text
        else:
            with pytest.raises(DocumentError, match=unread):
                read(changed.getvalue(), "a.xlsx")
