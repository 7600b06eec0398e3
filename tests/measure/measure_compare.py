"""How many known changes between two versions are found, and how many invented: ``measure_compare.py [--wrong]``.

Makes ten pairs of versions of a long contract (English, German, French) as Word, PDF (printed by Chromium where it is
installed, with running heads and page numbers), Markdown and hard-wrapped text, with known changes. Runs
``localctx compare`` on each, and prints the known changes, those found, and those that nobody made. --wrong prints what
was missed and invented.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import harness  # noqa: F401
from made_files import docx, pdf

Block = tuple[str, str]
"""The style of a paragraph (``Heading 1`` or "") and its text, whose clause number is written as {}."""

LINES = 44  # lines of a page that is made without Chromium


@dataclass(frozen=True)
class Known:
    """A change that was made: the group that it belongs to, and words of the clause or of the change."""

    group: str
    words: str


PARTIES = ("supplier", "customer", "carrier", "auditor", "agent", "surveyor")
THINGS = (
    "delivery notes",
    "spare parts",
    "test reports",
    "access cards",
    "cooling units",
    "drawings",
    "insurance papers",
)
VERBS = ("shall hand over", "must inspect", "may return", "shall insure", "must store", "shall replace")
PLACES = ("the warehouse in Hull", "the site office", "the main gate", "the branch in Leeds", "the control room")
TITLES = ("Delivery", "Acceptance", "Prices", "Liability", "Confidentiality", "Term", "Notices", "Storage", "Audits")

GERMAN = (
    "Der Auftragnehmer muss {thing} bis zum {day}. Juni 2026 an den Auftraggeber übergeben.",
    "Der Auftraggeber darf {thing} im Lager prüfen und innerhalb von {day} Tagen zurückgeben.",
    "Die Vergütung für {thing} beträgt {day}.500,00 Euro und ist nach Abnahme fällig.",
    "Der Auftragnehmer haftet nicht für {thing}, die der Auftraggeber selbst gelagert hat.",
)
GERMAN_THINGS = (
    "die Prüfberichte",
    "die Ersatzteile",
    "die Lieferscheine",
    "die Zeichnungen",
    "die Kühlgeräte",
    "die Karten",
)
FRENCH = (
    "Le fournisseur doit remettre {thing} au client avant le {day} juin 2026 à l'entrée principale.",
    "Le client peut vérifier {thing} dans l'entrepôt et les rendre dans un délai de {day} jours.",
    "Le prix pour {thing} est de {day} 500 euros, payable après la réception définitive.",
    "Le fournisseur n'est pas responsable pour {thing} que le client a gardés lui-même.",
)
FRENCH_THINGS = (
    "les rapports",
    "les pièces de rechange",
    "les bons de livraison",
    "les dessins",
    "les appareils",
    "les cartes",
)


def english(sections: int = 9) -> list[Block]:
    """Return a contract with numbered sections of clauses, always the same."""
    rng, blocks = random.Random(7), list[Block]()
    for section in range(sections):
        blocks.append(("Heading 1", f"{section + 1}. {TITLES[section % len(TITLES)]}"))
        for clause in range(5):
            party, other = rng.sample(PARTIES, 2)
            text = (
                f"The {party} {rng.choice(VERBS)} the {rng.choice(THINGS)} at {rng.choice(PLACES)} within "
                f"{rng.randrange(3, 90)} days. The {other} pays EUR {rng.randrange(2, 99)},{rng.randrange(100, 999)} "
                f"for well-kept records of item {100 + section}{clause}, as agreed between both parties in writing and "
                f"kept by the {party} for the whole term."
            )
            blocks.append(("", f"{section + 1}.{clause + 1} {text}"))
    return blocks


def in_language(patterns: Sequence[str], things: Sequence[str]) -> list[Block]:
    """Return a contract of these patterns, without numbers of clauses."""
    days = iter(range(2, 28))
    return [("", pattern.format(thing=thing, day=next(days))) for thing in things for pattern in patterns]


def renumbered(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with the numbers that a word processor would give them."""
    section, clause, made = 0, 0, list[Block]()
    for style, text in blocks:
        rest = text.partition(" ")[2]
        section, clause = (section + 1, 0) if style else (section, clause + 1)
        made.append((style, f"{section}. {rest}" if style else f"{section}.{clause} {rest}"))
    return made


def edited(blocks: Sequence[Block], *edits: tuple[int, str, str]) -> list[Block]:
    """Return the blocks with words replaced, each in one block."""
    made = list(blocks)
    for at, old, new in edits:
        style, text = made[at]
        assert text.count(old) == 1, (old, text)
        made[at] = style, text.replace(old, new)
    return made


def as_docx(blocks: Sequence[Block], title: str) -> bytes:
    """Return a Word file."""
    return docx(blocks)


def as_markdown(blocks: Sequence[Block], title: str) -> bytes:
    """Return Markdown with headings and emphasis."""
    return "\n\n".join(f"## {t}" if s else t.replace("well-kept", "**well-kept**") for s, t in blocks).encode()


def as_text(blocks: Sequence[Block], title: str) -> bytes:
    """Return text in lines of at most 68 characters, divided at hyphens too."""
    return "\n\n".join(textwrap.fill(text, 68) for _, text in blocks).encode()


def as_pdf(blocks: Sequence[Block], title: str) -> bytes:
    """Return a PDF, by Chromium if it is there."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        lines = [line for _, text in blocks for line in textwrap.wrap(text, 84)]
        return pdf(["\n".join(lines[i : i + LINES]) for i in range(0, len(lines), LINES)])
    body = "".join(f"<h2>{escape(t)}</h2>" if s else f"<p>{escape(t)}</p>" for s, t in blocks)
    look = "body{font:12pt/1.45 serif;text-align:justify;hyphens:auto}"
    with tempfile.TemporaryDirectory() as folder:
        page, made = Path(folder) / "page.html", Path(folder) / "made.pdf"
        page.write_text(f'<html lang="en"><meta charset="utf-8"><title>{title}</title><style>{look}</style>{body}')
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--print-to-pdf={made}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        return made.read_bytes()


WRITERS: dict[str, Callable[[Sequence[Block], str], bytes]] = {
    "docx": as_docx,
    "pdf": as_pdf,
    "md": as_markdown,
    "txt": as_text,
}


@dataclass(frozen=True)
class Pair:
    """Two versions in two formats, and the changes between them."""

    name: str
    formats: tuple[str, str]
    old: list[Block]
    new: list[Block]
    known: list[Known]


def value(text: str, before: str) -> str:
    """Return the word of a clause that comes after some words."""
    return text.partition(before)[2].split()[0]


def pairs() -> list[Pair]:
    """Return the ten pairs."""
    base = english()
    money = {at: value(base[at][1], "EUR ") for at in (2, 15, 28, 40)}
    numbers = edited(base, *((at, f"EUR {amount}", f"EUR {amount}0") for at, amount in money.items()))
    days = {at: value(base[at][1], "within ") for at in (8, 21)}
    numbers = edited(numbers, *((at, f"within {n} days", f"within {int(n) + 1} days") for at, n in days.items()))
    number_words = [*(f"{a} -> {a}0" for a in money.values()), *(f"{n} -> {int(n) + 1}" for n in days.values())]
    known_numbers = [Known("number", words) for words in number_words]
    moved = [b for i, b in enumerate(base) if i not in (7, 33)]
    moved = renumbered([*moved[:20], base[7], *moved[20:], base[33]])
    sections = renumbered([*base[:12], *base[18:24], *base[12:18], *base[24:]])
    inserted = (
        ("", "0 The customer shall name a deputy for each holiday season."),
        ("", "0 Smoking is forbidden on the roof."),
    )
    more = renumbered([*base[:9], inserted[0], *base[9:31], inserted[1], *base[31:]])
    less = renumbered([b for i, b in enumerate(base) if i not in (4, 22, 45)])
    german, french = in_language(GERMAN, GERMAN_THINGS), in_language(FRENCH, FRENCH_THINGS)
    mixed = renumbered(edited(numbers, (13, "as agreed between", "as agreed on 1 March 2027 between")))
    mixed = renumbered([b for i, b in enumerate([*mixed[:26], inserted[1], *mixed[26:]]) if i != 38])
    rest = lambda at: base[at][1].partition(" ")[2][:60]  # noqa: E731
    return [
        Pair("numbers", ("docx", "docx"), base, numbers, known_numbers),
        Pair("numbers, other format", ("docx", "pdf"), base, numbers, known_numbers),
        Pair("moved clauses", ("md", "docx"), base, moved, [Known("moved", rest(7)), Known("moved", rest(33))]),
        Pair("moved section", ("pdf", "pdf"), base, sections, [Known("moved", rest(13))]),
        Pair("inserted clauses", ("docx", "pdf"), base, more, [Known("inserted", b[1][2:]) for b in inserted]),
        Pair("deleted clauses", ("txt", "docx"), base, less, [Known("deleted", rest(at)) for at in (4, 22, 45)]),
        Pair("reformatted", ("docx", "pdf"), base, base, []),
        Pair(
            "German obligations",
            ("docx", "pdf"),
            german,
            edited(
                german,
                (4, "muss", "kann"),
                (9, "darf", "darf nicht"),
                (2, "4.500,00", "4.700,00"),
                (12, "Juni", "Juli"),
            ),
            [
                Known("obligation", "muss -> kann"),
                Known("obligation", "added: nicht"),
                Known("number", "4.500,00 -> 4.700,00"),
                Known("date", "Juli 2026"),
            ],
        ),
        Pair(
            "French obligations",
            ("md", "txt"),
            french,
            edited(french, (0, "doit", "peut"), (10, "8" if "8 500" in french[10][1] else "12", "19")),
            [Known("obligation", "doit -> peut"), Known("number", "19 500")],
        ),
        Pair(
            "everything",
            ("txt", "pdf"),
            base,
            mixed,
            [*known_numbers, Known("date", "1 March 2027"), Known("inserted", "Smoking"), Known("deleted", rest(37))],
        ),
    ]


def changes(pair: Pair, folder: Path) -> tuple[list[dict], float]:
    """Run the command on a pair; return its changes and its seconds."""
    files = list[Path]()
    for name, form, blocks in zip(("old", "new"), pair.formats, (pair.old, pair.new), strict=True):
        files.append(folder / f"{name}.{form}")
        files[-1].write_bytes(WRITERS[form](blocks, "Contract of services"))
    command, start = [sys.executable, "-m", "localctx", "compare", *map(str, files), "--json"], time.perf_counter()
    done = subprocess.run(command, capture_output=True, env={**os.environ, "LOCALCTX_HOME": str(folder / "home")})
    assert done.returncode in (0, 4), done.stderr.decode()
    return json.loads(done.stdout)["changes"], time.perf_counter() - start


def is_known(change: dict, known: Known) -> bool:
    """Return True if a change is the known one."""
    texts = [version["text"] for version in (change["old"], change["new"]) if version]
    arrows = [f"{w['old']} -> {w['new']}" if w["old"] and w["new"] else f"added: {w['new']}" for w in change["words"]]
    return known.group == (change["meaning"] or change["state"]) and any(known.words in t for t in [*texts, *arrows])


def main() -> None:
    """Make the pairs, compare each, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", action="store_true", help="print what was missed and invented")
    wrong = parser.parse_args().wrong
    print("| pair | formats | known | found | invented | seconds |\n|---|---|---|---|---|---|")
    totals = [0, 0, 0]
    for pair in pairs():
        with tempfile.TemporaryDirectory() as folder:
            made, seconds = changes(pair, Path(folder))
        missed, invented = list(pair.known), list[dict]()
        for change in made:
            found = next((known for known in missed if is_known(change, known)), None)
            missed.remove(found) if found else invented.append(change)
        counts = len(pair.known), len(pair.known) - len(missed), len(invented)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        print(f"| {pair.name} | {' to '.join(pair.formats)} | {' | '.join(map(str, counts))} | {seconds:.1f} |")
        for line in [*missed, *invented] if wrong else ():
            print(f"  {line}")
    print(f"| all | | {' | '.join(map(str, totals))} | |")


if __name__ == "__main__":
    main()
