"""The engine's promises, measured with the default model: ``python measure_promises.py [--older] [--device cuda]``.

Prints a table: restored, alone, drafted and chunked, in f32 and in bf16, each "to the bit" or the largest difference of
a logit. ``--older`` disables instructions newer than AVX2 in all libraries, so that a newer CPU computes as an older
one does; prints the instructions that remain. What fails prints why, and the rest is measured.
"""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness  # noqa: F401
from older_processor import AVX2, QUESTIONS

TOKENS = 2_000


def main() -> None:
    """Measure; with ``--older``, first restart this process without newer instructions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--older", action="store_true", help="without instructions newer than AVX2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precisions", nargs="+", default=["f32", "bf16"])
    options = parser.parse_args()
    if options.older and "ATEN_CPU_CAPABILITY" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **AVX2})
    import torch

    from localctx.models.choice.device_choice import pick_device

    gpu = torch.cuda.get_device_name() if pick_device(options.device).type == "cuda" else "no GPU"
    print(f"instructions: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads, {gpu}")
    with tempfile.TemporaryDirectory() as folder:
        for precision in options.precisions:
            for name, result in measure(Path(folder), precision, options.device):
                print(f"{precision}  {name}: {result}", flush=True)


def measure(folder: Path, precision: str, device: str) -> Iterator[tuple[str, str]]:
    """Yield each promise's name and result."""
    import promises

    from localctx.docs import page
    from localctx.session import Session
    from localctx.settings import load_settings

    home = folder / precision
    home.mkdir()
    (home / "models").symlink_to(load_settings().models)
    file = folder / "page.txt"
    file.write_text((page("memory") + page("internals"))[: 4 * TOKENS])
    how = {"mode": "full", "max_tokens": 24, "draft": 0, "embedder": "none", "careful": "off", "repeats": "allow"}
    with Session(load_settings(home=home, dtype=precision, device=device, **how)) as s:
        ways: dict[str, Callable[[], tuple[Any, Any]]] = {
            "alone = side by side": lambda: promises.alone(s, file, QUESTIONS[0], QUESTIONS[1:]),
            "plain = drafted": lambda: promises.drafted(s, file, QUESTIONS[0]),
            "chunks of 512 = of 128": lambda: promises.chunked(s, file, QUESTIONS[0], (512, 128)),
            "cold = restored": lambda: promises.restored(s, file, QUESTIONS[0]),
        }
        for name, compute in ways.items():
            try:
                yield name, difference_text(compute())
            except Exception:
                yield name, f"failed\n{traceback.format_exc()}"


def difference_text(pair: tuple[Any, Any]) -> str:
    """Return "to the bit", or the largest difference."""
    from promises import difference

    differ, largest = difference(*pair)
    return "to the bit" if not differ else f"differs by {largest:.2g} at most"


if __name__ == "__main__":
    main()
