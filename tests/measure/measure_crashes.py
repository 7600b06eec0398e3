"""What is left after kills, power cuts and damage: ``python measure_crashes.py batch|store|power|damage [options]``.

``batch``: ``summarize`` is killed at random moments and started again; the last run is not killed. Each article of the
data (see measure_retrieval.py) becomes a file. Prints the results after each run, and whether every summary exists
exactly once and none was computed twice.

``store``: writers of one store add, keep pages, chat, delete, restore and erase; after each SIGKILL everything
acknowledged must be there, and nothing damaged or left over. With ``--seconds T`` two processes write for so long and
are not killed.

``power``: a process is recorded as it writes documents, pages and chats; each cut makes the disk as it may be left.
Needs a C compiler.

``damage``: each flip is a copy of a small data folder with one bit flipped (or several, a page of noise, a cut) in the
database, a page file, a kept original, the settings or an exported document. Commands run on it, then ``verify
--repair``. Counts tracebacks, hangs, and pages or texts that are given out and are not those that were kept.

Seeds are S, S + 1, ..., so a run can be continued.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import harness
from ask_in_process import said, start
from killed_store import Expected, kill, note, write, wrong
from measure_retrieval import DATA

from localctx.settings import load_settings

# --- Batches


def measure_batch(arguments: list[str]) -> None:
    """Print a line for each run, then the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=300, help="of which each kill has a random one")
    given, flags = parser.parse_known_args(arguments)
    if not given.data.exists():
        sys.exit(f"{given.data} is absent: nothing to measure")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "home").mkdir()
        (here / "home" / "models").symlink_to(load_settings().models)
        articles = json.loads(given.data.read_text())
        (here / "articles").mkdir()
        for article in articles:
            text = "\n\n".join(p["text"] for p in article["paragraphs"])
            (here / "articles" / f"{article['title']}.txt").write_text(text, encoding="utf-8")
        run_batch(here, len(articles), given.kills, given.seconds, flags)


def run_batch(here: Path, count: int, kills: int, seconds: int, flags: list[str]) -> None:
    """Start, kill and restart the batch; print the results."""
    words = ["summarize", "articles", "--summaries", "write", "-o", "out", "--jsonl", "all.jsonl"]
    command = [sys.executable, "-m", "localctx", *words, *flags]
    environment = {**os.environ, "LOCALCTX_HOME": str(here / "home")}
    began, printed = time.monotonic(), ""
    for i in range(kills + 1):
        process = subprocess.Popen(command, cwd=here, env=environment, stderr=subprocess.PIPE, text=True)
        if i < kills:
            time.sleep(random.uniform(5, seconds))
            process.send_signal(signal.SIGKILL)
        printed = process.communicate()[1]
        files, done = sorted((here / "out").glob("*.md")), lines(here)
        print(f"run {i + 1} (exit {process.returncode}): {len(files)} summaries, {len(done)} lines", flush=True)
    twice = [name for name, times in Counter(done).items() if times > 1]
    print(printed.strip().splitlines()[-1])
    print(f"{len(files)} summaries and {len(set(done))} lines of {count} articles; twice: {twice or 'none'}")
    print(f"{time.monotonic() - began:.0f} s in all")


def lines(here: Path) -> list[str]:
    """Return the documents of the complete lines of the output, in order."""
    file = here / "all.jsonl"
    whole = [line for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    return [json.loads(line)["name"] for line in whole]


# --- The store


def measure_store(arguments: list[str]) -> None:
    """Print what was lost, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        if given.seconds:
            print(*together(home, given.seed, given.seconds) or ["nothing lost"], sep="\n")
        else:
            kill_many(home, range(given.seed, given.seed + given.kills), given.processes)


def kill_many(home: Path, seeds: range, processes: int) -> None:
    """Kill for each seed; the store is made anew after each fifty."""
    began, failures = time.monotonic(), 0
    for done, seed in enumerate(seeds, 1):
        found = wrong(home, kill(home, seed, processes))
        failures += len(found)
        for line in found:
            print(f"seed {seed}: {line}", flush=True)
        if done % 50 == 0:
            shutil.rmtree(home)
            print(f"{done} kills, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(seeds)} kills of {processes} processes from seed {seeds.start}: {failures} failures")


def together(home: Path, seed: int, seconds: float, processes: int = 2) -> list[str]:
    """Let processes write one store for so long; return what is wrong after, with the error that one ended with."""
    running = [start(write, home, f"writer{i}", seed + i, seconds) for i in range(processes)]
    expected, found = Expected(), list[str]()
    for process, connection in running:
        for event in said(connection):
            note(expected, event)
        process.join()
        found += [f"a writer ended with {process.exitcode}"] if process.exitcode else []
    print(f"{len(expected.documents):,} documents, {len(expected.messages):,} chats in {seconds:.0f} s")
    return found + wrong(home, expected)


# --- The disk


def measure_power(arguments: list[str]) -> None:
    """Print what was lost or damaged by power cuts, and the counts."""
    from power_cuts import failures, record

    given = seeds_of("--cuts", 500, arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lost = failures(folder, record(folder, 12), given)
    print(*lost, sep="\n")
    print(f"{len(given)} cuts from seed {given.start}: {len(lost)} failures, {time.monotonic() - began:.0f} s")


def measure_damage(arguments: list[str]) -> int:
    """Print each failure, and the counts; return the exit code."""
    from damaged_store import fill, trial

    given = seeds_of("--flips", 1000, arguments)
    began, failures = time.monotonic(), list[str]()
    memory = Path("/dev/shm")  # where no disk is waited for
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        whole, home = Path(folder) / "whole", Path(folder) / "home"
        fill(whole)
        for done, seed in enumerate(given, 1):
            for failure in trial(whole, home, seed):
                failures.append(failure)
                print(failure, flush=True)
            if done % 100 == 0:
                passed = time.monotonic() - began
                print(f"{done} flips, {passed:.0f} s, {done / passed:.1f} a second", flush=True)
    hangs = sum("Unfinished" in failure for failure in failures)
    others = sum("AssertionError: another" in failure for failure in failures)
    print(
        f"{len(given)} flips from seed {given.start}: {len(failures) - hangs - others} tracebacks, {hangs} hangs, "
        f"{others} wrong pages"
    )
    return bool(failures)


def seeds_of(option: str, default: int, arguments: list[str]) -> range:
    """The seeds of as many trials as ``option`` says, from ``--seed`` on."""
    parser = argparse.ArgumentParser()
    parser.add_argument(option, dest="count", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    return range(given.seed, given.seed + given.count)


if __name__ == "__main__":
    harness.run(__doc__, batch=measure_batch, store=measure_store, power=measure_power, damage=measure_damage)
