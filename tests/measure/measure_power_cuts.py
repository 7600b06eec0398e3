"""Simulated power cuts: ``python measure_power_cuts.py [--cuts N] [--seed S]``; needs a C compiler.

A process is recorded as it writes documents, pages and chats; each cut makes the disk as it may be left.
Seeds are S, S + 1, ..., so a run can be continued.
"""

import argparse
import tempfile
import time
from pathlib import Path

import with_helpers  # noqa: F401
from power_cuts import failures, record


def main() -> None:
    """Print what was lost or damaged, and the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = failures(folder, record(folder, 12), range(given.seed, given.seed + given.cuts))
    print(*wrong, sep="\n")
    print(f"{given.cuts} cuts from seed {given.seed}: {len(wrong)} failures, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
