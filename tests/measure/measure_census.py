"""A census over many letters: ``python tests/measure/measure_census.py [--documents 300] [--facts 20] [--kills 10]``.

Letters of one to three paragraphs are written to a folder; some of them ask for a refund of an amount of their own,
in words that differ. The real command takes the census, is killed with SIGKILL at random times, and goes on; in another
data folder it is not killed. Prints how many letters were found and how many others were named, whether both results
are the same, whether the certificate adds up, and the seconds. Settings come from the environment.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness  # noqa: F401

from localctx.settings import load_settings

QUESTION = "Which amount does the writer want to have refunded?"
ASKS = (
    "I ask you to refund the {amount} pounds that I paid in advance.",
    "Please pay the sum of {amount} pounds back to me, as the goods never arrived.",
    "As the order was cancelled, I would like to have my {amount} pounds refunded.",
    "I therefore request a refund of {amount} pounds within two weeks.",
)
OTHERS = (
    "Thank you for your catalogue, which arrived on Monday. The garden chairs on page {n} look very well made.",
    "Our delivery address has changed: from the first of May we are at {n} Mill Lane, above the bakery.",
    "The invoice over {n} pounds was paid by bank transfer last week, and I enclose the receipt.",
    "We plan to open the new shop in spring and will need about {n} shelves of the larger kind.",
    "Could you tell me whether the blue paint is sold in tins of {n} litres, and how long it takes to dry?",
    "The fitter came at noon, mended the pump and left the key with the neighbour in house number {n}.",
)


def main() -> None:
    """Write the letters, take the census with and without kills, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=300)
    parser.add_argument("--facts", type=int, default=20, help="letters that ask for a refund (20)")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        planted = write_letters(here / "letters", given.documents, given.facts, chance)
        for name in ("killed", "whole"):
            (here / name).mkdir()
            (here / name / "models").symlink_to(load_settings().models.resolve())
        before = sum(kill(here, "killed", chance.uniform(6, 25)) for _ in range(given.kills))
        killed = take(here, "killed")
        print(
            f"killed {given.kills} times after {before:.0f} s in all, then {killed['wall']:.0f} s:",
            told(killed, planted),
        )
        whole = take(here, "whole")
        print(f"not killed, {whole['wall']:.0f} s:", told(whole, planted))
        again = take(here, "whole")
        print(f"asked again: {again['wall']:.1f} s")
        print("same result:", all(killed[key] == whole[key] for key in ("answer", "certificate")))


def write_letters(folder: Path, documents: int, facts: int, chance: random.Random) -> dict[str, str]:
    """Write the letters; returns the amounts to be refunded by the names of the files."""
    folder.mkdir()
    planted = dict[str, str]()
    asking = set(chance.sample(range(documents), facts))
    for i in range(documents):
        parts = [text.format(n=chance.randint(2, 90)) for text in chance.sample(OTHERS, chance.randint(1, 3))]
        if i in asking:
            planted[f"letter{i:03}.txt"] = amount = str(100 + 7 * len(planted))
            parts.insert(chance.randint(0, len(parts)), ASKS[i % len(ASKS)].format(amount=amount))
        text = "\n\n".join([f"Letter {i}", "Dear Sir or Madam,", *parts, "Yours faithfully"])
        (folder / f"letter{i:03}.txt").write_text(text, encoding="utf-8")
    return planted


def command(here: Path, home: str) -> tuple[list[str], dict[str, str]]:
    """Returns the command that takes the census in the data folder ``home``, and its environment."""
    arguments = [sys.executable, "-m", "localctx", "census", str(here / "letters"), QUESTION, "--json"]
    return arguments, {**os.environ, "LOCALCTX_HOME": str(here / home)}


def take(here: Path, home: str) -> dict[str, Any]:
    """Take the census; returns what the command printed, with ``wall``, its seconds."""
    arguments, environment = command(here, home)
    began = time.monotonic()
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"exit {done.returncode}: {done.stderr}")
    return {**json.loads(done.stdout), "wall": time.monotonic() - began}


def kill(here: Path, home: str, seconds: float) -> float:
    """Start the census and kill it after ``seconds``; returns the seconds that it had."""
    arguments, environment = command(here, home)
    process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began = time.monotonic()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return time.monotonic() - began


def told(report: dict[str, Any], planted: dict[str, str]) -> str:
    """Returns the figures of one census in a line."""
    groups, citations, c = report["everywhere"]["groups"], report["citations"], report["certificate"]
    sure = [(citations[i]["name"], group["answer"]) for group in groups for i in group["citations"]]
    found = sum(amount in dict(sure).get(name, "") for name, amount in planted.items())
    others = [name for name, _ in sure if name not in planted]
    unsure = [one["name"] for one in _unsure(citations, groups)]
    adds_up = c["asked"] == c["passages"] == c["answered"] + c["unsure"] + c["silent"]
    counts = (
        f"{c['passages']} passages, {c['answered']} answered, {c['unsure']} unsure, {c['silent']} without an answer"
    )
    for name, amount in planted.items():
        if amount not in dict(sure).get(name, ""):
            print(f"{name}: {amount} expected, got {dict(sure).get(name)}, unsure: {name in unsure}")
    return (
        f"found {found} of {len(planted)}, {sum(name in planted for name in unsure)} more unsure; "
        f"named though they ask for nothing: {len(others)}, {len(unsure) - sum(n in planted for n in unsure)} unsure; "
        f"{counts}; adds up: {adds_up}; {report['everywhere']['reused_answers']} from before"
    )


def _unsure(citations: Sequence[dict[str, Any]], groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    sure = {i for group in groups for i in group["citations"]}
    return [one for i, one in enumerate(citations) if i not in sure]


if __name__ == "__main__":
    main()
