"""What the engine's promises are worth with the default model: ``python tests/measure_promises.py [--older]``.

Prints a table: restored, alone, drafted and chunked, in f32 and in bf16, each "to the bit" or the largest difference of
a logit. ``--older`` takes the instructions after AVX2 away from all libraries first, so that a newer processor computes
as an older one would; what is left is printed.
"""

import os
import sys
import tempfile
from pathlib import Path

from older_processor import AVX2, QUESTIONS

TOKENS = 2_000


def main() -> None:
    """Measure with what this process was started with, or begin again with less."""
    if "--older" in sys.argv and "ATEN_CPU_CAPABILITY" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **AVX2})
    import torch

    print(f"instructions: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for precision in ("f32", "bf16"):
            for name, said in measure(Path(folder), precision):
                print(f"{precision}  {name}: {said}", flush=True)


def measure(folder: Path, precision: str):
    """Each promise by name, and what was found of it."""
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
        yield "alone = side by side", told(promises.alone(s, file, QUESTIONS[0], QUESTIONS[1:]))
        yield "plain = drafted", told(promises.drafted(s, file, QUESTIONS[0]))
        yield "chunks of 512 = of 128", told(promises.chunked(s, file, QUESTIONS[0], (512, 128)))
        yield "cold = restored", told(promises.restored(s, file, QUESTIONS[0]))


def told(pair) -> str:
    """To the bit, or by how much."""
    from promises import difference

    differ, most = difference(*pair)
    return "to the bit" if not differ else f"differs by {most:.2g} at most"


if __name__ == "__main__":
    main()
