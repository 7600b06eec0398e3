"""Batches that are killed and resumed: ``python measure_kills.py [squad.json] [kills] [seconds] [flags...]``.

Each article of the data (see measure_retrieval.py) becomes a file. ``summarize`` is started, killed with SIGKILL at a
random moment of the first ``seconds``, started again, and so on; the last run is not killed. Prints the results after
each run, and whether every summary exists exactly once and none was computed twice.
"""

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

from measure_retrieval import DATA

from localctx.settings import load_settings


def main(path: Path = DATA, kills: int = 5, seconds: int = 300, *flags: str) -> None:
    """Print a line for each run, then the result."""
    if not path.exists():
        sys.exit(f"{path} is absent: nothing to measure")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "home").mkdir()
        (here / "home" / "models").symlink_to(load_settings().models)
        articles = json.loads(path.read_text())
        (here / "articles").mkdir()
        for article in articles:
            text = "\n\n".join(p["text"] for p in article["paragraphs"])
            (here / "articles" / f"{article['title']}.txt").write_text(text, encoding="utf-8")
        run(here, len(articles), kills, seconds, flags)


def run(here: Path, count: int, kills: int, seconds: int, flags: tuple[str, ...]) -> None:
    """Start, kill and restart the batch; print the results."""
    command = [
        sys.executable,
        "-m",
        "localctx",
        "summarize",
        "articles",
        "--summaries",
        "write",
        "-o",
        "out",
        "--jsonl",
        "all.jsonl",
        *flags,
    ]
    environment = {**os.environ, "LOCALCTX_HOME": str(here / "home")}
    began, said = time.monotonic(), ""
    for i in range(kills + 1):
        process = subprocess.Popen(command, cwd=here, env=environment, stderr=subprocess.PIPE, text=True)
        if i < kills:
            time.sleep(random.uniform(5, seconds))
            process.send_signal(signal.SIGKILL)
        said = process.communicate()[1]
        files, done = sorted((here / "out").glob("*.md")), lines(here)
        print(f"run {i + 1} (exit {process.returncode}): {len(files)} summaries, {len(done)} lines", flush=True)
    twice = [name for name, times in Counter(done).items() if times > 1]
    print(said.strip().splitlines()[-1])
    print(f"{len(files)} summaries and {len(set(done))} lines of {count} articles; twice: {twice or 'none'}")
    print(f"{time.monotonic() - began:.0f} s in all")


def lines(here: Path) -> list[str]:
    """Return the documents of the complete lines of the output, in order."""
    file = here / "all.jsonl"
    whole = [line for line in file.read_text().splitlines(True) if line.endswith("\n")] if file.exists() else []
    return [json.loads(line)["name"] for line in whole]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]), *map(int, sys.argv[2:4]), *sys.argv[4:])
