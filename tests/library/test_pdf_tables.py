"""Tables of PDFs are read row by row where the layout shows them; what is no table stays as PDFium orders it."""

import random

import pypdfium2
import pytest
from browser import launched

from localctx.library.parsers.pdf.page_text import read_page

_WORDS = "the tenant shall pay rent on first day of each month without any deduction landlord keeps roof walls"
WORDS = _WORDS.split()
STYLE = """<style>body{font:12px Arial} table{border-collapse:collapse} td,th{padding:4px 8px;text-align:left}
.b td,.b th{border:1px solid #333} .two{column-count:2;text-align:justify} .row{display:flex}</style>"""


def prose(words: int, seed: int, numbers: bool = False) -> str:
    dice = random.Random(seed)
    return " ".join(
        str(dice.randrange(1, 2000)) if numbers and dice.random() < 0.15 else dice.choice(WORDS) for _ in range(words)
    )


def table(rows: list[list[str]], kind: str = "", align: str = "left") -> str:
    cells = [
        "".join(f"<td style='text-align:{align if i else 'left'}'>{c}</td>" for i, c in enumerate(r)) for r in rows
    ]
    return f"<table class='{kind}' style='width:430px'>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


WRAPPED = [
    ["Item", "What is agreed", "Price"],
    ["Cleaning of the stairs", "Every second week by a firm that the landlord chooses and pays in advance", "35 EUR"],
    ["Garden", "Mowing from April to October, and cutting of the hedges in autumn", "20 EUR"],
]
BALANCE = [["Assets", "2024", "2025"], *([f"Position {i}", f"{i * 1234:,}", f"({i * 777:,})"] for i in range(1, 7))]
INVOICE = [
    ["Pos", "Article", "Qty", "Price"],
    ["1", "Chair", "2", "40.00"],
    ["2", "Table of oak with two drawers and a description that is so long that it wraps", "1", "300.00"],
    ["3", "Lamp", "", "20.00"],
    ["4", "Shelf", "4", "25.00"],
]
TABLES = {
    "with lines": (table(WRAPPED, "b"), WRAPPED),
    "with numbers on the right": (table(BALANCE, align="right"), BALANCE),
    "without lines": (f"<div style='height:60px'>Smith<br>London</div>{table(INVOICE)}", INVOICE),
}
OTHERS = {
    "two columns": f"<div class=two>{''.join(f'<p>{prose(120, i, True)}.</p>' for i in range(8))}</div>",
    "justified": f"<div style='text-align:justify'>{''.join(f'<p>{prose(99, i, True)}.</p>' for i in range(8))}</div>",
    "clauses": "".join(
        f"<div class=row><div style='width:40px'>{i}.</div><p>{prose(60, i)}</p></div>" for i in range(9)
    ),
    "margin notes": "".join(
        f"<div class=row><div style='width:120px'>{prose(4, i)}</div><div>{prose(60, i)}</div></div>" for i in range(8)
    ),
    "index": "<div class=two>"
    + "".join(
        f"<div class=row style='justify-content:space-between'><span>{w}</span><span>{i}</span></div>"
        for i, w in enumerate(sorted(WORDS * 2))
    )
    + "</div>",
    "addresses": "<div class=row><div style='width:50%'>Smith<br>12 High Street<br>London</div>"
    "<div>Invoice 4711<br>Date: 3 May 2026<br>Customer 99</div></div>",
    "frame": f"<p>{prose(60, 1)}</p><div style='border:1px solid #333'>{prose(50, 2)}</div><p>{prose(60, 3)}</p>",
    "table beside prose": f"<div class=row><div style='width:45%'>{prose(150, 3)}</div>"
    f"<div>{table([[prose(2, i), str(i)] for i in range(8)], 'b')}</div></div>",
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Text of each page, as it is and with its tables."""
    folder, texts = tmp_path_factory.mktemp("printed"), {}
    with launched() as browser:
        page = browser.new_page()
        for name, body in {**{name: made for name, (made, _) in TABLES.items()}, **OTHERS}.items():
            page.set_content(f"{STYLE}<p>Before it.</p>{body}<p>After it.</p>")
            page.pdf(path=folder / "a.pdf", format="A4")
            document = pypdfium2.PdfDocument((folder / "a.pdf").read_bytes())
            texts[name] = tuple(read_page(document, document[0], tables).text for tables in (False, True))
    return texts


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_row_by_row(printed, name):
    plain, read = printed[name]
    rows = ["\t".join(row) for row in TABLES[name][1]]
    assert "\n".join(rows) in read
    assert "\n".join(rows) not in plain
    assert read.startswith("Before it.")
    assert read.endswith("After it.")
    assert sorted(read.split()) == sorted(plain.split())


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_table_stays_as_it_is(printed, name):
    plain, read = printed[name]
    assert read == plain
