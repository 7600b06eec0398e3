"""The memory plan against what torch allocates: ``python measure_gpu_budget.py [--device cuda]``.

Random models of several shapes read a prompt in chunks and decode 8 tokens. The plan is the weights, the cache
(``KVShape.cache_bytes``) and the activations (``Geometry.activation_bytes``); measured is the peak of what torch had
allocated, and reserved what it had taken from the driver for that. Below each row stand its parts in MiB, measured and
planned: what is held, the peaks of the first and the last chunk, of the parts of the last one, and of decoding, beyond
what was held when each began. Then another process takes memory of the GPU, which must be noticed.
"""

import argparse
import gc
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from measure_gpu import BF16, LLAMA_3_8B, made_model

from localctx.budget import measure_device
from localctx.kernels.device import has_triton
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.architecture.geometry import FIXED_GPU, SLACK_GPU, geometry_of
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
PARTS = {"self_attn": "attention", "mlp": "MLP", "lm_head": "logits", "input_layernorm": "norm", "norm": "norm"}
"""The modules whose peaks are noted, and what they are called."""
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
    """Print a row and its parts; returns by how much the measured peak is above the plan."""
    gc.collect()
    start, memory = time.perf_counter(), Memory(device)
    model = made_model(device, case.size)
    weights = memory.begin()
    tokens, itemsize = case.context + DECODED, BF16.itemsize
    kv = model.shape.cache_bytes(case.codec, tokens, itemsize, case.chunk)
    geometry = geometry_of(model._config)
    working = geometry.activation_bytes(case.chunk, case.context, itemsize, device.type)
    fixed = geometry.activation_bytes(0, case.context, itemsize, device.type)
    planned = model.nbytes + kv + working
    found = run(model, case, memory)
    off = memory.highest / planned - 1
    how = f"{case.name} | {case.codec} | {case.chunk:,} | {case.context:,}"
    sizes = " | ".join(f"{n / 2**20:,.0f}" for n in (model.nbytes, kv, working, planned, memory.highest))
    seconds = time.perf_counter() - start
    print(f"| {how} | {sizes} | {off:+.1%} | {memory.reserved / 2**20:,.0f} | {seconds:.1f} |", flush=True)
    print_parts("measured", {"weights": weights, **found})
    of_chunk, of_run = ((n - m) / SLACK_GPU for n, m in ((working, fixed), (fixed, FIXED_GPU)))
    print_parts("planned", {"chunk": of_chunk, "run of pages and logits": of_run, "fixed": FIXED_GPU})
    return off


def print_parts(what: str, parts: dict[str, float]) -> None:
    """Print a line of MiB."""
    print(f"  {what}: {', '.join(f'{name} {n / 2**20:,.1f}' for name, n in parts.items())}", flush=True)


def run(model: TransformersModel, case: Case, memory: "Memory") -> dict[str, float]:
    """Read a prompt in chunks, and decode a few tokens; returns bytes by what they are for."""
    on_gpu, found, before = has_triton(model.device), dict[str, float](), memory.held
    pool = Pool(model.shape, case.codec, model.device, model.rope, in_place=False, triton=on_gpu)
    cache = Cache(pool, BF16)
    for at in range(0, case.context, case.chunk):
        last = at + case.chunk >= case.context
        with peaks_of_parts(model, memory, found) if last else peak_of("first chunk" if not at else "", memory, found):
            model.forward([i * i % 499 for i in range(at, min(case.context, at + case.chunk))], cache)
    found["held after reading"] = (held := memory.held) - before
    found["of it pages"], found["open page"] = pool.device_tier.nbytes, cache.open_page.nbytes
    cache.enter_phase("answering")
    with peak_of("decoding", memory, found):
        for i in range(DECODED):
            model.forward([i], cache)
    found["kept after decoding"] = memory.held - held
    cache.drop()
    found["cuBLAS, now freed"] = memory.free_workspaces()
    if model.graphs and model.graphs.refused:
        print(f"no capture: {model.graphs.refused}")
    return found


@contextmanager
def peak_of(name: str, memory: "Memory", found: dict[str, float]) -> Iterator[None]:
    """Note the peak within the block, beyond what was held before, under a name, if there is one."""
    held = memory.held
    memory.take_peak()
    yield
    peak = memory.take_peak() - held
    if name:
        found[name] = peak


@contextmanager
def peaks_of_parts(model: TransformersModel, memory: "Memory", found: dict[str, float]) -> Iterator[None]:
    """Note the peaks within kinds of modules, and outside of them, beyond what was held before."""
    held, hooks = memory.held, []

    def note(name: str) -> None:
        found[name] = max(found.get(name, 0), memory.take_peak() - held)

    for name, module in model._module.named_modules():
        part = PARTS.get(name.rpartition(".")[2])
        if part:
            hooks.append(module.register_forward_pre_hook(lambda *_: note("between")))
            hooks.append(module.register_forward_hook(lambda *_, part=part: note(part)))
    memory.take_peak()
    try:
        yield
        note("between")
    finally:
        for hook in hooks:
            hook.remove()
    found["last chunk"] = max(found[part] for part in ("between", *PARTS.values()) if part in found)


class Memory:
    """What torch has allocated on a device, beyond what it had at first; ``highest`` is its peak, and ``reserved`` the
    most that torch had taken from the driver, in all.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._first, self.highest, self.reserved = device, 0, 0, 0
        self.free_workspaces()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(device)
            self._first = torch.cuda.memory_allocated(device)

    def begin(self) -> int:
        """Forget the peak so far; returns what is held."""
        self.take_peak()
        self.highest = self.reserved = 0
        return self.held

    @property
    def held(self) -> int:
        """Bytes allocated now."""
        return torch.cuda.memory_allocated(self._device) - self._first if self._device.type == "cuda" else 0

    def take_peak(self) -> int:
        """Returns the most bytes since the last call."""
        if self._device.type != "cuda":
            return 0
        peak = torch.cuda.max_memory_allocated(self._device) - self._first
        self.reserved = max(self.reserved, torch.cuda.max_memory_reserved(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)
        self.highest = max(self.highest, peak)
        return peak

    def free_workspaces(self) -> int:
        """Free the memory that cuBLAS works in, which it would keep for the next case; returns its bytes."""
        if self._device.type != "cuda":
            return 0
        torch.cuda.synchronize(self._device)
        self.take_peak()
        before = self.held
        torch._C._cuda_clearCublasWorkspaces()
        return before - self.held


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
