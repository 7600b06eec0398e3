"""Correctness and speed of the Triton kernels on a GPU: ``python measure_gpu.py [tokens ...]``.

Checks each kernel against torch, then prints its time and its share of the memory bandwidth (measured with a large
copy) for a layer of Llama 3 8B. The L2 cache is cleared before each run. Then a random model with 1.2 billion
parameters decodes, with and without CUDA graphs.
"""

import statistics
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from localctx.kernels import quant, sketch
from localctx.kernels import reference as attention_reference
from localctx.kernels.cpu import selection as selection_cpu
from localctx.kernels.device import has_triton
from localctx.kv.cache import Cache
from localctx.kv.codecs import make_codec
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.kv.row_parts import split_rows_evenly
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.shape import PAGE, LayerShape, record_layout

CODECS = ("bf16", "int8", "k8v4", "int4", "int2")
SHAPE, HEADS, BF16 = LayerShape(8, 128, 128), 32, torch.bfloat16
NEAR = 2e-2  # relative to the largest number: bf16 has three digits


def main(tokens: list[int]) -> None:
    """Print a table for ``localctx/docs/benchmarks.md``."""
    device = torch.device("cuda")
    if not torch.cuda.is_available() or not has_triton(device):
        sys.exit("this needs an NVIDIA GPU, Ampere (sm_80) or later, with torch for CUDA (which brings Triton) and gcc")
    from triton.testing import do_bench

    from localctx.kv.backends.triton_check import describe

    limit = 2 * (1 << 30) / do_bench(large_copy(device), return_mode="median") / 1e6  # GB/s, read and written
    print(f"{torch.cuda.get_device_name()}, copies {limit:,.0f} GB/s; torch {torch.__version__}")
    print(f"attention: {describe(device)}\n")
    print("| kernel | codec | tokens | off by | µs | GB/s | of a copy |\n|---|---|---|---|---|---|---|")
    wrong = []
    for count in tokens:
        for name, codec, nbytes, run, error in kernels(count // PAGE, SHAPE, HEADS, device):
            off = error()
            ms = do_bench(run, return_mode="median")
            speed = nbytes / ms / 1e6
            print(f"| {name} | {codec} | {count:,} | {off:.0e} | {ms * 1e3:.1f} | {speed:,.0f} | {speed / limit:.0%} |")
            wrong += [f"{name} {codec} {count}"] if off > NEAR else []
    wrong += compare_steps(tokens, device)
    if wrong:
        sys.exit(f"not what torch computes: {', '.join(wrong)}")


def compare_steps(tokens: list[int], device: torch.device) -> list[str]:
    """Print the time of a decode step with and without CUDA graphs after each number of tokens; return the errors."""
    model, wrong = made_model(device, LARGE), list[str]()
    print("\n| decode | tokens | off by | ms |\n|---|---|---|---|")
    for count, keep in ((count, keep) for count in tokens for keep in ("full", "select:1/4")):
        _, (as_ever, captured) = (decoded(model, count, 64, keep) for _ in range(2))  # replays what the first captured
        off = _off(captured[0], as_ever[0])
        for name, (_, ms), apart in (("step by step", as_ever, ""), ("captured", captured, f"{off:.0e}")):
            print(f"| {name}, {keep} | {count:,} | {apart} | {ms:.2f} |")
        wrong += [f"captured {count} {keep}"] if off > NEAR else []
    return wrong + ([f"no capture ({model.graphs.refused})"] if model.graphs and model.graphs.refused else [])


def large_copy(device: torch.device) -> Callable[[], object]:
    """Return a function that copies a GiB."""
    some = torch.empty(2, 1 << 30, dtype=torch.uint8, device=device)
    return lambda: some[0].copy_(some[1])


Measured = tuple[str, str, int, Callable[[], object], Callable[[], float]]
"""A kernel's name, its codec, the bytes it must read and write, the kernel, and a function that returns its error."""


@dataclass(frozen=True)
class Inputs:
    """What kernels are measured on: keys and values k, v [H, pages * 64, D], queries q [1, Hq, D], a kind a page."""

    shape: LayerShape
    k: torch.Tensor
    v: torch.Tensor
    q: torch.Tensor
    kinds: torch.Tensor

    @property
    def device(self) -> torch.device:
        return self.k.device


def made_inputs(pages: int, shape: LayerShape, heads: int, device: torch.device) -> Inputs:
    """Random inputs of so many ``pages``, whose keys have channels that differ."""
    torch.manual_seed(0)
    k, v = (torch.randn(shape.kv_heads, pages * PAGE, d, device=device).to(BF16) for d in (shape.k_dim, shape.v_dim))
    k += 3 * torch.randn(shape.kv_heads, 1, shape.k_dim, device=device).to(BF16)
    q = torch.randn(1, heads, shape.k_dim, device=device).to(BF16)
    return Inputs(shape, k, v, q, torch.zeros(pages, dtype=torch.uint8, device=device))


def kernels(pages: int, shape: LayerShape, heads: int, device: torch.device) -> Iterator[Measured]:
    """Yield every kernel, over ``pages`` pages in random order."""
    from localctx.kernels.triton.rotation import rotate

    given = made_inputs(pages, shape, heads, device)
    for name in CODECS:
        sketches = yield from kernels_of_codec(given, name)
    yield from kernels_of_selection(given, sketches)
    error = lambda: _off(rotate(given.k), quant.rotate(given.k.float()))  # noqa: E731
    yield "rotate", "-", 3 * given.k.nbytes, partial(rotate, given.k), error


def kernels_of_codec(given: Inputs, name: str) -> Generator[Measured, None, sketch.Sketch]:
    """Yield the kernels that read or write records of a codec. Returns the sketch of the keys in them."""
    from localctx.kernels.triton import attention as attention_triton
    from localctx.kernels.triton import pages as pages_triton
    from localctx.kernels.triton import sketch as sketch_triton

    shape, k, v, q, kinds, device = given.shape, given.k, given.v, given.q, given.kinds, given.device
    pages, tails = len(kinds), attention_triton.TritonOpenPages(*_open_page(shape, device))
    codec, layout = make_codec(name, shape), _layout(name, shape, device)
    records = torch.empty(pages, record_layout(shape, name).total, dtype=torch.uint8, device=device)
    order = torch.randperm(pages, device=device)
    at = records.data_ptr() + order * records.shape[1]
    parts = split_rows_evenly(np.array([0, pages]), [(0, 0)], attention_triton.parts_wanted(layout), np.zeros(pages))
    seen = pages_in_parts(parts, 1, at, kinds)

    def held() -> tuple[torch.Tensor, torch.Tensor]:
        return codec.decode(records[order], torch.float32)

    def seal() -> None:
        pages_triton.seal(k, v, at, layout, 0)

    def seal_error() -> float:
        seal()
        return _off(held()[0], codec.decode(codec.encode(k, v), torch.float32)[0])

    def unseal() -> tuple[torch.Tensor, torch.Tensor]:
        return pages_triton.unseal(at, kinds, layout, BF16)

    def unseal_error() -> float:
        return max(_off(found, expected) for found, expected in zip(unseal(), held(), strict=True))

    def attend() -> torch.Tensor:
        return attention_triton.attend_rows(q, k[None, :, 0], v[None, :, 0], seen, tails, layout, shape.k_dim**-0.5)[0]

    def attend_error() -> float:
        keys, values = (torch.cat((x, new[:, :1].float()), 1) for x, new in zip(held(), (k, v), strict=True))
        expected, _ = attention_reference.attend_reference(q[0][:, None].float(), keys, values, shape.k_dim**-0.5)
        return _off(attend()[0], expected[:, 0])

    def make_sketch() -> sketch.Sketch:
        return sketch_triton.make_sketch(at, kinds, layout)

    def sketch_error() -> float:
        codes = sketch.make_sketch(codec.stored_keys(records[order])).codes
        return float((make_sketch().codes != codes).float().mean())  # some codes differ by rounding

    yield "seal", name, 2 * k.nbytes + records.numel(), seal, seal_error
    yield "unseal", name, 2 * k.nbytes + records.numel(), unseal, unseal_error
    yield "attend", name, records.numel(), attend, attend_error
    yield "sketch", name, records.numel() // 2 + make_sketch().nbytes, make_sketch, sketch_error
    return make_sketch()


def kernels_of_selection(given: Inputs, sketches: sketch.Sketch) -> Iterator[Measured]:
    """Yield the kernels that choose pages by their sketches, a quarter of them."""
    from localctx.kernels.triton import selection as selection_triton
    from localctx.kernels.triton.sketch import best_scores

    pages, scale, device = len(given.kinds), given.shape.k_dim**-0.5, given.device
    queries = given.q.view(given.shape.kv_heads, -1, given.shape.k_dim)
    count, most = max(4, pages // 4), max(4, 1 << (pages - 1).bit_length())  # as ``select:1/4`` chooses
    place, numbers = ([*(part.data_ptr() for part in sketches), pages], [pages, min(pages, count)])
    made = selection_triton.TritonSketch(*(torch.tensor(x, device=device) for x in (place, numbers)))
    bases, few = torch.arange(most, device=device), torch.zeros(most, dtype=torch.uint8, device=device)

    def score() -> torch.Tensor:
        return best_scores(queries, sketches)

    def choose() -> torch.Tensor:
        return selection_triton.choose(queries, scale, made, bases, few, 1, most).indices

    def choose_error() -> float:
        """The part of the pages of which torch says otherwise whether they are chosen; some are by rounding."""
        chosen = min(pages, count)
        expected = selection_cpu.choose(queries.float() * scale, sketches, chosen, 1, None, best_scores)
        found, wanted = (
            torch.zeros(len(x), pages, device=device).scatter_(1, x, 1.0) for x in (choose()[:, :chosen], expected)
        )
        return float((found != wanted).float().mean())

    yield "best scores", "-", sketches.nbytes, score, lambda: _off(score(), sketch.best_scores(queries, sketches))
    yield "best scores and choose", "-", sketches.nbytes, choose, choose_error


def pages_in_parts(parts: np.ndarray, rows: int, addresses: torch.Tensor, kinds: torch.Tensor):
    """``TritonPages`` of so many rows, whose ``parts`` [S, 4] are on the processor."""
    from localctx.kernels.triton.attention import TritonPages, bounds_of

    at, bounds = (torch.from_numpy(x).to(kinds.device) for x in (parts, bounds_of(parts, rows)))
    return TritonPages(at, bounds, addresses, kinds)


LARGE = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
LLAMA_3_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}


def made_model(device: torch.device, size: dict[str, int]) -> TransformersModel:
    """A random Llama in bf16 with 8 KV heads."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    how = {"vocab_size": 32_000, "num_key_value_heads": 8, "max_position_embeddings": 1 << 20, **size}
    before = torch.get_default_dtype()
    torch.set_default_dtype(BF16)
    try:
        with torch.device(device):
            return TransformersModel(LlamaForCausalLM(LlamaConfig(**how)))
    finally:
        torch.set_default_dtype(before)


def decoded(model: TransformersModel, context: int, count: int, keep: str = "full") -> list[tuple[torch.Tensor, float]]:
    """Decode ``count`` tokens after ``context`` tokens with and without CUDA graphs; return logits, median ms."""
    pool = Pool(model.shape, "int8", model.device, model.rope, in_place=False, triton=True)
    read, graphs, found = Cache(pool, BF16), model.graphs, list[tuple[torch.Tensor, float]]()
    for at in range(0, context, 512):
        model.forward([i * i % 31_991 for i in range(at, min(context, at + 512))], read)
    for model.graphs in (None, graphs):
        cache, logits, ms = read.fork(make_keeper(keep, context)), list[torch.Tensor](), list[float]()
        cache.enter_phase("answering")
        for i in range(count):
            start = time.perf_counter()
            logits.append(model.forward([i], cache)[0].cpu())
            ms.append(1000 * (time.perf_counter() - start))
        cache.drop()
        found.append((torch.stack(logits), statistics.median(ms)))
    read.drop()
    return found


def _open_page(shape: LayerShape, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the addresses and the length of an empty open page, which is never freed."""
    kept.append([torch.zeros(shape.kv_heads, PAGE, d, dtype=BF16, device=device) for d in (shape.k_dim, shape.v_dim)])
    nothing = torch.zeros(1, dtype=torch.int64, device=device)
    return torch.tensor([[x.data_ptr() for x in kept[-1]]], device=device), nothing, nothing


kept: list[list[torch.Tensor]] = []


def _layout(name: str, shape: LayerShape, device: torch.device):
    from localctx.kernels.triton.records import TritonLayerLayout

    f, y = make_codec(name, shape).format, record_layout(shape, name)
    offsets = torch.tensor([[y.k_codes, y.k_scale, y.k_zero, y.v_codes, y.v_scale, y.v_zero]] * 2, device=device)
    bits = ((f.k_bits, f.v_bits), (16, 16))
    return TritonLayerLayout(shape.kv_heads, shape.k_dim, shape.v_dim, bits, offsets)


def _off(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [4096, 32_768, 131_072])
