"""The memory plan against what torch allocates: ``python measure_gpu_budget.py [--device cuda]``.

Random models of several shapes read a prompt in chunks and decode 8 tokens. The plan is the weights, the cache
(``KVShape.cache_bytes``) and the activations (``Geometry.activation_bytes``); measured is the peak of what torch had
allocated, and reserved what it had taken from the driver for that. Then another process takes memory of the GPU, which
must be noticed.
"""

import argparse
import gc
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field

import torch
from measure_gpu import BF16, LLAMA_3_8B, made_model

from localctx.budget import measure_device
from localctx.kernels.device import has_triton
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.architecture.geometry import geometry_of
from localctx.models.decoder.transformers_model import TransformersModel

WIDE = {**LLAMA_3_8B, "num_hidden_layers": 4}
FEW_HEADS = {
    **{"vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 8},
    **{"num_attention_heads": 12, "num_key_value_heads": 2},
}
MULTIHEAD = {
    **{"vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 4},
    **{"num_attention_heads": 32, "num_key_value_heads": 32},
}
TINY = {
    **{"vocab_size": 512, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
NEAR, HELD, DECODED = 0.03, 2 << 30, 8
CHILD = """
import sys, torch
torch.zeros(1, device="cuda"); print("begun", flush=True); sys.stdin.readline()
held = torch.empty({held}, dtype=torch.uint8, device="cuda"); print("holds", flush=True); sys.stdin.readline()
"""


@dataclass(frozen=True)
class Case:
    """What is measured."""

    name: str
    size: dict[str, int] = field(repr=False)
    codec: str
    chunk: int
    context: int


CASES = [
    Case("4 layers of Llama 3 8B", WIDE, "int8", 512, 32_768),
    Case("4 layers of Llama 3 8B", WIDE, "int8", 2048, 16_384),
    Case("4 layers of Llama 3 8B", WIDE, "bf16", 512, 8192),
    Case("2 KV heads", FEW_HEADS, "bf16", 2048, 32_768),
    Case("multi-head", MULTIHEAD, "int8", 512, 16_384),
    Case("multi-head", MULTIHEAD, "bf16", 2048, 8192),
]


def main() -> None:
    """Print a row for every case, and what was noticed; one that fails prints why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, to try the script")
    options = parser.parse_args()
    device, began, far = torch.device(options.device), time.perf_counter(), 0
    print("| model | codec | chunk | tokens | weights | KV | activations | plan MiB | peak | off by | reserved | s |")
    print(f"|{'---|' * 12}", flush=True)
    for case in [Case("tiny", TINY, "int8", 128, 1024)] if options.tiny else CASES:
        try:
            far += abs(measure(case, device)) > NEAR
        except Exception:
            print(f"| {case} failed |\n{traceback.format_exc()}", flush=True)
    if device.type == "cuda":
        try:
            print_noticed()
        except Exception:
            traceback.print_exc()
    print(f"\n{far} of the cases are off by more than {NEAR:.0%}; {time.perf_counter() - began:.0f} s", flush=True)


def measure(case: Case, device: torch.device) -> float:
    """Print a row; returns by how much the measured peak is above the plan."""
    gc.collect()
    before, start = reset(device), time.perf_counter()
    model = made_model(device, case.size)
    reset(device)
    tokens, itemsize = case.context + DECODED, BF16.itemsize
    kv = model.shape.cache_bytes(case.codec, tokens, itemsize, case.chunk)
    working = geometry_of(model._config).activation_bytes(case.chunk, case.context, itemsize, device.type)
    planned = model.nbytes + kv + working
    run(model, case)
    peak, reserved = allocated(device)
    off = (peak - before) / planned - 1
    sizes = " | ".join(f"{n / 2**20:,.0f}" for n in (model.nbytes, kv, working, planned, peak - before))
    how = f"{case.name} | {case.codec} | {case.chunk:,} | {case.context:,}"
    seconds = time.perf_counter() - start
    print(f"| {how} | {sizes} | {off:+.1%} | {reserved / 2**20:,.0f} | {seconds:.1f} |", flush=True)
    return off


def run(model: TransformersModel, case: Case) -> None:
    """Read a prompt in chunks, and decode a few tokens."""
    on_gpu = has_triton(model.device)
    cache = Cache(Pool(model.shape, case.codec, model.device, model.rope, in_place=False, triton=on_gpu), BF16)
    for at in range(0, case.context, case.chunk):
        model.forward([i * i % 499 for i in range(at, min(case.context, at + case.chunk))], cache)
    cache.enter_phase("answering")
    for i in range(DECODED):
        model.forward([i], cache)
    cache.drop()


def reset(device: torch.device) -> int:
    """Forget the peak; returns what is allocated."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def allocated(device: torch.device) -> tuple[int, int]:
    """Bytes allocated and reserved at their peak."""
    if device.type != "cuda":
        return 0, 0
    return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)


def print_noticed() -> None:
    """Another process takes memory: is it missing from what is free?"""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(held=HELD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin
    assert child.stdout
    try:
        assert child.stdout.readline().strip() == "begun"
        free = [measure_device("cuda").free]
        print("", file=child.stdin, flush=True)
        assert child.stdout.readline().strip() == "holds"
        free.append(measure_device("cuda").free)
    finally:
        child.kill()
        child.wait()
    gone = free[0] - free[1]
    verdict = "noticed" if abs(gone - HELD) < 64 << 20 else "NOT noticed"
    print(f"\nanother process took {HELD / 2**20:,.0f} MiB, free are {gone / 2**20:,.0f} MiB less: {verdict}")
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    held = measure_device("cuda").free
    del kept
    back = measure_device("cuda").free - held
    print(f"a GiB that torch keeps for itself counts as free: {back / 2**20:,.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
