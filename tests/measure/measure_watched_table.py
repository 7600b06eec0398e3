"""Is a watched table the same as one made anew: ``python tests/measure/measure_watched_table.py [--minutes N]``.

Runs ``localctx table --watch`` over a folder of leases. For N minutes files are added, changed, renamed and deleted at
random, and the process is killed three times (SIGKILL) and started again. Then the files rest until the table has them,
and the table is compared, byte for byte, with one that is made anew. Prints a line a minute, the number of changes of
each kind, the answers that the process reported, and whether the tables are equal; exits with 1 if not.
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
from collections import Counter
from pathlib import Path
from typing import IO

import harness  # noqa: F401
from watched_tables import COLUMNS, lease

from localctx.library.folders.folder_scan import GONE, SETTLE
from localctx.settings import load_settings

KILLS = 3
CURRENCIES = ("EUR {:,}", "{:,} EUR", "£{:,}", "${:,}")


class Leases:
    """A folder of leases that changes at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._random, self._made = folder, random.Random(seed), 0
        self.done = Counter[str]()
        for _ in range(6):
            self._add()

    def change(self) -> None:
        """Add, change, rename or delete a file."""
        files = sorted(path for path in self._folder.rglob("*") if path.is_file())
        what = self._random.choice(["add", "change", "rename", "delete"]) if len(files) > 3 else "add"
        path = self._random.choice(files) if files else self._folder
        self.done[what] += 1
        if what == "add":
            self._add()
        elif what == "change":
            self._write(path)
        elif what == "rename":
            path.rename(self._next_path())
        else:
            path.unlink()

    def _add(self) -> None:
        path = self._next_path()
        if self._random.random() < 0.1:
            path.with_suffix(".pdf").write_bytes(b"%PDF-1.7\nbroken")
        else:
            self._write(path)

    def _write(self, path: Path) -> None:
        rent = self._random.choice(CURRENCIES).format(self._random.randrange(300, 3000))
        path.unlink(missing_ok=True)  # as some programs save
        lease(path.parent, path.with_suffix(".txt").name, rent, self._random.randrange(1, 28), self._made)

    def _next_path(self) -> Path:
        self._made += 1
        folder = self._folder / self._random.choice([".", "old"])
        folder.mkdir(exist_ok=True)
        return folder / f"{self._made:03}.txt"


def start(folder: Path, out: Path, home: Path, lines: IO[str]) -> subprocess.Popen:
    """Start the command, with its changes as JSON in ``lines``."""
    command = [sys.executable, "-m", "localctx", "table", folder, *COLUMNS, "-o", out, "--watch", "--json", "-q"]
    environment = {**os.environ, "LOCALCTX_HOME": str(home)}
    return subprocess.Popen([str(word) for word in command], stdout=lines, env=environment)


def rest(folder: Path, lines: Path, process: subprocess.Popen) -> None:
    """Wait until the process has read all: twice a last file is added, after deleted ones had time to count as gone."""
    for name in ("last1.txt", "last2.txt"):
        time.sleep((GONE + 1) * SETTLE)
        lease(folder, name, number=name)
        while f"/{name}" not in lines.read_text():
            assert process.poll() is None, "the process has ended"
            time.sleep(0.5)


def main() -> int:
    """Change files and kill the process for the given time, then compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        for home in ("home", "other"):
            (here / home).mkdir()
            (here / home / "models").symlink_to(load_settings().models)
        (here / "leases").mkdir()
        leases, out = Leases(here / "leases", given.seed), here / "out.csv"
        with (here / "lines").open("w") as lines:
            change_and_kill(leases, here, lines, given.minutes * 60, random.Random(given.seed))
        return compare(here, out, leases)


def change_and_kill(leases: Leases, here: Path, lines: IO[str], seconds: float, rng: random.Random) -> None:
    """Keep the table current while files change for so long and the process is killed; then let it finish."""
    begun, said = time.monotonic(), 0
    kills = sorted(rng.uniform(0.1, 0.9) * seconds for _ in range(KILLS))
    process = start(here / "leases", here / "out.csv", here / "home", lines)
    while (passed := time.monotonic() - begun) < seconds:
        time.sleep(rng.uniform(0.2, 6))
        leases.change()
        if kills and passed >= kills[0]:
            kills.pop(0)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = start(here / "leases", here / "out.csv", here / "home", lines)
        if passed // 60 > said:
            said = int(passed // 60)
            print(f"{said} min: {leases.done.total()} changes, {KILLS - len(kills)} kills", flush=True)
    rest(here / "leases", here / "lines", process)
    process.send_signal(signal.SIGINT)
    print(f"{KILLS - len(kills)} kills; the last process ended with {process.wait()}")


def compare(here: Path, out: Path, leases: Leases) -> int:
    """Print the counts, and whether the table equals one made anew. Returns the exit code."""
    news = Counter(json.loads(line)["news"] for line in (here / "lines").read_text().splitlines())
    command = [sys.executable, "-m", "localctx", "table", here / "leases", *COLUMNS, "-o", here / "anew.csv", "-q"]
    subprocess.run([str(word) for word in command], env={**os.environ, "LOCALCTX_HOME": str(here / "other")})
    kept, anew = out.read_bytes(), (here / "anew.csv").read_bytes()
    print(f"files: {dict(leases.done)}; reported: {dict(news)}; {len(anew.splitlines()) - 1} rows")
    print("the tables are equal" if kept == anew else f"the tables differ:\n{kept.decode()}\n{anew.decode()}")
    return int(kept != anew)


if __name__ == "__main__":
    sys.exit(main())
