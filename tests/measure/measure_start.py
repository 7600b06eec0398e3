"""How soon ``ask`` answers about a kept document, from the shell: ``python measure_start.py [--runs 5]``.

The beginning of a page of the documentation is asked by the real command, with an open ``serve`` and without one, in a
data folder of its own that has the default models. Prints medians, with the least and the most, of the seconds from the
start of the process to the first character on stdout, and to the end of the process; beside them a process that only
imports torch. Each kind of question is asked twice before.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from localctx.docs import page
from localctx.models.catalog import DEFAULT
from localctx.settings import load_settings
from localctx.settings.table import EMBEDDER

QUESTION = "What does a smaller codec save?"
CHARACTERS = 3000
FREE = ("--mode", "full", "--answers", "free", "--careful", "off")
KINDS = {"in its own words": FREE, "--mode full": ("--mode", "full"), "as it is": ()}


def localctx(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "localctx", *arguments]


def timed(line: list[str]) -> tuple[float, float]:
    """The seconds to the first character that a command prints, and to its end."""
    start = time.perf_counter()
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        os.read(process.stdout.fileno(), 1)
        first = time.perf_counter() - start
        process.stdout.read()
    assert process.returncode == 0, line
    return first, time.perf_counter() - start


def measure(name: str, line: list[str], runs: int) -> None:
    """Print the times of a command."""
    for _ in range(2):
        timed(line)
    times = list(zip(*(timed(line) for _ in range(runs)), strict=True))
    shown = [f"{statistics.median(part):.2f} ({min(part):.2f}-{max(part):.2f})" for part in times]
    print(f"{name:<32} first {shown[0]:<18} end {shown[1]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    for model in (DEFAULT, EMBEDDER):
        subprocess.run(localctx("models", "pull", model), check=True, stdout=subprocess.DEVNULL)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "models").symlink_to(load_settings().models)
        os.environ["LOCALCTX_HOME"] = folder
        document = Path(folder, "memory.md")
        document.write_text(page("memory")[:CHARACTERS])
        measure("import torch", [sys.executable, "-c", "import torch; print(1)"], runs)
        for name, flags in KINDS.items():
            measure(f"alone, {name}", localctx("ask", str(document), QUESTION, *flags), runs)
        with subprocess.Popen(localctx("serve", "--port", "0"), stdout=subprocess.PIPE) as server:
            assert server.stdout
            server.stdout.readline()
            for name, flags in KINDS.items():
                measure(f"asked of serve, {name}", localctx("ask", str(document), QUESTION, *flags), runs)
            server.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
