"""Answers beside near misses: ``python tests/measure/measure_near_misses.py [--sheets 12] [--adapter FOLDER]``.

Makes documents with several facts of one kind about topics that no reader was trained on (packaging/near_misses.toml),
and asks some of their questions through the Python API. Prints how many are answered rightly and how many refused, how
many of those without an answer are told so, the median seconds of a question, and each wrong answer.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import harness  # noqa: F401
from own_answers import says_nothing, tokens
from repository import ROOT

import localctx
from localctx.session import Session
from localctx.settings import load_settings

sys.path.insert(0, str(ROOT / "packaging"))
from near_misses import Sheet, load_topics, make_sheet

ASKED = 6  # questions of a document that it answers
NOT_ANSWERED = 2  # and that it does not


def main() -> None:
    """Ask, then print the figures and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sheets", type=int, default=12, help="documents (12)")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other documents")
    parser.add_argument("--adapter", help="auto, none or a folder")
    given = parser.parse_args()
    chance, topics = random.Random(given.seed), load_topics(held_out=True)
    counts, seconds, wrong = (
        dict.fromkeys(("right", "refused", "told", "asked", "without"), 0),
        list[float](),
        list[str](),
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "models").symlink_to(load_settings().models)
        with localctx.open(home=folder, adapter=given.adapter) as docs:
            for number in range(given.sheets):
                sheet = make_sheet(topics[number % len(topics)], chance)
                for question, right, answer, took in ask(docs, sheet, Path(folder) / f"{number}.md", chance):
                    verdict = judge(right, answer)
                    counts["without" if right is None else "asked"] += 1
                    seconds.append(took)
                    if verdict in counts:
                        counts[verdict] += 1
                    if verdict not in ("right", "told"):
                        wrong.append(f"{verdict}: {question} | {' '.join(answer.split())} | {right or 'not said'}")
    print(f"right {counts['right']} of {counts['asked']}, refused {counts['refused']}, ", end="")
    print(f"told {counts['told']} of {counts['without']}, {median(seconds):.2f} s a question", *wrong, sep="\n")


def ask(docs: Session, sheet: Sheet, file: Path, chance: random.Random) -> Iterator[tuple[str, str | None, str, float]]:
    """Yield some questions about a document, the right answers (None: it has none), those given, and their seconds."""
    file.write_text(sheet.text, encoding="utf-8")
    asked: list[tuple[str, str | None]] = list(chance.sample(sheet.answered, min(ASKED, len(sheet.answered))))
    others = chance.sample(sheet.unanswered, min(NOT_ANSWERED, len(sheet.unanswered)))
    for question, right in [*asked, *((question, None) for question, _ in others)]:
        start = time.perf_counter()
        answer = docs.ask(question, [str(file)])
        yield question, right, "" if answer.stopped == "unanswered" else answer.text, time.perf_counter() - start


def judge(right: str | None, answer: str) -> str:
    """Return ``right``, ``refused``, ``told``, ``wrong`` or ``not told``. An answer without text refuses."""
    if not answer or says_nothing(answer):
        return "told" if right is None else "refused"
    if right is None:
        return "not told"
    said, wanted = tokens(answer), tokens(right)
    if wanted[0] in ("yes", "no"):
        return "right" if said[0] == wanted[0] else "wrong"
    long, short = sorted((f" {' '.join(said)} ", f" {' '.join(wanted)} "), key=len, reverse=True)
    return "right" if short in long else "wrong"


if __name__ == "__main__":
    main()
