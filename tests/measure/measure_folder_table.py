"""How many cells of a table over a folder are right: ``python tests/measure/measure_folder_table.py [--documents N]``.

Makes invoices, letters and contracts as PDF, DOCX, e-mail and, where OCR is installed, scanned pages, with six fields
each. About one field in seven is missing in a document. Runs ``localctx table``, and counts the right cells where the
words are there, the empty ones where they are not, and the quotations that hold their value. Then it asks one more
column. Prints the wrong cells with --wrong.
"""

import argparse
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

import harness  # noqa: F401
from made_files import docx, pdf

from localctx.library.wording.values import read_values
from localctx.settings import load_settings

QUESTIONS = {
    "supplier": "supplier: Who is the supplier?",
    "number": "number: What is the reference number?",
    "date": "date (date): On which date was it written?",
    "total": "total (money): What is the total amount?",
    "due": "due (date): When must it be paid?",
    "contact": "contact: Who is the contact person?",
}
MORE = "goods: What was ordered?"
SUPPLIERS = (
    "Northgate Supplies Ltd",
    "Brandt Elektro GmbH",
    "Aldous Cleaning Ltd",
    "Moreau et Fils",
    "Vester Marine AS",
)
PEOPLE = ("Petra Brandt", "Lucy Hart", "Owen Fairley", "Ines Duarte", "Karl Nystrom", "Mei Tanaka")
GOODS = ("twelve desk chairs", "eleven ceiling fans", "forty life jackets", "two printing presses", "ninety oak boards")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October")
CURRENCIES = (("EUR", "EUR {}"), ("GBP", "£{}"), ("USD", "${}"), ("EUR", "{} euros"))
MISSING = 0.15  # of the fields


@dataclass(frozen=True)
class MadeDocument:
    """A document: its file's name and content, and the expected values by field; None where it does not say."""

    name: str
    content: bytes
    expected: dict[str, str | None]


def made(number: int, with_ocr: bool) -> MadeDocument:
    """Return the document of this number: always the same."""
    rng = random.Random(number)
    fields = _fields(rng)
    kept = {name: None if rng.random() < MISSING else value for name, value in fields.items()}
    text = (_invoice, _letter, _contract)[number % 3](kept, rng)
    formats: list[tuple[str, Callable[[str], bytes]]] = [("pdf", _pdf), ("docx", _docx), ("eml", _mail)]
    suffix, write = [*formats, ("scan.pdf", _scan)][: 4 if with_ocr else 3][number // 3 % (4 if with_ocr else 3)]
    return MadeDocument(f"{number:03}.{suffix}", write(text), {k: v and v[1] for k, v in kept.items()})


def _fields(rng: random.Random) -> dict[str, tuple[str, str]]:
    """Return each field as printed, and as the table is to show it."""
    year, month = 2026, rng.randrange(8)
    first, last = rng.randrange(1, 28), rng.randrange(1, 28)
    amount, (unit, form) = rng.randrange(10_000, 999_999) / 100, rng.choice(CURRENCIES)
    supplier, person, number = (
        rng.choice(SUPPLIERS),
        rng.choice(PEOPLE),
        f"{rng.choice('ABKR')}{rng.choice('GNX')}-{rng.randrange(10_000, 99_999)}",
    )
    return {
        "supplier": (supplier, supplier),
        "number": (number, number),
        "date": (f"{first} {MONTHS[month]} {year}", f"{year}-{month + 1:02}-{first:02}"),
        "total": (form.format(f"{amount:,.2f}"), f"{amount:.2f} {unit}"),
        "due": (f"{last} {MONTHS[month + 2]} {year}", f"{year}-{month + 3:02}-{last:02}"),
        "contact": (person, person),
    }


Kept = dict[str, tuple[str, str] | None]


def _line(kept: Kept, name: str, form: str, otherwise: str = "") -> str:
    value = kept[name]
    return form.format(value[0]) if value else otherwise


def _invoice(kept: Kept, rng: random.Random) -> str:
    lines = (
        "INVOICE",
        _line(kept, "supplier", "{}, 14 Mill Lane"),
        _line(kept, "number", "Reference: {}"),
        _line(kept, "date", "Date: {}"),
        "Bill to: Harbour View Dental Practice, 2 Quay Street",
        f"For {rng.choice(GOODS)}, delivered to the back entrance.",
        _line(kept, "total", "Total amount: {}"),
        _line(kept, "due", "Please pay by {}."),
        _line(kept, "contact", "Your contact: {}"),
        "Goods stay ours until they are paid.",
    )
    return "\n".join(filter(None, lines))


def _letter(kept: Kept, rng: random.Random) -> str:
    lines = (
        _line(kept, "date", "Written on {}"),
        "To the Harbour View Dental Practice.",
        _line(kept, "number", "About your order, reference {}."),
        "Thank you for your trust. "
        + _line(kept, "supplier", "We, {}, have sent ", "We have sent ")
        + f"{rng.choice(GOODS)}.",
        _line(kept, "total", "The total amount is {}. ") + _line(kept, "due", "It has to be paid by {}."),
        "The boxes can be returned to any of our drivers.",
        _line(kept, "contact", "If anything is wrong, please ask for {}, our contact person."),
        "With kind regards",
    )
    return "\n".join(filter(None, lines))


def _contract(kept: Kept, rng: random.Random) -> str:
    lines = (
        "CONTRACT OF SALE",
        _line(kept, "number", "Reference number {}"),
        _line(kept, "supplier", "The supplier is {}. ") + "The buyer is the Harbour View Dental Practice.",
        f"1. The supplier sells {rng.choice(GOODS)} to the buyer.",
        _line(kept, "total", "2. The total amount is {}, taxes included."),
        _line(kept, "due", "3. Payment is due on {}."),
        "4. The buyer checks the goods within a week.",
        _line(kept, "contact", "5. The contact person for all questions is {}."),
        _line(kept, "date", "This contract was written on {}."),
    )
    return "\n".join(filter(None, lines))


def _pdf(text: str) -> bytes:
    return pdf([text.replace("£", "GBP ")])


def _docx(text: str) -> bytes:
    return docx([("", line) for line in text.split("\n")])


def _mail(text: str) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "office@example.org", "practice@example.org", "Papers"
    mail.set_content(text)
    return mail.as_bytes()


def _scan(text: str) -> bytes:
    from PIL import Image, ImageDraw, ImageFont

    page = Image.new("L", (1240, 1000), 255)
    ImageDraw.Draw(page).multiline_text((90, 90), text.replace("£", "GBP "), 0, ImageFont.load_default(26), spacing=14)
    content = io.BytesIO()
    page.save(content, "PDF", resolution=150)
    return content.getvalue()


def main() -> None:
    """Make the documents, run the command, and print the table of results."""
    given = arguments()
    from importlib.util import find_spec

    documents = [made(number, bool(find_spec("rapidocr"))) for number in range(given.documents)]
    with tempfile.TemporaryDirectory() as folder:
        home, papers = Path(folder) / "home", Path(folder) / "papers"
        home.mkdir(), papers.mkdir()
        (home / "models").symlink_to(load_settings().models)
        for document in documents:
            (papers / document.name).write_bytes(document.content)
        asked = [part for question in QUESTIONS.values() for part in ("--ask", question)]
        rows, seconds = table(home, papers, asked)
        _, again = table(home, papers, asked)
        _, more = table(home, papers, [*asked, "--ask", MORE])
    report(documents, rows, given.wrong)
    each = len(documents)
    print(
        f"{seconds / each:.1f} s a document for {len(QUESTIONS)} columns, {more / each:.1f} s for one more column, ",
        end="",
    )
    print(f"{again / each:.2f} s when nothing is new")


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=120)
    parser.add_argument("--wrong", action="store_true", help="print the wrong cells")
    return parser.parse_args()


def table(home: Path, papers: Path, asked: Sequence[str]) -> tuple[dict[str, dict[str, dict]], float]:
    """Run the command; return its cells by file and column, and its seconds."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "localctx", "table", str(papers), *asked, "--json", "-q"]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "LOCALCTX_HOME": str(home)})
    rows = {row["name"]: row["cells"] for row in json.loads(done.stdout)["rows"]}
    return rows, time.perf_counter() - start


def report(documents: Sequence[MadeDocument], rows: dict[str, dict[str, dict]], wrong: bool) -> None:
    """Print the shares of right, empty and quoted cells, for each format and in all."""
    counts: dict[str, Counter[str]] = {}
    for document in documents:
        for name, expected in document.expected.items():
            cell = rows[document.name][name]
            verdict = judge(cell, name, expected)
            for part in (document.name.partition(".")[2], name, "all"):
                counts.setdefault(part, Counter()).update(verdict)
            if wrong and "bad" in verdict:
                got = f"{cell['state']} {cell['shown'] or cell['printed']}"
                print(f"{document.name} {name}: expected {expected}, got {got}")
    print("| | right, where it is there | empty, where it is not | filled, with the value in the quotation |")
    print("|---|---|---|---|")
    for part, count in counts.items():
        shares = [
            (count["right"], count["there"]),
            (count["empty"], count["absent"]),
            (count["quoted"], count["filled"]),
        ]
        print(f"| {part} | {' | '.join(f'{a} of {b} ({a / max(1, b):.3f})' for a, b in shares)} |")


def judge(cell: dict, name: str, expected: str | None) -> list[str]:
    """Return what is counted of a cell."""
    filled, verdict = bool(cell["shown"]), ["there" if expected else "absent"]
    good = (
        cell["shown"] == (expected or "")
        if name in ("date", "due", "total") or not expected
        else expected in cell["shown"]
    )
    verdict += ["right" if expected else "empty"] if good else ["bad"]
    if filled:
        kind = {"total": "money", "date": "date", "due": "date"}.get(name, "")
        values = [v.shown for v in read_values(kind, cell["quote"], "en")] if kind else []
        holds = (
            cell["value"] in [v.value for v in read_values(kind, cell["quote"], "en")]
            if kind
            else cell["printed"] in cell["quote"]
        )
        verdict += ["filled", *(["quoted"] if holds or cell["shown"] in values else [])]
    return verdict


if __name__ == "__main__":
    main()
