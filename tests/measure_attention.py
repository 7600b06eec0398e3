"""The speed of one layer's decode attention: python tests/measure_attention.py [tokens ...] [--runs 40] [--threads 2].

A token of the default model's shape (9 query heads, 3 KV heads, head 64) attends to int8 pages, by integers and by
float32 in turns, beside a large copy. Printed are the best and the median of the runs: the best is what the processor
can do, the median also what else it does. The difference between both kernels is told against float64.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from localctx.kernels import decode_batch_cpu, decode_cpu
from localctx.kernels.integer_attention import WAY
from localctx.kernels.processor import INSTRUCTIONS
from localctx.kv.codecs import make_codec
from localctx.kv.page_format import layout_of
from localctx.shape import PAGE, LayerShape

SHAPE, HEADS, SCALE = LayerShape(3, 64, 64), 9, 0.125
COPIED = 256 << 20
LAYERS = 30  # that are read in turns, so that no layer's pages are in the cache again, as when a model decodes


def main(tokens: list[int], runs: int, threads: int) -> None:
    """Print a table for ``kernels/README.md``."""
    decode_cpu.set_threads(threads)
    torch.set_num_threads(threads)
    source = torch.ones(COPIED, dtype=torch.uint8)
    target = torch.empty_like(source)
    print(f"{processor()} ({INSTRUCTIONS}), {WAY.name}, {threads} threads, {runs} runs in turns\n")
    print("| tokens | kernel | us, best | us, median | ns a page and head | GB/s | of a copy | off by |")
    print("|---|---|---|---|---|---|---|---|")
    for count in tokens:
        ways = attentions(count // PAGE)
        times = in_turns({"copy": lambda: target.copy_(source), **{name: run for name, (run, _) in ways.items()}}, runs)
        copies = 2 * COPIED / min(times.pop("copy"))  # bytes a second, read and written
        nbytes = make_codec("int8", SHAPE).layout.total * (count // PAGE)
        for name, seconds in times.items():
            best, speed = min(seconds), nbytes / min(seconds)
            each = best * threads / (count // PAGE) / SHAPE.kv_heads
            middle = statistics.median(seconds)
            print(
                f"| {count:,} | {name} | {best * 1e6:.0f} | {middle * 1e6:.0f} | {each * 1e9:.0f} | "
                f"{speed / 1e9:.1f} | {speed / copies:.0%} of {copies / 1e9:.1f} | {ways[name][1]():.1e} |"
            )


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def attentions(pages: int) -> dict[str, tuple[Callable[[], object], Callable[[], float]]]:
    """Each way's run, over the next layer every time, and its error."""
    torch.manual_seed(0)
    codec = make_codec("int8", SHAPE)
    k, v = torch.randn(2, SHAPE.kv_heads, pages * PAGE, SHAPE.k_dim)
    records = codec.encode(k + 5 * torch.randn(SHAPE.kv_heads, 1, SHAPE.k_dim), v)
    layers = records[None].repeat(LAYERS, 1, 1)
    layout = layout_of(codec, make_codec("bf16", SHAPE))
    q, formats = torch.randn(HEADS, SHAPE.k_dim), np.zeros(pages, np.uint8)
    addresses = np.array([[page.data_ptr() for page in layer] for layer in layers], np.int64)
    keys, values = codec.decode(records, torch.float64)
    scores = torch.einsum("hgd,htd->hgt", q.double().unflatten(0, (SHAPE.kv_heads, -1)), keys) * SCALE
    right = torch.einsum("hgt,htd->hgd", scores.softmax(-1), values).flatten(0, 1).numpy()

    def way(integers: bool) -> tuple[Callable[[], object], Callable[[], float]]:
        mine, state = layout._replace(integers=integers), [0]

        def run() -> np.ndarray:
            assert len(layers) == LAYERS  # the addresses are theirs
            state[0] = (state[0] + 1) % LAYERS
            return decode_batch_cpu.attend_pages(q.numpy(), addresses[state[0]], formats, mine, SCALE)[0]

        return run, lambda: float(np.abs(run() - right).max())

    return {"integers": way(True), "float32": way(False)}


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
