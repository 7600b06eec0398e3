"""Damage to what is kept: ``python measure_damage.py [--flips N] [--seed S]``.

Each flip is a copy of a small data folder with one bit flipped (or several, a page of noise, a cut) in the database, a
page file, a kept original, the settings or an exported document. Commands run on it, then ``verify --repair``. Counts
tracebacks, hangs, and pages or texts that are given out and are not those that were kept. Seeds are S, S + 1, ..., so a
run can be continued.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import with_helpers  # noqa: F401
from damaged_store import fill, trial


def main() -> None:
    """Print each failure, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, failures = time.monotonic(), list[str]()
    memory = Path("/dev/shm")  # where no disk is waited for
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        whole, home = Path(folder) / "whole", Path(folder) / "home"
        fill(whole)
        for seed in range(given.seed, given.seed + given.flips):
            for failure in trial(whole, home, seed):
                failures.append(failure)
                print(failure, flush=True)
            if (seed + 1) % 100 == 0:
                done, passed = seed + 1 - given.seed, time.monotonic() - began
                print(f"{done} flips, {passed:.0f} s, {done / passed:.1f} a second", flush=True)
    hangs = sum("Unfinished" in failure for failure in failures)
    wrong = sum("AssertionError: another" in failure for failure in failures)
    print(
        f"{given.flips} flips from seed {given.seed}: {len(failures) - hangs - wrong} tracebacks, {hangs} hangs, "
        f"{wrong} wrong pages"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
