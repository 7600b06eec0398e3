"""Texts for batches, and what a batch reported of them."""

import json
import subprocess
from pathlib import Path

from ask_in_process import PLAIN

COLOURS = ("red", "green", "blue", "black", "white")


SMALL = {**PLAIN, "chunk": 512}


def write_texts(folder: Path) -> Path:
    folder.mkdir()
    for colour in COLOURS:
        (folder / f"{colour}.txt").write_text(f"The {colour} house stands on a hill. Its door is {colour}.\n")
    return folder


def long_text(headings: int = 5, paragraphs: int = 12) -> str:
    """About 1,150 characters, and tokens of the tiny model, under each heading."""
    line = "Paragraph {p} of part {h} says that the bridge number {h}{p} was built of stone and wood in a week."
    parts = [
        f"# Part {h}\n\n" + "".join(line.format(h=h, p=p) + "\n\n" for p in range(paragraphs)) for h in range(headings)
    ]
    return "".join(parts)


def report_of(done: subprocess.CompletedProcess) -> dict:
    return json.loads(done.stdout)["report"]


def counts(done: subprocess.CompletedProcess) -> tuple[int, int, int]:
    """How many are done, skipped and failed."""
    report = report_of(done)
    return report["done"], report["skipped"], len(report["failed"])


def summaries(out: Path) -> dict[str, str]:
    """The summaries of a folder by the name of their document. Each is there once."""
    by_name = {path.name.rpartition("-")[0]: path.read_text() for path in out.glob("*.md")}
    assert len(by_name) == len(list(out.glob("*.md")))
    return by_name
