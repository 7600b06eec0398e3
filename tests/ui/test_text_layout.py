"""How the viewer sets a document: ranges of its text for headings, emphasis, lists, tables and the cells of sheets."""

import re
import time

import pytest
import xlsxwriter
from made_files import docx, epub

from localctx.library.read_document import read_document
from localctx.store.documents import Span, StoredDocument
from localctx.ui.viewer.layout_range import SYNTAX, LayoutRange, nested
from localctx.ui.viewer.text_layout import layout

LEASE = """\
---
title: Front
---

Setext *title*
===

# The **lease** #

The rent is **1,150 euros** a
month, `paid` in [advance](https://x.y/z) and \\*not\\* later.  
After a ~~hard~~ break.

> quoted **words**
> go on

- first
  - inner **item**
    goes on
7. seventh
8. eighth

| Item | Amount |
|:-----|------:|
| `x\\|y` | 3 |
| | **5** |

```py
# no heading
x = **1**
```

***
"""  # noqa: W291


@pytest.fixture
def stored(tmp_path):
    """A function that reads a file as the library does."""

    def stored(name: str, data: bytes | str) -> StoredDocument:
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        read = read_document(str(tmp_path / name))
        return StoredDocument(read.row, read.text, read.spans)

    return stored


def ranges(document: StoredDocument, start: int = 0, end: int | None = None) -> list[LayoutRange]:
    """The ranges of a part, which must make a tree."""
    end = len(document.text) if end is None else end
    found = layout(document, start, end)["ranges"]
    outer = [end]
    for one in found:
        assert start <= one.start < one.end <= end
        while outer[-1] <= one.start:
            outer.pop()
        assert one.end <= outer[-1], "the ranges are no tree"
        outer.append(one.end)
    return found


def seen(document: StoredDocument, found: list[LayoutRange]) -> list[str]:
    """The characters of the text; those that are hidden are ""."""
    letters = list(document.text)
    for one in found:
        if one.value == SYNTAX:
            letters[one.start : one.end] = [""] * (one.end - one.start)
    return letters


def elements(document: StoredDocument, start: int = 0, end: int | None = None) -> list[tuple]:
    """The elements that are no spans: tag, what is seen in it, and value."""
    found = ranges(document, start, end)
    letters = seen(document, found)
    return [(r.tag, "".join(letters[r.start : r.end]), r.value) for r in found if r.tag != "span"]


def rows(document: StoredDocument, start: int = 0, end: int | None = None) -> list[tuple]:
    """The rows of a sheet: label and, by column, the texts of the cells."""
    found = list[tuple]()
    for tag, text, value in elements(document, start, end):
        if tag == "tr":
            found.append((value, {}))
        elif tag in ("td", "th"):
            found[-1][1][value[0]] = text
    return found


# Markdown


def test_markdown_is_set_and_its_signs_are_hidden(stored):
    assert elements(stored("lease.md", LEASE)) == [
        ("pre", "---\ntitle: Front\n---", ""),
        ("h3", "Setext title", ""),
        ("em", "title", ""),
        ("h3", "The lease", ""),
        ("strong", "lease", ""),
        ("p", "The rent is 1,150 euros a\nmonth, paid in advance and *not* later.  \nAfter a hard break.", ""),
        ("strong", "1,150 euros", ""),
        ("code", "paid", ""),
        ("s", "hard", ""),
        ("blockquote", "quoted words\ngo on", ""),
        ("p", "quoted words\ngo on", ""),
        ("strong", "words", ""),
        ("ul", "first\ninner item\ngoes on", ""),
        ("li", "first\ninner item\ngoes on", 0),
        ("p", "first", ""),
        ("ul", "inner item\ngoes on", ""),
        ("li", "inner item\ngoes on", 0),
        ("p", "inner item\ngoes on", ""),
        ("strong", "item", ""),
        ("ol", "seventh\neighth", ""),
        ("li", "seventh", 7),
        ("p", "seventh", ""),
        ("li", "eighth", 8),
        ("p", "eighth", ""),
        ("table", "ItemAmount\n\nx|y3\n5", []),
        ("tr", "ItemAmount", ""),
        ("th", "Item", (0, False)),
        ("th", "Amount", (1, True)),
        ("tr", "x|y3", ""),
        ("td", "x|y", (0, False)),
        ("code", "x|y", ""),
        ("td", "3", (1, True)),
        ("tr", "5", ""),
        ("td", "5", (1, True)),
        ("strong", "5", ""),
        ("pre", "# no heading\nx = **1**", ""),
        ("div", "", ""),
    ]


def test_a_section_that_begins_inside_code_or_a_table_is_set_as_what_it_is(stored):
    code = stored("code.md", "# Code\n\n```\n" + "a = **b**\n\n" * 1000 + "```\n\nThe **end**\n")
    assert elements(code, 6000)[1:] == [("p", "The end", ""), ("strong", "end", "")]
    table = stored("table.md", "# Table\n\n| a | b |\n|---|---|\n" + "| c | **d** |\n" * 5000)
    start = table.text.rindex("| c |")
    assert rows(table, start) == [("", {0: "c", 1: "d"})]


@pytest.mark.parametrize(
    "text",
    [
        "Unclosed **bold and *italic and `code and [link](and",
        "**" * 3000 + "word",
        "a **b *c** d* e",
        "``` not a language\ncode",
        "| a | b |\n|---|---|\n| c \\| d | `e | f` | g |\n| h",
        "| **a | b** |\n|---|---|\n| c",
        ">" * 40 + " deep\n" + "- " * 40 + "deeper",
        "\tcode\n\n-\ttab\n\t- tab\n",
        "```\nnever closed",
        "```",
        "#\n##\n-\n>\n",
        "- [ ] task\n  ```\n  code\n",
        "[a](<b c>) [d][e] [[f](g h)](i j) <img src=x onerror=alert(1)>",
        "**[a**](b) ~~~c~~ \\",
        "---\ntitle: x\n---\n---\n",
        "🐦 **🐦** wörd",
    ],
)
def test_no_word_of_a_hostile_text_is_lost(stored, text):
    document = stored("hostile.md", text)
    found = ranges(document)
    assert re.findall(r"[^\W_]", "".join(seen(document, found))) == re.findall(r"[^\W_]", document.text)
    for start in range(0, len(document.text), max(1, len(document.text) // 20)):
        ranges(document, start)


@pytest.mark.parametrize("line", ["*a **b ", "[a](", "`a ``b ", "> - ", "| a | b ", "<!-- ", "~~a *b_c_ "])
def test_a_hostile_text_takes_no_time(stored, line):
    document = stored("long.md", line * 5000)
    start = time.process_time()
    ranges(document, len(document.text) - 6000)
    assert time.process_time() - start < 2, "seconds of the processor; a tenth of that is usual"


# Headings of other documents


def test_headings_of_books_and_letters_are_set(stored):
    book = stored(
        "book.epub", epub({"1.xhtml": "<h1>The  heron</h1><p>It waits.</p><h2>At night</h2><p>It **sleeps**.</p>"})
    )
    assert [(tag, text.strip()) for tag, text, _ in elements(book)] == [("h3", "The heron"), ("h3", "At night")]
    letter = stored("letter.docx", docx())
    assert [(tag, text.strip()) for tag, text, _ in elements(letter)] == [("h3", "Rivers")]
    run_in = stored("run-in.docx", docx())
    headed = StoredDocument(run_in.row, run_in.text, [Span(0, len(run_in.text), "heading", run_in.text[:3])])
    assert elements(headed) == [], "a line that goes on after its label is no heading"
    assert elements(stored("plain.txt", "no *emphasis*\n\n| a | b |")) == []


# Sheets


def book(path, **sheets) -> bytes:
    """A workbook of rows, by the names of its sheets; "" is no cell."""
    with xlsxwriter.Workbook(str(path)) as workbook:
        for name, lines in sheets.items():
            sheet = workbook.add_worksheet(name)
            for number, line in lines.items():
                for column, value in enumerate(line):
                    if value != "":
                        sheet.write(number - 1, column, value)
                    if value == "odd":
                        sheet.write_comment(number - 1, column, "check it")
    return path.read_bytes()


RENTS = {
    1: ["Flat", "Tenant", "Rent"],
    2: ["A1", "Ann; Bob", 900],
    3: ["A2", "", 950.5],
    4: ["A3", "odd", 1000],
    7: ["Total", "", 2850.5],
}


def test_a_sheet_is_a_grid(stored, tmp_path):
    document = stored(
        "rents.xlsx", book(tmp_path / "made.xlsx", Rents=RENTS, Notes={2: ["only a line"], 4: ["x", "y"]})
    )
    assert rows(document) == [
        ("1", {0: "Flat", 1: "Tenant", 2: "Rent"}),
        ("2", {0: "A1", 1: "Ann; Bob", 2: "900"}),
        ("3", {0: "A2", 2: "950.5"}),
        ("4", {0: "A3", 1: "odd", 2: "1000"}),
        ("", {-1: "Comment on B4: check it"}),
        ("7", {0: "Total", 2: "2850.5"}),
        ("2", {0: "only a line"}),
        ("4", {0: "x", 1: "y"}),
    ]
    found = elements(document)
    assert [text.strip() for tag, text, _ in found if tag == "h3"] == ["Rents", "Notes"]
    assert [text for tag, text, _ in found if tag == "th"] == ["Flat", "Tenant", "Rent"]
    assert {value[0] for tag, _, value in found if tag == "td" and value[1]} == {2}, "numbers are set to the right"


def test_a_later_section_of_a_sheet_names_its_columns(stored, tmp_path):
    document = stored("rents.xlsx", book(tmp_path / "made.xlsx", Rents=RENTS))
    start = document.text.index("Flat: A3")
    assert [value for tag, _, value in elements(document, start) if tag == "table"] == [
        [("Flat", False), ("Tenant", False), ("Rent", True)]
    ]
    assert rows(document, start)[0] == ("4", {0: "A3", 1: "odd", 2: "1000"})


def test_every_character_of_a_grid_is_in_a_cell(stored, tmp_path):
    document = stored("rents.xlsx", book(tmp_path / "made.xlsx", Rents=RENTS))
    covered = {i for one in ranges(document) if one.tag in ("h3", "td", "th") for i in range(one.start, one.end)}
    assert covered == set(range(len(document.text)))


def test_pipes_quotes_and_names_in_cells_are_no_structure(stored):
    document = stored("odd.csv", 'Name,Note,Rent\nAnn,"a | **b**; Size: 3",4\nBob,<b>; Note: x,5\nCid,"Name: y",6\n')
    assert rows(document)[1:] == [
        ("2", {0: "Ann", 1: "a | **b**; Size: 3", 2: "4"}),
        ("3", {0: "Bob", 1: "<b>; Note: x", 2: "5"}),
        ("4", {0: "Cid", 1: "Name: y", 2: "6"}),
    ]


def test_a_long_sheet_takes_no_time(stored):
    lines = "".join(f"Heron {i},{i},Lake {i}\n" for i in range(5000))
    document = stored("birds.csv", f"Species,Count,Place\n{lines}")
    start = time.process_time()
    assert len(rows(document, len(document.text) - 6000)) > 50
    assert time.process_time() - start < 1, "seconds of the processor; a tenth of that is usual"
    start = time.process_time()
    assert len(rows(document)) == 5001
    assert time.process_time() - start < 10


def test_ranges_that_cross_are_left_out():
    crossing = [
        LayoutRange(2, 6, "em"),
        LayoutRange(0, 4, "strong"),
        LayoutRange(4, 4, "s"),
        LayoutRange(5, 99, "code"),
    ]
    assert [(r.tag, r.start, r.end) for r in nested(crossing, 0, 10)] == [("strong", 0, 4), ("code", 5, 10)]
