"""Facts scattered in a novel, and a question put to every passage: ``python measure_everywhere.py [novel.txt]``.

Sentences ("The password of the third gate is heron.") are planted at seeded places. The real command is asked to list
them with ``--mode everywhere``: killed with SIGKILL in the middle of the first reading, started again, asked once more,
and asked another question from kept pages; then the best five passages are asked. Prints how many facts were found and
what else was answered, and the seconds of each. ``--passages N`` cuts the novel down to about N passages.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from localctx.library.search.chunk import chunks
from localctx.settings import load_settings

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "news-from-nowhere.txt"
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth"
)
_PASSWORDS = (
    "heron copper lantern walnut saffron glacier thimble otter marble juniper anvil cobalt falcon ginger harpoon "
    "indigo jasmine kettle lobster magnet"
)
NUMBERS, WORDS = _ORDINALS.split(), _PASSWORDS.split()
QUESTION, OTHER = "List all gates' passwords.", "What is the password of the gate?"


def main() -> None:
    """Plant the facts, run the commands, print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("novel", nargs="?", type=Path, default=DATA)
    parser.add_argument("--passages", type=int, default=0, help="of the novel, about (all)")
    parser.add_argument("--facts", type=int, default=len(WORDS), help=f"planted, at most {len(WORDS)} ({len(WORDS)})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", type=float, default=0, metavar="S", help="seconds before the kill (none)")
    parser.add_argument("--show", action="store_true", help="print the answers")
    given, flags = parser.parse_known_args()
    if not given.novel.exists():
        sys.exit(f"{given.novel} is absent: nothing to measure")
    text = cut(given.novel.read_text(encoding="utf-8", errors="replace"), given.passages)
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "home").mkdir()
        (here / "home" / "models").symlink_to(load_settings().models)
        planted = plant(text, given.facts, given.seed)
        (here / "novel.txt").write_text(planted, encoding="utf-8")
        print(f"{len(list(chunks(planted)))} passages, {len(planted):,} characters, {given.facts} facts", flush=True)
        measure(here, given, flags)


def measure(here: Path, given: argparse.Namespace, flags: list[str]) -> None:
    """Run the command again and again; print what came of it."""
    everywhere = ("--mode", "everywhere", *flags)
    if given.kill:
        seconds = killed(here, QUESTION, everywhere, given.kill)
        print(f"killed after {seconds:.1f} s", flush=True)
    show("first reading", ask(here, QUESTION, everywhere), given)
    show("asked again", ask(here, QUESTION, everywhere), given)
    show("another question, from kept pages", ask(here, OTHER, everywhere), given)
    show("the best five passages", ask(here, QUESTION, ("--mode", "retrieve", "--passages", "5", *flags)), given)


def cut(text: str, passages: int) -> str:
    """Return the middle of a text with about so many passages."""
    ranges = list(chunks(text))
    first = max(0, (len(ranges) - passages) // 2) if passages else 0
    last = first + passages if passages else len(ranges)
    return text[ranges[first].start : ranges[min(last, len(ranges)) - 1].end]


def plant(text: str, facts: int, seed: int) -> str:
    """Return the text with a sentence for each fact, at ends of sentences within different passages."""
    rng = random.Random(seed)
    at = list[int]()
    for start, end in rng.sample([c for c in chunks(text) if c.end - c.start > 300], facts):
        ends = [m.end() for m in re.finditer(r"[.!?] ?\s", text[start:end])] or [end - start]
        at.append(start + rng.choice(ends))
    for i, position in sorted(enumerate(at), key=lambda one: -one[1]):
        text = f"{text[:position].rstrip()} The password of the {NUMBERS[i]} gate is {WORDS[i]}. {text[position:]}"
    return text


def command(question: str, flags: tuple[str, ...]) -> list[str]:
    """Return the command that asks."""
    return [sys.executable, "-m", "localctx", "ask", "novel.txt", question, "--json", *flags]


def ask(here: Path, question: str, flags: tuple[str, ...]) -> dict[str, Any]:
    """Return the report of an answer, with ``wall``, the seconds that the command took."""
    began = time.monotonic()
    environment = {**os.environ, "LOCALCTX_HOME": str(here / "home")}
    done = subprocess.run(command(question, flags), cwd=here, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"exit {done.returncode}: {done.stderr}")
    return {**json.loads(done.stdout), "wall": time.monotonic() - began, "stderr": done.stderr}


def killed(here: Path, question: str, flags: tuple[str, ...], seconds: float) -> float:
    """Start the command and kill it; returns the seconds it had."""
    environment, began = {**os.environ, "LOCALCTX_HOME": str(here / "home")}, time.monotonic()
    process = subprocess.Popen(
        command(question, flags), cwd=here, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return time.monotonic() - began


def show(what: str, report: dict[str, Any], given: argparse.Namespace) -> None:
    """Print how many facts were found, what else was answered, and the seconds."""
    everywhere, planted = report.get("everywhere"), WORDS[: given.facts]
    answers = [g["answer"] for g in everywhere["groups"]] if everywhere else [report["answer"]]
    found = [w for w in planted if any(w in answer.lower() for answer in answers)]
    quoted = [w for w in planted if any(w in c["quote"].lower() for c in report["citations"])]
    other = [answer for answer in answers if not any(w in answer.lower() for w in planted)]
    print(f"{what}: found {len(found)} of {len(planted)} (quoted {len(quoted)}), false {len(other)}, ", end="")
    print(f"{report['wall']:.1f} s in all, model loaded in {report['seconds']['load']:.1f} s")
    if everywhere:
        counts = {**everywhere["tokens"], **{n: everywhere[n] for n in ("asked", "reused_answers", "seconds")}}
        print(f"    {counts}")
    if given.show:
        print(report["stderr"], report["answer"], sep="\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
