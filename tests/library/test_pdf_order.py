"""The order in which a PDF's text is read: columns, turned pages and text, blocks that the file writes in any order."""

import random

import pytest
from made_pdfs import Drawn, at, drawn_pdf, lines, rule

from localctx.library.parsers.pdf import read_pdf

LEFT = [
    "The harbour board met in the old",
    "customs house to hear the report.",
    "The surveyor had measured the pier",
    "after the storm of March and said",
    "that the piles were rotten. They",
    "agreed to mend them in summer.",
]
MIDDLE = [
    "In the second year the members of",
    "the council asked for a new crane",
    "which would lift ten tons at once.",
    "The price was nine thousand crowns",
    "and the treasurer refused to pay",
    "for it until the loan was granted.",
]
RIGHT = [
    "A third column tells of the mill,",
    "whose wheels were made of old oak",
    "and turned day and night until the",
    "river froze in January. Then the",
    "miller went to the inn and played",
    "cards with the pilot and his son.",
]
HEAD = "Minutes of the harbour board, and what followed from them in later years"
FOOT = "A line across all of the columns that names the printer of this paper, and the year"


def text_of(data: bytes) -> str:
    """The text of a PDF, read in this process."""
    return read_pdf.read(data, lambda *of: None, "off", lambda: None)[1].done()[0]


def columns(*texts: list[str], step: float = 230, y: float = 700) -> list[list[str]]:
    """What draws each line of each column."""
    return [lines(50 + step * i, y, column, size=10) for i, column in enumerate(texts)]


def in_writing_order(order: str, drawn: list[list[str]]) -> list[str]:
    """The lines of columns in one of the orders in which a file may write them."""
    whole = [line for column in drawn for line in column]
    match order:
        case "row by row":
            return [line for row in zip(*drawn, strict=True) for line in row]
        case "last column first":
            return [line for column in reversed(drawn) for line in column]
        case "upwards":
            return [line for column in drawn for line in reversed(column)]
        case "every second line first":
            return whole[::2] + whole[1::2]
        case "at random":
            return random.Random(3).sample(whole, len(whole))
    return whole


ORDERS = ["column by column", "row by row", "last column first", "upwards", "every second line first", "at random"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("texts", [(LEFT, MIDDLE), (LEFT, MIDDLE, RIGHT)])
def test_columns_are_read_one_after_another_whatever_order_they_are_written_in(order, texts):
    body = in_writing_order(order, columns(*texts, step=180 if len(texts) > 2 else 230))
    whole = [at(50, 740, HEAD, 12), *body, at(50, 590, FOOT, 10)]
    expected = "\n".join([HEAD, *(line for text in texts for line in text), FOOT])
    assert text_of(drawn_pdf([whole])) == expected
    assert text_of(drawn_pdf([whole[::-1]])) == expected or order == "upwards"


@pytest.mark.parametrize("order", ["column by column", "row by row"])
def test_a_short_line_under_or_over_columns_belongs_to_neither(order):
    body = in_writing_order(order, columns(LEFT, MIDDLE))
    drawn = [at(430, 760, "3 May 1912"), at(50, 735, "Report"), *body, at(50, 40, "Printed at Lindholm")]
    expected = ["3 May 1912", "Report", *LEFT, *MIDDLE, "Printed at Lindholm"]
    assert text_of(drawn_pdf([drawn])) == "\n".join(expected)


def test_the_longer_of_two_columns_is_read_to_its_end_first():
    drawn = in_writing_order("row by row", columns(LEFT, MIDDLE)) + lines(50, 616, ["which is why they went"], size=10)
    assert text_of(drawn_pdf([drawn])) == "\n".join([*LEFT, "which is why they went", *MIDDLE])


def test_columns_whose_lines_do_not_stand_side_by_side():
    drawn = [line for pair in zip(lines(50, 700, LEFT), lines(310, 693, MIDDLE), strict=True) for line in pair]
    assert text_of(drawn_pdf([drawn])) == "\n".join([*LEFT, *MIDDLE])


def test_columns_above_and_below_a_title_are_read_in_two_steps():
    drawn = [
        *in_writing_order("row by row", columns(LEFT, MIDDLE)),
        at(50, 590, HEAD, 12),
        *in_writing_order("row by row", columns(MIDDLE, RIGHT, y=560)),
    ]
    assert text_of(drawn_pdf([drawn])) == "\n".join([*LEFT, *MIDDLE, HEAD, *MIDDLE, *RIGHT])


def test_rows_of_words_are_no_columns():
    rows = [
        ("Part of the house", "What the tenant may do"),
        ("the cellar", "store coal and wood"),
        ("the yard", "dry the washing there"),
        ("the attic rooms", "sleep and work in them"),
        ("the front garden", "look at the flowers"),
        ("the roof", "nothing at all"),
    ]
    drawn = [at(x, 700 - 14 * i, text) for i, row in enumerate(rows) for x, text in zip((50, 300), row, strict=True)]
    assert text_of(drawn_pdf([drawn])) == "\n".join(" ".join(row) for row in rows)


def test_cells_of_several_lines_stay_beside_each_other():
    drawn = list[str]()
    for i in range(3):
        y, own = 700 - 36 * i, slice(2 * i, 2 * i + 2)
        drawn += lines(50, y, LEFT[own]) + lines(310, y, MIDDLE[own])
    expected = [line for i in (0, 2, 4) for line in (*LEFT[i : i + 2], *MIDDLE[i : i + 2])]
    assert text_of(drawn_pdf([drawn])) == "\n".join(expected)


def test_a_heading_that_is_written_last_is_read_first():
    drawn = [at(50, 40, "At the foot"), *lines(50, 700, LEFT), at(50, 740, "The heading", 16)]
    assert text_of(drawn_pdf([drawn])) == "\n".join(["The heading", *LEFT, "At the foot"])


def turned_lines(angle: int, texts: list[str]) -> list[str]:
    """Lines that run at an angle over the page."""
    x, y = {0: (50, 700), 90: (100, 50), 180: (550, 100), 270: (500, 750), 30: (100, 100)}[angle]
    across, down = {0: (0, -14), 90: (14, 0), 180: (0, 14), 270: (-14, 0), 30: (7, -12.12)}[angle]
    return [at(x + across * i, y + down * i, text, 12, angle) for i, text in enumerate(texts)]


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
@pytest.mark.parametrize("angle", [0, 30, 90, 180, 270])
def test_lines_stay_apart_however_page_and_text_are_turned(turn, angle):
    page = Drawn("\n".join(turned_lines(angle, LEFT)), turn=turn)
    assert text_of(drawn_pdf([page])) == "\n".join(LEFT)


@pytest.mark.parametrize(("turn", "angle"), [(0, 90), (90, 90), (270, 270), (0, 270), (180, 180)])
def test_a_ruled_table_is_read_row_by_row_on_a_turned_page(turn, angle):
    rows = [["Port", "Ships", "Tons"], ["Varna", "14", "3200"], ["Olmen", "9", "1150"]]
    matrix = {90: "0 1 -1 0 600 100", 180: "-1 0 0 -1 500 700", 270: "0 -1 1 0 100 600"}[angle]
    drawn = [f"q {matrix} cm", *(rule(0, 20 * i, 300, 1) for i in range(4))]
    drawn += [*(rule(100 * i, 0, 1, 61) for i in range(4))]
    drawn += [at(5 + 100 * j, 45 - 20 * i, cell) for i, row in enumerate(rows) for j, cell in enumerate(row)]
    page = Drawn("\n".join([*drawn, "Q"]), turn=turn)
    assert text_of(drawn_pdf([page])) == "\n".join("\t".join(row) for row in rows)


def test_text_in_another_direction_divides_no_sentence():
    side = at(30, 300, "Received on 4 May", 10, 90)
    first = Drawn("\n".join([*lines(80, 700, LEFT[:3]), side, *lines(80, 658, ["and nobody doubted that the"])]))
    text = text_of(drawn_pdf([first, lines(80, 700, ["pier would stand. So they went home."])]))
    assert "doubted that the\npier would stand." in text
    assert text.count("Received on 4 May") == 1


def test_a_stamp_across_a_page_stands_after_its_text():
    page = Drawn("\n".join([at(100, 400, "DRAFT", 80, 45), *lines(80, 700, LEFT)]))
    assert text_of(drawn_pdf([page])) == "\n".join(LEFT) + "\n\nDRAFT"


def test_a_ligature_is_read_as_its_letters():
    cmap = "1 begincodespacerange <00> <FF> endcodespacerange 2 beginbfchar <41> <FB01> <42> <FB03> endbfchar"
    table = f"<</Length {len(cmap)}>>stream\n{cmap}\nendstream"
    data = drawn_pdf([[at(50, 700, "scientiAc eBcient")]], more=[table])
    encoding = b"/Encoding/WinAnsiEncoding"
    data = data.replace(encoding, b"/ToUnicode 4 0 R".ljust(len(encoding)))  # objects stay at their places
    assert text_of(data) == "scientific efficient"


def test_columns_that_hold_lists_and_tables_are_read_one_after_another():
    items = ["- ropes", "- lamps", "- tar and pitch"]
    left = ["The keeper writes all down in a", "book that lies open on the table", "beside the stove of the house."]
    rows = [at(340 + 90 * j, 600 - 14 * i, text) for i, row in enumerate(TABLE) for j, text in enumerate(row)]
    right = [
        "Nobody could tell him why the",
        "ship lies idle in the basin while",
        "all of the others are at sea again.",
    ]
    drawn = [*lines(50, 700, [*left, *items, *left]), *lines(340, 700, ["Goods"]), *rows, *lines(340, 500, right)]
    expected = [*left, *items, *left, "Goods", *("\t".join(row) for row in TABLE), *right]
    assert [line for line in text_of(drawn_pdf([drawn])).split("\n") if line] == expected


TABLE = [["Quay", "Tons"], ["North", "3200"], ["East", "1275"], ["Old", "88"], ["West", "640"]]
