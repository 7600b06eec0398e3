"""Writers of one store that are killed: ``python measure_store_kills.py [--kills N] [--seed S] [--processes P]``.

They add, keep pages, chat, delete, restore and erase; after each SIGKILL all that was acknowledged must be there, and
nothing damaged or left over. With ``--seconds T`` two processes write for so long and are not killed. Seeds are S, S +
1, ..., so a run can be continued.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import with_helpers  # noqa: F401
from ask_in_process import said, start
from killed_store import Expected, kill, note, write, wrong


def main() -> None:
    """Print what was lost, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    given = parser.parse_args()
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


if __name__ == "__main__":
    main()
