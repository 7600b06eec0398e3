"""How much slower localctx is beside busy programs: ``python tests/measure/measure_busy.py [--rounds 3]``.

A text is read and a question about it is answered: alone, beside one and two programs that only compute, and beside a
second localctx that does the same. The cases take turns. Prints the median tokens per second of reading and the median
milliseconds per decoded token, each with its spread, and how many times slower that is than alone. Settings come from
the environment.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import harness  # noqa: F401

from localctx.session import Session
from localctx.settings import load_settings

TEXT = "The harbour of Port Marigold is kept by a clockmaker. The tide turns at noon, and the boats go out. " * 120
QUESTION = "Repeat the first sentence of the text in the same words, for the {}. time."
BUSY = [sys.executable, "-c", "while True: pass"]
SETTLE = 2.0  # seconds until a busy neighbour is noticed


def main() -> None:
    """Take the rounds, and print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--forever", action="store_true", help="be the second localctx: ask until killed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, session() as own:
        file = Path(folder) / "harbour.txt"
        file.write_text(TEXT, encoding="utf-8")
        ask(own, file, 0)
        while given.forever:
            ask(own, file, 0)
        other = [sys.executable, str(Path(__file__)), "--forever"]
        cases = {"alone": [], "one busy program": [BUSY], "two": [BUSY] * 2, "another localctx": [other]}
        figures = defaultdict[str, list[tuple[float, float]]](list)
        for n in range(given.rounds):
            for case, neighbours in cases.items():
                with beside(neighbours):
                    figures[case].append(ask(own, file, n))
    alone = [median(column) for column in zip(*figures["alone"], strict=True)]
    print("| beside | reading, tokens a second | times slower | decoding, ms a token | times slower |")
    print("|---|---|---|---|---|")
    for case, rows in figures.items():
        read, decode = zip(*rows, strict=True)
        slower = f"{alone[0] / median(read):.2f} | {told(decode)} | {median(decode) / alone[1]:.2f}"
        print(f"| {case} | {told(read)} | {slower} |")


def session() -> Session:
    """A session that reads the whole text and answers in its own words."""
    return Session(load_settings(mode="full", max_tokens=64, embedder="none", careful="off", answers="free"))


@contextmanager
def beside(neighbours: list[list[str]]) -> Iterator[None]:
    """Run these commands meanwhile."""
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in neighbours]
    time.sleep(SETTLE if neighbours in ([], [BUSY], [BUSY] * 2) else 8 * SETTLE)  # a model must be loaded
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def ask(own: Session, file: Path, n: int) -> tuple[float, float]:
    """Returns the tokens read a second, and the milliseconds per decoded token."""
    report = list(own.stream(QUESTION.format(n), [str(file)], persist=False))[-1].report.to_json()
    tokens, seconds = report["tokens"], report["seconds"]
    return tokens["prefilled"] / seconds["prefill"], 1000 * seconds["decode"] / max(1, tokens["generated"])


def told(values: tuple[float, ...]) -> str:
    """Returns the median and the spread."""
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
