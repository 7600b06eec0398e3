"""Decoding with KV in lower tiers: ``python measure_gpu_pressure.py [--device cuda] [--tokens 32768]``.

A random model with Llama 3 8B's layers decodes behind random keys and values in int8, all on the GPU; an eighth there
and the rest in RAM; an eighth there, an eighth in RAM, the rest on disk. Beside the time of a step: what was copied to
the GPU, how long that takes at the bandwidth of one large copy, and alone, as these records are copied; the share of
the copying during which other kernels ran, by a profile and by the times; and how far the logits are from those with
all on the GPU. ``by kernel`` are copies of records by our kernel, ``by driver`` one by one. Steps on the GPU alone are
timed with captured graphs, as they are, and without, as the others.
"""

import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from measure_gpu import BF16, LLAMA_3_8B, made_model

from localctx.budget import TierLimits
from localctx.kernels.device import has_triton
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.page_format import ORDINARY
from localctx.kv.pool import Pool
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.shape import PAGE

WARM, STEPS, CHUNK = 4, 8, 4096
KEEPS = ("full", "select:1/8")
TINY = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 8}
HEAD = (
    "| pages | keep | by | device/host/disk | ms a token | tokens/s | MB copied | alone ms | limit ms | of it | hidden "
    "| off by |"
)


def main() -> None:
    """Print a row for every way; one that fails prints why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the script")
    options = parser.parse_args()
    device, began = torch.device(options.device), time.perf_counter()
    model = made_model(device, {**(TINY if options.tiny else LLAMA_3_8B), "num_hidden_layers": options.layers})
    bandwidth = copy_bandwidth(device)
    print(f"{name_of(device)}; one large copy from pinned memory {bandwidth / 1e9:.1f} GB/s; torch {torch.__version__}")
    print(f"\n{HEAD}\n|{'---|' * 12}", flush=True)
    for name, limits in tiers(model, options.tokens).items():
        try:
            measure_tiers(model, name, limits, options.tokens, bandwidth)
        except Exception:
            print(f"| {name} | failed |\n{traceback.format_exc()}", flush=True)
        release(device)
    if model.graphs and model.graphs.refused:
        print(f"\nno capture: {model.graphs.refused}")
    print(f"\n{time.perf_counter() - began:.0f} s", flush=True)


def tiers(model: TransformersModel, tokens: int) -> dict[str, TierLimits]:
    """The limits of each way."""
    eighth = model.shape.cache_bytes("int8", tokens) // 8
    return {
        "all on the device": TierLimits(None, None, None),
        "1/8 device, rest RAM": TierLimits(eighth, None, None),
        "1/8 device, 1/8 RAM, rest disk": TierLimits(eighth, eighth, None),
    }


def measure_tiers(model: TransformersModel, name: str, limits: TierLimits, tokens: int, bandwidth: float) -> None:
    """Print the rows of one way to divide the pages among tiers."""
    with tempfile.TemporaryDirectory() as folder:
        cache = filled(model, limits, tokens, Path(folder))
        backend, graphs = cache.pool.backend, model.graphs
        if limits.device is None:
            print_rows(model, cache, f"{name}, captured", bandwidth)
        model.graphs = None
        for gathers in [True, False] if backend.gathers and limits.device else [backend.gathers]:
            backend.gathers = gathers  # type: ignore[misc]
            print_rows(model, cache, name, bandwidth)
        model.graphs = graphs
        cache.drop()


def print_rows(model: TransformersModel, cache: Cache, name: str, bandwidth: float) -> None:
    """Print a row for every keeper; one that fails prints why."""
    for keep in KEEPS:
        try:
            print_row(model, cache, name, keep, bandwidth)
        except Exception:
            print(f"| {name} | {keep} | failed |\n{traceback.format_exc()}", flush=True)


expected: dict[str, torch.Tensor] = {}
"""The logits with all pages on the device, by keeper."""
without_copies: dict[str, float] = {}
"""The milliseconds of a step with all pages on the device, without a graph, by keeper."""


def print_row(model: TransformersModel, read: Cache, name: str, keep: str, bandwidth: float) -> None:
    """Decode with a keeper and print a row."""
    cache, pool = read.fork(make_keeper(keep, read.length)), read.pool
    cache.enter_phase("answering")
    copied = count_copied(pool)

    def step() -> torch.Tensor:
        return model.forward([7], cache)[0].cpu()

    logits = torch.stack([step() for _ in range(WARM)])
    first = expected.setdefault(keep, logits)
    off = float((logits - first).abs().max() / first.abs().max())
    copied.clear()
    ms = [timed(step, pool.device) for _ in range(STEPS)]
    nbytes, median = sum(copied) / STEPS, statistics.median(ms)
    limit = 1e3 * nbytes / bandwidth
    hidden = profiled_share(step) if pool.device.type == "cuda" and nbytes else ""
    del pool.copy_records  # type: ignore[attr-defined]
    if not nbytes:
        without_copies[keep] = median  # of the last way without copies
    alone = copied_alone(cache) if nbytes and keep == "full" else 0.0
    by_times = f"; {1 - (median - without_copies.get(keep, 0.0)) / alone:.0%} by times" if alone else ""
    where = "/".join(str(n) for n in pool.counts(cache.pages).values())
    by = "-" if not nbytes else "kernel" if pool.backend.gathers else "driver"
    speed = [f"{median:.2f}", f"{1e3 / median:.0f}", f"{nbytes / 1e6:.0f}", f"{alone:.2f}", f"{limit:.2f}"]
    cells = [name, keep, by, where, *speed, f"{limit / median:.0%}", f"{hidden}{by_times}"]
    print(f"| {' | '.join(cells)} | {off:.0e} |", flush=True)
    cache.drop()


def copied_alone(cache: Cache) -> float:
    """Milliseconds of copying the records of all layers that are not on the device, while nothing else runs."""
    pool = cache.pool
    far = [page for page in cache.pages if page not in pool.device_tier]
    far = [page for page, kind in zip(far, pool.kinds(far), strict=True) if kind == ORDINARY]
    out = torch.empty(len(far), pool.record_bytes(far[0], 0), dtype=torch.uint8, device=pool.device)

    def copy() -> None:
        for layer in range(len(pool.shape.layers)):
            pool.copy_records(far, layer, out, range(len(far)))
        synchronize(pool.device)

    return min(timed(copy, pool.device) for _ in range(3))


def filled(model: TransformersModel, limits: TierLimits, tokens: int, spill: Path) -> Cache:
    """A cache of random keys and values, whose pages are in the tiers that ``limits`` say."""
    on_gpu = has_triton(model.device)
    pool = Pool(model.shape, "int8", model.device, model.rope, limits, spill, in_place=False, triton=on_gpu)
    cache = Cache(pool, BF16)
    torch.manual_seed(1)
    with torch.inference_mode():
        for at in range(0, tokens, CHUNK):
            count = min(CHUNK, tokens - at)
            cache.begin(count)
            for layer, shape in enumerate(model.shape.layers):
                k, v = (
                    torch.randn(shape.kv_heads, count, dim, dtype=BF16, device=model.device)
                    for dim in (shape.k_dim, shape.v_dim)
                )
                cache.extend(layer, k, v)
            cache.commit()
    assert cache.num_pages == tokens // PAGE
    return cache


def count_copied(pool: Pool) -> list[int]:
    """The bytes of every copy from lower tiers, from here on."""
    copied, copy = list[int](), pool.copy_records

    def counted(pages: Sequence[int], layer: int, *how: Any) -> None:
        copied.append(sum(pool.record_bytes(page, layer) for page in pages if page not in pool.device_tier))
        copy(pages, layer, *how)

    pool.copy_records = counted  # type: ignore[method-assign]
    return copied


def timed(step: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of a step, which waits for its token."""
    synchronize(device)
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes a second of one large copy from pinned memory."""
    on_gpu = device.type == "cuda"
    source = torch.empty(256 << 20 if on_gpu else 1 << 20, dtype=torch.uint8, pin_memory=on_gpu)
    target = torch.empty_like(source, device=device, pin_memory=False)
    best = min(timed(lambda: (target.copy_(source, non_blocking=True), synchronize(device)), device) for _ in range(6))
    return 1e3 * source.numel() / best


# --- What ran at the same time

Range = tuple[float, float]


def profiled_share(step: Callable[[], object]) -> str:
    """``hidden_share``, or why there is none."""
    try:
        return hidden_share(step)
    except Exception as e:
        return f"no profile ({type(e).__name__}: {e})"


def hidden_share(step: Callable[[], object]) -> str:
    """How long copies to the device took in a step, and the share of it during which other streams computed."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        return share_of_trace(json.loads(trace.read_text())["traceEvents"])


def share_of_trace(events: Sequence[dict[str, Any]]) -> str:
    """``hidden_share`` of the events of a profile."""
    ran = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in e]
    copies = [e for e in ran if "HtoD" in e["name"] or e["name"].startswith("_gather")]
    kernels = [e for e in ran if e["cat"] == "kernel" and e not in copies]
    streams = {e["args"].get("stream") for e in copies}
    total = hidden = 0.0
    for stream in streams:
        mine = joined(range_of(e) for e in copies if e["args"].get("stream") == stream)
        others = joined(range_of(e) for e in kernels if e["args"].get("stream") != stream)
        total += length(mine)
        hidden += overlap(mine, others)
    beside = length(joined(range_of(e) for e in kernels))
    return f"{hidden / total:.0%} of {total / 1e3:.2f} ms; kernels {beside / 1e3:.2f} ms" if total else "no copies"


def range_of(event: dict[str, Any]) -> Range:
    """When it began and ended."""
    return event["ts"], event["ts"] + event["dur"]


def joined(ranges: Any) -> list[Range]:
    """Their union, in order."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found


def length(ranges: Sequence[Range]) -> float:
    """The sum of their lengths."""
    return sum(stop - start for start, stop in ranges)


def overlap(one: Sequence[Range], other: Sequence[Range]) -> float:
    """How long two unions of ranges are both there."""
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in other)


def name_of(device: torch.device) -> str:
    """What the device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def synchronize(device: torch.device) -> None:
    """Wait for everything that was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release(device: torch.device) -> None:
    """Give cached memory back."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
