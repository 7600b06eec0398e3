"""Documents changed at random: ``python measure_fuzz.py --format pdf --inputs 10000 --seed 1``.

Blocks of inputs are parsed by a process under the parsers' limits. An input that ends the process is parsed once more
as the application does it: it must end in a sentence. Prints how many inputs were read, refused in a sentence, and
ended their process; fails where the application would not have told a sentence.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import with_helpers  # noqa: F401
from fuzz_documents import FORMATS

from localctx.errors import DocumentError
from localctx.library.parsers.sandbox import parse

BLOCK = 250  # inputs of one process


def run_block(names: str, inputs: int, number: int, folder: Path) -> dict[str, Counter[str]]:
    """Parses ``inputs`` changed documents of each format. Returns how they ended, by format: read, refused, or (once)
    with the process.
    """
    file = folder / "input"
    script = str(Path(__file__).resolve().parents[1] / "helpers" / "fuzz_documents.py")
    done = subprocess.run(
        [sys.executable, script, names, str(inputs), str(number), str(file)], capture_output=True, text=True
    )
    if done.returncode == 0:
        return {name: Counter(ends) for name, ends in json.loads(done.stdout.splitlines()[-1]).items()}
    if done.returncode > 0:
        raise AssertionError(f"{names}, seed {number}: {done.stderr[-2000:]}")
    name, _, data = file.read_bytes().partition(b"\n")
    end = f"ended by signal {-done.returncode}, then {outcome(name.decode(), data)}"
    return {name.decode(): Counter({end: 1})}


def outcome(name: str, data: bytes) -> str:
    """How the application ends with an input. Raises whatever is no sentence."""
    try:
        parse(FORMATS[name][0], data, lambda done, total: None, ocr="off")
    except DocumentError as e:
        return "refused" if "\n" not in str(e) else "refused in several lines"
    return "read"


def main() -> None:
    """Parses the inputs of one format, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=(*FORMATS, "all"), default="all")
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for name in FORMATS if given.format == "all" else (given.format,):
        ends, start = Counter[str](), time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            for i in range(0, given.inputs, BLOCK):
                ends += run_block(name, min(BLOCK, given.inputs - i), given.seed * 1_000_003 + i, Path(folder))[name]
        print(f"{name}: {dict(ends)}, {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
