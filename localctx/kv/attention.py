"""Attention of new tokens over a Cache: sealed pages, the open tail and the new tokens, merged exactly."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from localctx.kernels import decode_cpu, quant
from localctx.kernels.attention_reference import Part, attend, attend_reference, merge
from localctx.kernels.prefill_cpu import attend_chunk
from localctx.kernels.sketch import choose as best_pages
from localctx.kv.cache import RUN, Cache, first_seen
from localctx.kv.keepers import DENSE_LAYERS, OBSERVED
from localctx.kv.pool import ORDINARY
from localctx.shape import PAGE, SINKS

Expand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

MERGED = 8  # parts held before they are merged: bounds what a long history takes


@dataclass
class _AttentionCall:
    """One layer's question to the cache. ``masses``: (places of pages [n] or [H, n], each page's own lse [Hq, T, n]) as
    they come; where the keeper does not weigh, only of the last token."""

    cache: Cache
    layer: int
    q: Tensor
    scale: float
    window: int | None
    softcap: float
    expand: Expand | None
    masses: list[tuple[np.ndarray, Tensor]]

    @property
    def single(self) -> bool:
        """Whether the kernel for one token applies."""
        return self.q.shape[1] == 1 and not self.expand and self.cache.in_place()

    @property
    def plain(self) -> bool:
        """Whether the kernel for many tokens applies, which all look at all that is before them. It computes in
        float32: a processor that multiplies bf16 is faster by torch.
        """
        cache, pool = self.cache, self.cache.pool
        sees_all = self.window is None and not cache.keeper.weighs and not selects(cache, self.layer, self.window)
        as_stored = cache.in_place() and not pool.gpu and not pool.unbiased(self.layer) and not self.expand
        return self.q.shape[1] > 1 and self.q.dtype == torch.float32 and sees_all and as_stored

    @property
    def watched(self) -> bool:
        """Whether to note what the pages get: early layers look at everything a little, sliding ones only near."""
        late = self.layer >= len(self.cache.pool.shape.layers) // 2
        return self.cache.attention_mass is not None and self.window is None and late


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
    """Causal attention of q [Hq, T, D] at positions position..position+T over the cache and the new k, v [H, T, D].

    ``window`` hides keys ``window`` or more positions back; ``softcap`` and ``sinks`` [Hq] as in
    ``localctx.kernels.attention_reference``. ``expand`` makes keys and values of what a latent layer keeps (MLA); the
    new k, v are already expanded. Returns [Hq, T, Dv]. The cache is read, not extended; its keeper hears what got
    attention.
    """
    asked = _AttentionCall(cache, layer, q, scale, window, softcap, expand, [])
    parts = [_chunk(asked, k, v)] if asked.plain else _parts(asked, k, v)
    out, lse = merge(parts, sinks)
    _tell(asked, lse)
    if cache.keeper.compresses and cache.phase == "asking" and window is None:
        cache.observed[layer] = _observe(asked, lse)
    return out


def _parts(a: _AttentionCall, k: Tensor, v: Tensor) -> list[Part]:
    """Sealed pages, the open page and the new tokens, each by itself."""
    cache, parts = a.cache, list[Part]()
    for part in _over_pages(a):
        parts.append(part)
        if len(parts) == MERGED:
            parts = [merge(parts)]
    if cache.tail:
        tail = cache.open_tail(a.layer)
        parts.append(_part(a, *(a.expand(*tail) if a.expand else tail), _after(cache, -cache.tail, cache.tail)))
    mask = _mask(a, _after(cache, 0, a.q.shape[1]))
    if mask is not None:
        mask = mask.tril()
    parts.append(attend(a.q, k, v, a.scale, causal=mask is None, mask=mask, softcap=a.softcap))
    return parts


def _tell(a: _AttentionCall, lse: Tensor) -> None:
    """Tell the cache what each page got, now that all queries' ``lse`` [Hq, T] is known."""
    if not a.masses:
        return
    places = np.concatenate([at for at, _ in a.masses], -1)
    masses = torch.cat([mass for _, mass in a.masses], -1)
    got = (masses - lse[:, -masses.shape[1] :, None]).exp()
    if a.cache.keeper.weighs:
        a.cache.weigh(int(places[0]), got.mean(0).sum(0).double().cpu().numpy())
    if a.watched:
        heads = len(places) if places.ndim == 2 else 1
        sharp = got[:, -1].square()  # a head that looks hard at one page says more than many that look everywhere
        a.cache.add_attention(places, sharp.unflatten(0, (heads, -1)).sum(1).double().cpu().numpy())


def _over_pages(a: _AttentionCall) -> Iterator[Part]:
    count = len(a.cache.placed_pages)
    first, skip = (0, 0) if a.window is None else first_seen(a.cache, a.layer, a.window)
    if first >= count:
        return
    if selects(a.cache, a.layer, a.window) and not a.expand:
        yield from _over_selected(a)
    elif a.single:
        yield _single(a, np.arange(first, count), skip)
    else:
        for start, stop in a.cache.runs(first, 1 if a.cache.keeper.weighs else RUN):
            k, v = _read(a, start, stop)
            part = _part(a, k, v, a.cache.token_positions(a.layer, start, stop))
            if a.cache.keeper.weighs:
                a.masses.append((np.arange(start, stop), part[1][..., None]))
            elif a.watched:
                a.masses.append((np.arange(start, stop), _each(a, k)))
            yield part


def _each(a: _AttentionCall, k: Tensor) -> Tensor:
    """The last query's lse of every page of these keys [H, n * 64, D]: [Hq, 1, n]."""
    return _scores(a, a.q[:, -1:], k).flatten(0, 1).unflatten(-1, (-1, PAGE)).logsumexp(-1)


def _scores(a: _AttentionCall, q: Tensor, k: Tensor) -> Tensor:
    """[H, Hq / H, T, S] float32. One product a KV head: a broadcast one would copy its keys for every query head."""
    grouped = q.unflatten(0, (k.shape[0], -1))
    scores = (grouped.flatten(1, 2) @ k.transpose(1, 2)).unflatten(1, grouped.shape[1:3]).float() * a.scale
    return a.softcap * torch.tanh(scores / a.softcap) if a.softcap else scores


def _read(a: _AttentionCall, start: int, stop: int) -> tuple[Tensor, Tensor]:
    k, v = a.cache.read(a.layer, start, stop, a.q.dtype)
    return a.expand(k, v) if a.expand else (k, v)


def _part(a: _AttentionCall, k: Tensor, v: Tensor, positions: Tensor) -> Part:
    return attend(a.q, k, v, a.scale, mask=_mask(a, positions), softcap=a.softcap)


def _after(cache: Cache, start: int, count: int) -> Tensor:
    return torch.arange(cache.position + start, cache.position + start + count, device=cache.pool.device)


def _mask(a: _AttentionCall, positions: Tensor) -> Tensor | None:
    """[T, keys] True where the window shows the key at a position; None where every query sees every key."""
    tokens = a.q.shape[1]
    if a.window is None or a.cache.position + tokens - 1 - int(positions[0]) < a.window:
        return None
    return _after(a.cache, 0, tokens)[:, None] - positions < a.window


# --- Over records in place


def _single(a: _AttentionCall, places: np.ndarray, skip: int = 0, t: int = 0) -> Part:
    """Token ``t`` over the pages at ``places``: [n], or [H, n] where each KV head has its own."""
    pool = a.cache.pool
    if pool.gpu:
        return _on_gpu(a, torch.from_numpy(places).to(pool.device), skip)
    weighs = a.cache.keeper.weighs or (a.watched and t == a.q.shape[1] - 1)
    addresses, kinds = a.cache.addresses(a.layer)
    q = a.q[:, t].float()
    extra = _extra(a, torch.from_numpy(places), [t])
    out, lse, each = decode_cpu.attend_pages(
        (quant.rotate(q) if pool.rotated else q).numpy(),
        addresses[places],
        kinds[places],
        pool.layouts[a.layer],
        a.scale,
        skip,
        a.softcap,
        None if extra is None else extra.contiguous().numpy(),
        weighs,
    )
    if weighs:
        a.masses.append((places, torch.from_numpy(each)[:, None]))
    result = torch.from_numpy(out)
    result = quant.rotate(result) if pool.rotated else result
    return result.to(a.q.dtype)[:, None], torch.from_numpy(lse)[:, None]


def _chunk(a: _AttentionCall, k: Tensor, v: Tensor) -> Part:
    """All tokens over everything, in one pass."""
    cache, pool = a.cache, a.cache.pool
    if a.watched and cache.placed_pages:
        _single(a, np.arange(len(cache.placed_pages)), t=a.q.shape[1] - 1)  # which notes what pages get
    fresh = (torch.cat(pair, 1) for pair in zip(cache.open_tail(a.layer), (k, v), strict=True))
    numbers = [quant.rotate(x) if pool.rotated else x for x in (a.q, *fresh)]
    where = *cache.addresses(a.layer), pool.layouts[a.layer]
    out, lse = attend_chunk(numbers[0], numbers[1], numbers[2], *where, a.scale, a.softcap)
    return quant.rotate(out) if pool.rotated else out, lse


def _on_gpu(a: _AttentionCall, places: Tensor, skip: int = 0) -> Part:
    """Each token over its own pages in a GPU's memory: ``places`` [T * n], or [H, T * n] by KV head."""
    pool, tokens = a.cache.pool, a.q.shape[1]
    assert pool.gpu
    weighs, last = a.cache.keeper.weighs or a.watched, places.shape[-1] // tokens
    extra = _extra(a, places, range(tokens))
    how = {"skip": skip, "softcap": a.softcap, "extra": extra, "masses": weighs}
    out, lse, each = pool.gpu.attend(a.cache, a.layer, a.q, places, a.scale, **how)
    if weighs:
        a.masses.append((places[..., -last:].cpu().numpy(), each[:, None, -last:]))
    return out, lse


def _extra(a: _AttentionCall, places: Tensor, tokens: Sequence[int]) -> Tensor | None:
    """``bias_scores`` of these tokens, scaled, for pages at places [T * n] or [H, T * n]: [Hq, T * n * 64]."""
    if not a.cache.pool.unbiased(a.layer):
        return None
    heads = a.cache.pool.layouts[a.layer].heads
    at = places.expand(heads, -1).repeat_interleave(len(a.q) // heads, 0).unflatten(1, (len(tokens), -1))
    scores = torch.stack([bias_scores(a.cache, a.layer, a.q[:, t]) for t in tokens], 1).mul_(a.scale)
    return scores.unflatten(2, (-1, PAGE)).take_along_dim(at[..., None], 2).flatten(1)


def bias_scores(cache: Cache, layer: int, q: Tensor) -> Tensor:
    """What k_proj's bias, which records are kept without, adds to q [Hq, D] . key of every page's tokens:
    [Hq, n * 64], of sinks nothing.
    """
    pool, count = cache.pool, len(cache.placed_pages)
    assert pool.rope
    scores = pool.rope.bias_scores(layer, q.float(), cache.token_positions(layer, 0, count))
    ordinary = torch.from_numpy(pool.kinds(cache.pages) == ORDINARY).to(scores)
    return (scores.unflatten(1, (count, PAGE)) * ordinary[:, None]).flatten(1)


# --- Pages chosen by the query


def selects(cache: Cache, layer: int, window: int | None) -> bool:
    """Whether a query sees only pages that it chooses in this layer."""
    count = len(cache.placed_pages)
    sees_all = window is not None or layer < DENSE_LAYERS or cache.phase == "reading"
    return not sees_all and cache.keeper.selected(count) < count


def choose(cache: Cache, layer: int, q: Tensor) -> Tensor:
    """The places that a token q [Hq, D] may see, ascending: [H, selected]. Joined over the queries of a KV head."""
    pool, sketch = cache.pool, cache.sketch(layer)
    grouped = (quant.rotate(q.float()) if pool.rotated else q.float()).unflatten(0, (len(sketch.codes), -1))
    extra = bias_scores(cache, layer, q).unflatten(0, grouped.shape[:2]) if pool.unbiased(layer) else None
    count, score = cache.keeper.selected(len(cache.placed_pages)), pool.gpu.best_scores if pool.gpu else None
    return best_pages(grouped, sketch, count, SINKS, extra, score)


def _over_selected(a: _AttentionCall) -> Iterator[Part]:
    chosen = torch.stack([choose(a.cache, a.layer, a.q[:, t]) for t in range(a.q.shape[1])], 1)  # [H, T, selected]
    union = chosen.unique()
    places = union.cpu().numpy()
    a.cache.touch(places)
    if not a.cache.in_place(places):
        yield from _over_union(a, chosen, union)
        return
    if a.cache.pool.gpu:
        yield _on_gpu(a, chosen.flatten(1))
        return
    parts = [_single(a, chosen[:, t].numpy(), t=t) for t in range(a.q.shape[1])]
    yield torch.cat([out for out, _ in parts], 1), torch.cat([lse for _, lse in parts], 1)


def _over_union(a: _AttentionCall, chosen: Tensor, union: Tensor) -> Iterator[Part]:
    """The pages any query chose, brought to the device one by one; each query sees its own."""
    group = a.q.shape[0] // len(chosen)
    for place in union.tolist():
        k, v = _read(a, place, place + 1)
        sees = (chosen == place).any(-1).repeat_interleave(group, 0)
        out, lse = attend_reference(a.q, k, v, a.scale, mask=sees[..., None].expand(-1, -1, PAGE), softcap=a.softcap)
        if a.watched:
            a.masses.append((np.array([place]), lse[:, -1:, None]))
        yield out, lse


# --- What the prompt's last queries look at


def _observe(a: _AttentionCall, lse: Tensor) -> Tensor:
    """The mean weight the last queries give each sealed token, [H, tokens] float32 (SnapKV's votes)."""
    q, lse = a.q[:, -OBSERVED:], lse[:, -OBSERVED:]
    votes = []
    for start, stop in a.cache.runs(0, RUN):
        k, _ = _read(a, start, stop)
        weights = (_scores(a, q, k) - lse.unflatten(0, (k.shape[0], -1))[..., None]).exp().mean((1, 2))
        votes.append(weights.mean(0, keepdim=True) if a.expand else weights)
    return torch.cat(votes, 1) if votes else q.new_zeros(1, 0)
