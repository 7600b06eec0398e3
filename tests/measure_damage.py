"""Damage to the database: ``python tests/measure_damage.py [--flips N] [--seed S]``.

Each flip is a copy of a small store with one bit flipped (or several, a page of noise, a cut), on which commands run,
and ``verify --repair`` at the end. Counts tracebacks and hangs. Seeds are S, S + 1, ..., so a run can be continued.
"""

import argparse
import tempfile
import time
from pathlib import Path

from damaged_store import fill, trial


def main() -> None:
    """Print each failure, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, failures = time.monotonic(), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        whole, home = Path(folder) / "whole", Path(folder) / "home"
        fill(whole)
        for seed in range(given.seed, given.seed + given.flips):
            for failure in trial(whole, home, seed):
                failures.append(failure)
                print(failure, flush=True)
            if (seed + 1) % 100 == 0:
                print(f"{seed + 1 - given.seed} flips, {time.monotonic() - began:.0f} s", flush=True)
    hangs = sum("Unfinished" in failure for failure in failures)
    print(f"{given.flips} flips from seed {given.seed}: {len(failures) - hangs} tracebacks, {hangs} hangs")


if __name__ == "__main__":
    main()
