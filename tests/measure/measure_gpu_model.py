"""Decoding with a random model of Llama 3 8B's shape on a GPU: ``python measure_gpu_model.py [tokens ...]``.

Caches are filled with random keys and values. Beside each codec, with captured graphs, transformers' own caches decode
in the same run: DynamicCache with SDPA and, with ``--compiled``, a compiled StaticCache.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
from measure_gpu import BF16, LLAMA_3_8B, made_model

from localctx.kernels.device import has_triton
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.models.decoder.attention_function import use_our_attention
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.shape import LayerShape

WAYS = ("bf16", "int8", "k8v4", "int4", "int8 select:1/8")
STEPS = 24


def main() -> None:
    """Print a row for every way and context."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokens", type=int, nargs="*", default=[4096, 32_768, 131_072])
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--layers", type=int, default=LLAMA_3_8B["num_hidden_layers"])
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step")
    options = parser.parse_args()
    model = made_model(torch.device("cuda"), {**LLAMA_3_8B, "num_hidden_layers": options.layers})
    print(f"{torch.cuda.get_device_name()}, weights {model.nbytes / 1e9:.1f} GB\n")
    print("| tokens | way | ms a token | least | times as fast | GiB |\n|---|---|---|---|---|---|", flush=True)
    for tokens in options.tokens:
        first = None
        for way in ("DynamicCache", *options.ways.split(","), *(["compiled StaticCache"] if options.compiled else [])):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            ms = list(timed(step_of(model, way, tokens), STEPS))
            median, peak = statistics.median(ms[4:]), torch.cuda.max_memory_allocated() / 2**30
            first = first or median
            print(
                f"| {tokens:,} | {way} | {median:.2f} | {min(ms):.2f} | {first / median:.2f} | {peak:.1f} |", flush=True
            )
            if options.profile and way == "int8":
                print_kernels(step_of(model, way, tokens))
    if model.graphs and model.graphs.refused:
        sys.exit(f"no capture: {model.graphs.refused}")


def timed(step: Callable[[int], object], count: int) -> Iterator[float]:
    """Milliseconds of each of ``count`` steps."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    for i in range(count):
        wait()
        start = time.perf_counter()
        step(i)
        wait()
        yield 1000 * (time.perf_counter() - start)


def step_of(model: TransformersModel, way: str, tokens: int) -> Callable[[int], object]:
    """A function that decodes one more token behind ``tokens`` random ones in a cache."""
    if way == "DynamicCache":
        return dynamic_step(model, tokens)
    if way == "compiled StaticCache":
        return compiled_step(model, tokens)
    codec, _, keep = way.partition(" ")
    use_our_attention(model._module)
    cache = filled(model, codec, keep or "full", tokens)
    return lambda i: model.forward([i + 5], cache)


def filled(model: TransformersModel, codec: str, keep: str, tokens: int) -> Cache:
    """A cache of random keys and values, in which an answer is about to be decoded."""
    pool = Pool(model.shape, codec, model.device, model.rope, in_place=False, triton=has_triton(model.device))
    cache = Cache(pool, BF16, make_keeper(keep, tokens))
    with torch.inference_mode():
        cache.begin(tokens)
        for layer, shape in enumerate(model.shape.layers):
            cache.extend(layer, *made(shape, tokens, model.device))
        cache.commit()
    cache.enter_phase("answering")
    return cache


def made(shape: LayerShape, tokens: int, device: torch.device) -> list[torch.Tensor]:
    """Random keys and values of a layer."""
    dims = shape.k_dim, shape.v_dim
    return [torch.randn(shape.kv_heads, tokens, dim, dtype=BF16, device=device) for dim in dims]


def dynamic_step(model: TransformersModel, tokens: int) -> Callable[[int], object]:
    """With transformers' growing cache, and SDPA."""
    from transformers import DynamicCache

    module, cache = model._module, DynamicCache(config=model._module.config)
    module.set_attn_implementation("sdpa")
    for layer, shape in enumerate(model.shape.layers):
        keys, values = made(shape, tokens, model.device)
        cache.update(keys[None], values[None], layer)

    @torch.inference_mode()
    def step(i: int) -> object:
        token = torch.tensor([[i + 5]], device=model.device)
        return module(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1).item()

    return step


def compiled_step(model: TransformersModel, tokens: int) -> Callable[[int], object]:
    """With transformers' preallocated cache, compiled with CUDA graphs."""
    from transformers import StaticCache

    module = model._module
    module.set_attn_implementation("sdpa")
    cache = StaticCache(config=module.config, max_cache_len=tokens + 2 * STEPS)
    for layer, shape in enumerate(model.shape.layers):
        keys, values = made(shape, tokens, model.device)
        cache.update(keys[None], values[None], layer)
    forward = torch.compile(module.forward, mode="reduce-overhead", fullgraph=True)

    @torch.inference_mode()
    def step(i: int) -> object:
        token, at = torch.tensor([[i + 5]], device="cuda"), torch.tensor([[tokens + i]], device="cuda")
        return forward(input_ids=token, position_ids=at, past_key_values=cache, use_cache=True).logits.argmax(-1).item()

    return step


def print_kernels(step: Callable[[int], object]) -> None:
    """Where the time of a step goes."""
    for i in range(3):
        step(i)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step(3)
        torch.cuda.synchronize()
    print(profile.key_averages().table(sort_by="cuda_time_total", row_limit=12, max_name_column_width=60))


if __name__ == "__main__":
    main()
