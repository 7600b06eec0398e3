"""The speed of one layer's decode attention: python measure_attention.py [tokens ...] [--runs 40] [--threads 2].

A token of the default model's shape (9 query heads, 3 KV heads, head 64) attends to int8 pages, in turns with a
large copy. Printed are the best and the median of the runs: the best is what the processor can do, the median also what
else it does. The error is the greatest difference from float64.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from localctx.kernels.cpu import decode_batch as decode_batch_cpu
from localctx.kernels.cpu.threads import set_threads
from localctx.kernels.llvm.processor import INSTRUCTIONS
from localctx.kv.codecs import make_codec
from localctx.kv.page_format import layout_of
from localctx.shape import PAGE, LayerShape

SHAPE, HEADS, SCALE = LayerShape(3, 64, 64), 9, 0.125
COPIED = 256 << 20
LAYERS = 30  # that are read in turns, so that no layer's pages are in the cache again, as when a model decodes


def main(tokens: list[int], runs: int, threads: int) -> None:
    """Print a table for ``localctx/docs/benchmarks.md``."""
    set_threads(threads)
    torch.set_num_threads(threads)
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.empty_like(source)
    print(f"{processor()} ({INSTRUCTIONS}), {threads} threads, {runs} runs in turns\n")
    print("| tokens | us, best | us, median | ns a page and head | GB/s | of a copy | off by |")
    print("|---|---|---|---|---|---|---|")
    for count in tokens:
        attend, error = attention(count // PAGE)
        times = in_turns({"copy": lambda: target.copy_(source), "attend": attend}, runs)
        copies = 2 * COPIED / min(times["copy"])  # bytes a second, read and written
        best, middle = min(times["attend"]), statistics.median(times["attend"])
        speed = make_codec("int8", SHAPE).layout.total * (count // PAGE) / best
        each = best * threads / (count // PAGE) / SHAPE.kv_heads
        print(
            f"| {count:,} | {best * 1e6:.0f} | {middle * 1e6:.0f} | {each * 1e9:.0f} | "
            f"{speed / 1e9:.1f} | {speed / copies:.0%} of {copies / 1e9:.1f} | {error():.1e} |"
        )


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def attention(pages: int) -> tuple[Callable[[], np.ndarray], Callable[[], float]]:
    """A run over the next layer every time, and its error."""
    torch.manual_seed(0)
    codec = make_codec("int8", SHAPE)
    k, v = torch.randn(2, SHAPE.kv_heads, pages * PAGE, SHAPE.k_dim)
    records = codec.encode(k + 5 * torch.randn(SHAPE.kv_heads, 1, SHAPE.k_dim), v)
    layers = records[None].repeat(LAYERS, 1, 1)
    layout = layout_of(codec, make_codec("bf16", SHAPE))
    q, formats = torch.randn(HEADS, SHAPE.k_dim), np.zeros(pages, np.uint8)
    turns = cycle([(layer, np.array([page.data_ptr() for page in layer], np.int64)) for layer in layers])
    keys, values = codec.decode(records, torch.float64)
    scores = torch.einsum("hgd,htd->hgt", q.double().unflatten(0, (SHAPE.kv_heads, -1)), keys) * SCALE
    right = torch.einsum("hgt,htd->hgd", scores.softmax(-1), values).flatten(0, 1).numpy()

    def run() -> np.ndarray:
        _, addresses = next(turns)  # with the layer, which must outlive the call
        return decode_batch_cpu.attend_pages(q.numpy(), addresses, formats, layout, SCALE)[0]

    return run, lambda: float(np.abs(run() - right).max())


def in_turns(runs: dict[str, Callable[[], object]], count: int) -> dict[str, list[float]]:
    """The seconds of each, which are run one after another, ``count`` times. Each runs once before it is timed: for a
    quarter of a millisecond after a copy, some processors run wide vectors slowly.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(count + 1):
        for name, run in runs.items():
            run()
            begin = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begin)
    return {name: seconds[1:] for name, seconds in times.items()}  # the first one compiles


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", nargs="*", type=int, default=[32768])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    main(given.tokens, given.runs, given.threads)
