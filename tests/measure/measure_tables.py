"""How many of thirty questions over three tables are answered right: ``python measure_tables.py [--model NAME]``.

Two questions each of count, sum, maximum, filter and group for each table. The right answers are computed here, in
Python. An answer is right if it has all of the expected values and cites rows. Prints each answer and its query.
"""

import argparse
import csv
import io
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from localctx.engine.events import Done
from localctx.session import Session
from localctx.settings import load_settings

Row = dict[str, Any]
Question = tuple[str, Callable[[Sequence[Row]], list[Any]]]

SALES = [
    {
        "order": 5001 + i,
        "region": ("North", "South", "East", "West")[i * 7 % 4],
        "product": ("rope", "tar", "sailcloth", "anchor", "lamp")[i * 3 % 5],
        "units": 3 + i * 17 % 41,
        "unit_price": round(2.5 + i * 29 % 97 / 4, 2),
        "sold_on": f"2025-{1 + i * 5 % 12:02}-{1 + i * 11 % 28:02}",
    }
    for i in range(60)
]
STAFF = [
    {
        "Name": f"{first} {last}",
        "Abteilung": ("Lager", "Verkauf", "Büro")[(i * 5 + j) % 3],
        "Gehalt": 2100 + (i * 613 + j * 271) % 2300,
        "Urlaubstage": 24 + (i * 3 + j) % 9,
    }
    for i, first in enumerate(("Ada", "Bruno", "Clara", "Dirk", "Edda"))
    for j, last in enumerate(("Holm", "Kranz", "Lund", "Marx"))
]
SHIPS = [
    {
        "Ship": f"{name} {number}",
        "Flag": ("Norway", "Malta", "Panama")[(i + number) % 3],
        "Built": 1980 + (i * 13 + number * 7) % 40,
        "Length (m)": 40 + (i * 37 + number * 23) % 160,
        "Crew": 6 + (i * 5 + number * 3) % 19,
    }
    for i, name in enumerate(("Vega", "Orion", "Lyra", "Rigel", "Altair", "Deneb"))
    for number in (1, 2, 3, 4)
]


def total(rows: Sequence[Row], name: str, **where: Any) -> Any:
    """The sum of a column in the rows with these values."""
    return round(sum(row[name] for row in rows if all(row[k] == v for k, v in where.items())), 6)


def count(rows: Sequence[Row], test: Callable[[Row], bool]) -> int:
    """The number of rows that pass a test."""
    return sum(map(test, rows))


def best(rows: Sequence[Row], group: str, value: Callable[[Sequence[Row]], float]) -> Any:
    """The group with the highest value."""
    return max({row[group] for row in rows}, key=lambda g: value([row for row in rows if row[group] == g]))


def by_group(rows: Sequence[Row], group: str, name: str) -> list[Any]:
    """Every group and its sum of a column."""
    return [part for g in sorted({row[group] for row in rows}) for part in (g, total(rows, name, **{group: g}))]


TABLES: dict[str, tuple[list[Row], str, list[Question]]] = {
    "sales.csv": (
        SALES,
        ",",
        [
            ("How many orders came from the North?", lambda r: [count(r, lambda x: x["region"] == "North")]),
            ("How many orders had more than 30 units?", lambda r: [count(r, lambda x: x["units"] > 30)]),
            ("How many units of rope were sold in total?", lambda r: [total(r, "units", product="rope")]),
            ("What is the total number of units sold?", lambda r: [total(r, "units")]),
            ("What was the highest unit price?", lambda r: [max(x["unit_price"] for x in r)]),
            (
                "Which product had the lowest unit price?",
                lambda r: [min(r, key=lambda x: x["unit_price"])["product"], min(x["unit_price"] for x in r)],
            ),
            (
                "Which orders had a unit price above 25?",
                lambda r: [x["order"] for x in r if x["unit_price"] > 25][:3],
            ),
            (
                "How many lamp orders were sold in March 2025?",
                lambda r: [count(r, lambda x: x["product"] == "lamp" and x["sold_on"].startswith("2025-03"))],
            ),
            ("How many units were sold per region?", lambda r: by_group(r, "region", "units")),
            (
                "Which product sold the most units in total?",
                lambda r: [best(r, "product", lambda g: total(g, "units"))],
            ),
        ],
    ),
    "staff.csv": (
        STAFF,
        ";",
        [
            ("Wie viele Personen arbeiten im Lager?", lambda r: [count(r, lambda x: x["Abteilung"] == "Lager")]),
            ("Wie viele verdienen ein Gehalt über 3000?", lambda r: [count(r, lambda x: x["Gehalt"] > 3000)]),
            ("Wie hoch ist die Summe der Gehälter im Büro?", lambda r: [total(r, "Gehalt", Abteilung="Büro")]),
            ("Wie viele Urlaubstage haben alle zusammen?", lambda r: [total(r, "Urlaubstage")]),
            ("Wer hat das höchste Gehalt?", lambda r: [max(r, key=lambda x: x["Gehalt"])["Name"]]),
            (
                "Was ist das niedrigste Gehalt im Verkauf?",
                lambda r: [min(x["Gehalt"] for x in r if x["Abteilung"] == "Verkauf")],
            ),
            ("Wer verdient mehr als 4000?", lambda r: [x["Name"] for x in r if x["Gehalt"] > 4000]),
            (
                "Who in the Büro has at least 30 Urlaubstage?",
                lambda r: [x["Name"] for x in r if x["Abteilung"] == "Büro" and x["Urlaubstage"] >= 30],
            ),
            (
                "What is the average Gehalt per Abteilung?",
                lambda r: [
                    round(total(r, "Gehalt", Abteilung=a) / count(r, lambda x, a=a: x["Abteilung"] == a), 4)
                    for a in ("Lager", "Verkauf", "Büro")
                ],
            ),
            (
                "Wie viele Personen sind in jeder Abteilung?",
                lambda r: [count(r, lambda x, a=a: x["Abteilung"] == a) for a in ("Lager", "Verkauf", "Büro")],
            ),
        ],
    ),
    "ships.tsv": (
        SHIPS,
        "\t",
        [
            ("How many ships sail under the flag of Malta?", lambda r: [count(r, lambda x: x["Flag"] == "Malta")]),
            ("How many ships are longer than 150 m?", lambda r: [count(r, lambda x: x["Length (m)"] > 150)]),
            ("What is the total crew of all ships from Norway?", lambda r: [total(r, "Crew", Flag="Norway")]),
            ("How much crew is there altogether?", lambda r: [total(r, "Crew")]),
            ("Which ship is the longest?", lambda r: [max(r, key=lambda x: x["Length (m)"])["Ship"]]),
            (
                "What is the largest crew of a Panama ship?",
                lambda r: [max(x["Crew"] for x in r if x["Flag"] == "Panama")],
            ),
            ("Which ships were built before 1985?", lambda r: [x["Ship"] for x in r if x["Built"] < 1985]),
            ("Which ships have a crew of at most 7?", lambda r: [x["Ship"] for x in r if x["Crew"] <= 7]),
            (
                "What is the average length by flag?",
                lambda r: [
                    round(total(r, "Length (m)", Flag=f) / count(r, lambda x, f=f: x["Flag"] == f), 4)
                    for f in ("Norway", "Malta", "Panama")
                ],
            ),
            (
                "Which flag has the most ships with a crew over 15?",
                lambda r: [best([x for x in r if x["Crew"] > 15], "Flag", len)],
            ),
        ],
    ),
}


def main() -> None:
    """Ask every question of every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a model's name (default: that of the settings)")
    given = parser.parse_args()
    model = {"model": given.model} if given.model else {}
    right = dict.fromkeys(TABLES, 0)
    with tempfile.TemporaryDirectory() as folder, Session(load_settings(**model)) as session:
        for name, (rows, separator, questions) in TABLES.items():
            (Path(folder) / name).write_text(written(rows, separator))
            for question, expected in questions:
                report = ask(session, Path(folder) / name, question)
                found = is_right(report, expected(rows))
                right[name] += found
                print(f"{'right' if found else 'WRONG'} {name}: {question}\n  {report['answer']!r}")
                print(f"  {report.get('query')}", flush=True)
                if not found:
                    print(f"  expected {expected(rows)}")
    print("; ".join(f"{name}: {count} of 10" for name, count in right.items()))


def written(rows: Sequence[Row], separator: str) -> str:
    """The rows as a file with a header."""
    writer = csv.DictWriter(text := io.StringIO(), list(rows[0]), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def ask(session: Session, file: Path, question: str) -> dict[str, Any]:
    """Return the report of one answer."""
    *_, done = session.stream(question, [str(file)], persist=False)
    assert isinstance(done, Done)
    return done.report.to_json()


def is_right(report: dict[str, Any], expected: Sequence[Any]) -> bool:
    """Return True if the answer has every expected value, beside the number of rows it is from, and cites rows."""
    told = re.sub(r"\((all )?[\d,]+ (of [\d,]+ )?rows?[^)]*\)|^.*rows?\)?:\n", "", report["answer"])
    told = re.sub(r" of [\d,]+ rows", "", told)
    numbers = [float(n.replace(",", "")) for n in re.findall(r"-?\d[\d,]*(?:\.\d+)?", told)]
    known = (v in told if isinstance(v, str) else any(abs(n - v) < 1e-3 for n in numbers) for v in expected)
    return all(known) and any((c["page"] or "").startswith("row ") for c in report["citations"])


if __name__ == "__main__":
    main()
