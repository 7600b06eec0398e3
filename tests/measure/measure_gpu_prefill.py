"""Attention of a chunk of a prompt over encoded pages on a GPU, for one layer of Llama 3 8B:
``python measure_gpu_prefill.py [tokens ...]``.

Beside SDPA's flash attention over keys and values in bf16, which take two or four times the memory. ``off by`` is
relative to the greatest number of what flash attention computes over the same decoded keys and values.
"""

import sys

import torch
from measure_gpu import BF16, HEADS, SHAPE

from localctx.kv.attention import attend_cache
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.shape import KVShape

CODECS = ("bf16", "int8", "int4", "int8+hadamard")
CHUNK = 2048


def main(tokens: list[int]) -> None:
    """Print a row for each codec and length of what was read before."""
    print(f"{torch.cuda.get_device_name()}, a chunk of {CHUNK:,} tokens\n")
    print("| tokens before | over | ms | of flash | off by | KV MiB | more memory MiB |\n|---|---|---|---|---|---|---|")
    for count in tokens:
        flash = None
        for codec in CODECS:
            flash = compare(count, codec, flash)


@torch.inference_mode()
def compare(count: int, codec: str, flash: float | None) -> float:
    """Print a row, and before the first that of flash attention; return flash attention's milliseconds."""
    from triton.testing import do_bench

    cache = filled(count, codec)
    q, k, v = (torch.randn(h, CHUNK, 128, dtype=BF16, device="cuda") for h in (HEADS, SHAPE.kv_heads, SHAPE.kv_heads))
    pairs = [cache.read(0, *run, BF16) for run in cache.table.runs(0, 0, cache.num_pages)]
    keys, values = (torch.cat([*parts, new], 1) for parts, new in zip(zip(*pairs, strict=True), (k, v), strict=True))
    expected = by_flash(q, keys, values)
    if flash is None:
        flash = flash_row(count, q, keys, values)
    del keys, values, pairs
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = attend_cache(cache, 0, q, k, v, 128**-0.5)
    more = (torch.cuda.max_memory_allocated() - before) / 2**20
    off = float((found.float() - expected.float()).abs().max() / expected.float().abs().max())
    ms = do_bench(lambda: attend_cache(cache, 0, q, k, v, 128**-0.5), warmup=10, rep=60, return_mode="median")
    mib = cache.pool.nbytes()["device"] / 2**20
    print(f"| {count:,} | {codec} | {ms:.2f} | {ms / flash:.2f} | {off:.0e} | {mib:.0f} | {more:.0f} |", flush=True)
    return flash


def flash_row(count: int, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> float:
    """Print the row of flash attention; return its milliseconds."""
    from triton.testing import do_bench

    ms = do_bench(lambda: by_flash(q, keys, values), warmup=10, rep=60, return_mode="median")
    mib = (keys.nbytes + values.nbytes) / 2**20
    print(f"| {count:,} | flash attention, bf16 | {ms:.2f} | 1.00 | | {mib:.0f} | |", flush=True)
    return ms


def filled(count: int, codec: str) -> Cache:
    """A cache of one layer with random keys and values."""
    cache = Cache(Pool(KVShape((SHAPE,)), codec, "cuda", in_place=False, triton=True), BF16)
    cache.begin(count)
    cache.extend(0, *(torch.randn(SHAPE.kv_heads, count, 128, dtype=BF16, device="cuda") for _ in "kv"))
    cache.commit()
    return cache


def by_flash(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The chunk's queries over all keys, the last of which are its own."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    mask = causal_lower_right(q.shape[1], keys.shape[1])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(
            q[None], keys[None], values[None], attn_mask=mask, scale=128**-0.5, enable_gqa=True
        )[0]


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [4096, 32_768, 131_072])
