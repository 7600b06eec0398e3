"""A forward pass leaves cores to other programs; its result is the same to the bit with any number of threads."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.slow

HELPERS = Path(__file__).resolve().parents[1] / "helpers"


@pytest.mark.parametrize(
    ("family", "kept", "codec"), [("Llama", "full", "bf16"), ("Qwen2", "int8", "int8"), ("Qwen3", "int4", "int4")]
)
def test_logits_do_not_depend_on_other_programs(family, kept, codec):
    environment = {**os.environ, "NUMBA_NUM_THREADS": "4", "PYTHONPATH": str(HELPERS)}  # tests have one thread
    command = [sys.executable, __file__, family, kept, codec]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "threads [4, 2], equal: True\n", done.stderr


def main(family: str, kept: str, codec: str) -> None:
    """Print with how many threads the same tokens were computed, and whether all their logits are equal."""
    import numba
    import torch
    from native_models import build, plain

    from localctx.kv.cache import Cache
    from localctx.kv.pool import Pool
    from localctx.models.decoder import local_model

    model, threads, results = plain(build(family), kept), [], []
    for free in (4.0, 0.0):
        local_model._LOAD = SimpleNamespace(free=free)
        cache = Cache(Pool(model.shape, codec), model.dtype)
        prompt = model.forward([i * 7 % 100 for i in range(200)], cache)
        results.append([prompt, *(model.forward([5 + i], cache) for i in range(4))])
        threads.append(numba.get_num_threads())
    print(f"threads {threads}, equal: {all(map(torch.equal, *results))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
