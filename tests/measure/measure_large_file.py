"""Measures whether a large file that is dropped in the window holds up other work.

    python measure_large_file.py [--megabytes 50] [--minutes 10]

It needs Chromium and the default model. A short document is asked about, and the library is searched, before and while
a large file is indexed. Prints the median seconds of both, and every place where the shown share of the large file went
back.
"""

import argparse
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import harness  # noqa: F401
from browser import Tab, launched, served

from localctx.settings import load_settings

SHORT = "The keeper of the harbour is Ann Marlow. She lights the lamp at dusk and puts it out at dawn.\n" * 20
QUESTION = "Who is the keeper of the harbour?"
WORDS = ["harbour", "mill", "river", "lamp", "keeper", "dawn", "dusk", "boat", "sail", "grain", "stone", "bridge"]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10, help="give up after so many (10)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        home = Path(folder) / "home"
        home.mkdir()
        (home / "models").symlink_to((load_settings().home / "models").resolve())
        with served(home) as window:
            one, two, library = (Tab(browser.new_context().new_page()).open(window.url) for _ in range(3))
            library.page.get_by_role("tab", name="Library").click()
            one.drop("short.txt", SHORT.encode())
            one.wait_for("Ask anything", "#ready-card", 400)
            timed(lambda: ask(one))
            timed(lambda: search(library, "dawn"))
            print("before", *both(one, library, 3), sep="\n  ", flush=True)
            large = Path(folder) / "large.txt"
            large.write_text(text_of(given.megabytes), encoding="utf-8")
            two.page.locator("#question input[type=file]").first.set_input_files(str(large))
            start = time.monotonic()
            two.wait_for("large", "#ready-card", 120)
            shares, seconds = list[int](), list[tuple[float, float]]()
            while time.monotonic() - start < 60 * given.minutes and is_busy(two, library):
                shares += map(int, re.findall(r"(\d+) %", two.page.locator("#ready-card").inner_text())[:1])
                words = WORDS[len(seconds) % len(WORDS)]
                seconds.append((timed(lambda: ask(one)), timed(partial(search, library, words))))
            asked, searched = zip(*seconds, strict=True)
            print(f"meanwhile, {len(seconds)} of each", *told(asked, searched), sep="\n  ")
            print(f"after {time.monotonic() - start:.0f} s: {two.page.locator('#ready-card').inner_text()!r}")
            print("shares shown:", shares, "went back:", [b for a, b in pairwise(shares) if b < a])


def both(tab: Tab, library: Tab, count: int) -> list[str]:
    """Returns the lines about ``count`` questions and searches."""
    asked = [timed(lambda: ask(tab)) for _ in range(count)]
    return told(asked, [timed(partial(search, library, words)) for words in WORDS[:count]])


def told(asked: Sequence[float], searched: Sequence[float]) -> list[str]:
    """Returns the lines about seconds of questions and of searches."""
    named = (("question", asked), ("search", searched))
    return [f"{name}: median {statistics.median(s):.2f} s ({min(s):.2f} to {max(s):.2f})" for name, s in named]


def ask(tab: Tab) -> None:
    """Ask, and wait until the answer has ended."""
    tab.ask(QUESTION)
    assert "Marlow" in tab.answer()


def search(library: Tab, words: str) -> None:
    """Search the library in the window, until other hits are shown."""
    hits = "document.querySelector('#hits').innerHTML"
    before = library.page.evaluate(hits)
    library.page.locator("#words textarea, #words input").first.fill(words)
    library.page.locator("#words").get_by_role("button", name="Search").click()
    library.page.wait_for_function(f"before => {hits} && {hits} !== before", arg=before, polling=20, timeout=60_000)


def is_busy(tab: Tab, library: Tab) -> bool:
    """Returns True while the large file is read or indexed."""
    spinning = tab.page.locator("#ready-card .lc-spin").count() > 0
    return spinning or bool(library.page.locator("#indexing").inner_text().strip())


def timed(work: Callable[[], None]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start


def text_of(megabytes: int) -> str:
    """Returns so many megabytes of sentences of a few words, with numbers."""
    rng, lines, size = random.Random(5), list[str](), 0
    while size < megabytes * 1_000_000:
        lines.append(" ".join(rng.choices(WORDS, k=12)).capitalize() + f" {rng.randrange(10**6)}.\n")
        size += len(lines[-1])
    return "".join(lines)


if __name__ == "__main__":
    main()
