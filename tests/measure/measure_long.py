"""A long text under a memory limit: ``python tests/measure/measure_long.py TEXT [--limit 4GiB] [FLAGS OF ASK]``.

``localctx ask`` reads the text whole, in a control group that limits the memory of the process (Linux, as root, so that
nothing may exceed it). Then another question is asked in a new process, with the kept pages out of the system's page
cache; then with ``--keep select:2048``, about the whole text and about its beginning of 2,048 tokens. Prints what each
took and the most memory of all. Settings come from the environment, too.

python tests/measure/measure_long.py novel.txt --rope yarn:4 --reading sparse
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import harness  # noqa: F401

from localctx.settings import load_settings, parse_size

QUESTIONS = (
    "Describe in three sentences who tells the story.",
    "Describe in three sentences where it takes place.",
    "Describe in three sentences what happens at the end.",
)
FREE = ("--mode", "full", "--answers", "free", "--careful", "off", "--adapter", "none", "--max-tokens", "48", "--json")
SHORT = 2048  # tokens of the short text
GROUPS = Path("/sys/fs/cgroup")


class LimitedMemory:
    """A control group with at most ``limit`` bytes, swap included where the system limits that, v2 or v1."""

    def __init__(self, limit: int) -> None:
        is_v2 = (GROUPS / "cgroup.controllers").exists()
        self.folder = GROUPS / ("" if is_v2 else "memory") / f"localctx-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if is_v2 else "memory.limit_in_bytes")).write_text(str(limit))
        self._peak = self.folder / ("memory.peak" if is_v2 else "memory.max_usage_in_bytes")

    def enter(self) -> None:
        """Put the calling process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def peak(self) -> int:
        """The most bytes that the group used, file cache included."""
        return int(self._peak.read_text())


@contextmanager
def limited(limit: int) -> Iterator[LimitedMemory]:
    """A group that is removed with the block."""
    group = LimitedMemory(limit)
    try:
        yield group
    finally:
        group.folder.rmdir()


def ask(group: LimitedMemory, text: Path, question: str, *flags: str) -> dict[str, Any]:
    """Returns the command's JSON. Its progress goes to stderr."""
    command = [sys.executable, "-m", "localctx", "ask", str(text), question, *FREE, *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, preexec_fn=group.enter, check=True)
    return json.loads(done.stdout)


def forget_files(folder: Path) -> None:
    """Take the files in ``folder`` out of the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def told(what: str, answer: dict[str, Any]) -> None:
    """Print a row."""
    tokens, seconds, kv = answer["tokens"], answer["seconds"], answer["kv"]
    decode = 1000 * seconds["decode"] / max(1, tokens["generated"])
    size, rss = tokens["reused"] * kv["bytes_per_token"], answer["memory"]["peak_bytes"]
    row = [what, f"{tokens['prompt']:,}", f"{tokens['reused']:,}", f"{seconds['prefill']:.1f}"]
    row += [f"{seconds['first_token']:.2f}", f"{size / 1e9 / seconds['first_token']:.2f}", f"{decode:.1f}"]
    print(f"| {' | '.join([*row, f'{rss / 2**30:.2f}'])} | {' '.join(answer['answer'].split())[:60]} |", flush=True)


def main() -> None:
    """Ask the questions, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--limit", default="4GiB")
    given, flags = parser.parse_known_args()
    models = load_settings().models
    with limited(parse_size(given.limit)) as group, tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALCTX_HOME"] = folder
        Path(folder, "models").symlink_to(models)
        print(
            "| | prompt | reused | reading, s | first token, s | GB/s to it | decoding, ms | peak RSS, GiB | answer |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        told("read", first := ask(group, given.text, QUESTIONS[0], *flags))
        for n, more in enumerate(((), ("--keep", "select:2048")), start=1):
            forget_files(Path(folder, "pages"))
            told(f"new process, cold files {' '.join(more)}", ask(group, given.text, QUESTIONS[n], *flags, *more))
        short = Path(folder, "short.txt")
        words = given.text.read_text("utf-8")
        short.write_text(words[: len(words) * SHORT // first["tokens"]["prompt"]])
        for _ in range(2):
            told("2,048 tokens, select", ask(group, short, QUESTIONS[1], *flags, "--keep", "select:2048"))
        print(f"most memory of the group, with file cache: {group.peak / 2**30:.2f} GiB of {given.limit}")


if __name__ == "__main__":
    main()
