"""Attention of new tokens over a Cache: sealed pages, the open tail and the new tokens, merged exactly."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from localctx.kernels import cpu
from localctx.kernels.attend import Part, attend, merge
from localctx.kv.cache import Cache
from localctx.kv.codecs import Codec
from localctx.shape import PAGE

Expand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

RUN = 32  # pages decoded at a time in prefill: bounds the full-precision copy of history to 2,048 tokens


def attend_cache(
    cache: Cache,
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    window: int | None = None,
    softcap: float = 0,
    sinks: Tensor | None = None,
    expand: Expand | None = None,
) -> Tensor:
    """Causal attention of q [Hq, T, D] at positions length..length+T over the cache and the new k, v [H, T, D].

    ``expand`` makes keys and values of what a latent layer keeps (MLA); the new k, v are already expanded.

    ``window`` hides keys ``window`` or more positions back; ``softcap`` and ``sinks`` [Hq] as in
    ``localctx.kernels.attend``. Returns [Hq, T, Dv]. The cache is read, not extended.
    """
    parts = [*_over_pages(cache, layer, q, scale, window, softcap, expand)]
    if cache.tail:
        tail_k, tail_v = cache.open_tail(layer)
        if expand:
            tail_k, tail_v = expand(tail_k, tail_v)
        mask = _mask(q, cache.length, len(cache.pages) * PAGE, cache.tail, window)
        parts.append(attend(q, tail_k, tail_v, scale, mask=mask, softcap=softcap))
    mask = _mask(q, cache.length, cache.length, q.shape[1], window)
    if mask is not None:
        mask = mask.tril()
    parts.append(attend(q, k, v, scale, causal=mask is None, mask=mask, softcap=softcap))
    return merge(parts, sinks)


def _over_pages(
    cache: Cache, layer: int, q: Tensor, scale: float, window: int | None, softcap: float, expand: Expand | None
) -> Iterator[Part]:
    unseen = max(0, cache.length + 1 - window) if window else 0  # the first new token sees nothing before this
    first = unseen // PAGE
    if first >= len(cache.pages):
        return
    if q.shape[1] == 1 and q.device.type == "cpu" and not expand:
        out, lse = cpu.attend_pages(
            q[:, 0].float().numpy(), cache.addresses(layer, first), _layout(cache, layer), scale, unseen % PAGE, softcap
        )
        yield torch.from_numpy(out).to(q.dtype)[:, None], torch.from_numpy(lse)[:, None]
        return
    for start in range(first, len(cache.pages), RUN):
        stop = min(start + RUN, len(cache.pages))
        k, v = _decode(cache, layer, start, stop, q.dtype)
        if expand:
            k, v = expand(k, v)
        mask = _mask(q, cache.length, start * PAGE, k.shape[1], window)
        yield attend(q, k, v, scale, mask=mask, softcap=softcap)


def _decode(cache: Cache, layer: int, start: int, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if cache.pool.device.type != "cpu":
        return cache.pool.codecs[layer].decode(cache.records(layer, start, stop), dtype)
    k, v = cpu.unpack_pages(cache.addresses(layer)[start:stop], _layout(cache, layer))
    return torch.from_numpy(k).to(dtype), torch.from_numpy(v).to(dtype)


def _layout(cache: Cache, layer: int) -> cpu.Layout:
    return layout_of(cache.pool.codecs[layer])


def layout_of(codec: Codec) -> cpu.Layout:
    """A codec's record as the CPU kernels want it described."""
    s, y = codec.shape, codec.layout
    return cpu.Layout(
        cpu.KINDS[codec.name],
        s.kv_heads,
        s.k_dim,
        s.v_dim,
        y.k_codes,
        y.k_scale,
        y.k_zero,
        y.v_codes,
        y.v_scale,
        y.v_zero,
    )


def _mask(q: Tensor, q_start: int, k_start: int, keys: int, window: int | None) -> Tensor | None:
    """[T, keys] True where the window shows a key; None where every query sees every key."""
    tokens = q.shape[1]
    if window is None or q_start + tokens - 1 - k_start < window:
        return None
    at_q = torch.arange(q_start, q_start + tokens, device=q.device)[:, None]
    at_k = torch.arange(k_start, k_start + keys, device=q.device)
    return at_q - at_k < window
