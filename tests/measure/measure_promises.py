"""The engine's promises, measured with the default model: ``python measure_promises.py [--older]``.

Prints a table: restored, alone, drafted and chunked, in f32 and in bf16, each "to the bit" or the largest difference of
a logit. ``--older`` disables instructions newer than AVX2 in all libraries, so that a newer CPU computes as an older
one does; prints the instructions that remain.
"""

import os
import sys
import tempfile
from pathlib import Path

import with_helpers  # noqa: F401
from older_processor import AVX2, QUESTIONS

TOKENS = 2_000


def main() -> None:
    """Measure; with ``--older``, first restart this process without newer instructions."""
    if "--older" in sys.argv and "ATEN_CPU_CAPABILITY" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **AVX2})
    import torch

    print(f"instructions: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("f32", "bf16"):
            for name, result in measure(Path(folder), precision):
                print(f"{precision}  {name}: {result}", flush=True)


def measure(folder: Path, precision: str):
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
    with Session(load_settings(home=home, dtype=precision, **how)) as s:
        yield "alone = side by side", difference_text(promises.alone(s, file, QUESTIONS[0], QUESTIONS[1:]))
        yield "plain = drafted", difference_text(promises.drafted(s, file, QUESTIONS[0]))
        yield "chunks of 512 = of 128", difference_text(promises.chunked(s, file, QUESTIONS[0], (512, 128)))
        yield "cold = restored", difference_text(promises.restored(s, file, QUESTIONS[0]))


def difference_text(pair) -> str:
    """Return "to the bit", or the largest difference."""
    from promises import difference

    differ, largest = difference(*pair)
    return "to the bit" if not differ else f"differs by {largest:.2g} at most"


if __name__ == "__main__":
    main()
