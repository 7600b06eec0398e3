"""Attention of a sequence's new tokens over its ``Cache``: sealed pages, open page and the tokens themselves. The parts
are merged exactly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from localctx.kernels.reference import Part, attend, attend_reference, flash_runs, merge
from localctx.kv.backends.backend import PageAddresses
from localctx.kv.block_table import RUN, WIDE_RUN
from localctx.kv.cache import Cache
from localctx.kv.dispatch import AttentionCase, Path, attention_path, records_attention
from localctx.kv.keepers.keeper import Observation
from localctx.kv.selection import bias_scores, choose_pages, page_bias
from localctx.shape import PAGE

Expand = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]

MAX_PARTS = 8  # parts held before a merge: bounds the memory of a long history
FETCHED = 256  # pages fetched for one kernel: bounds the device memory beside the device tier
LAST_QUERIES = 64  # queries at the end of a prompt whose votes a keeper observes; SnapKV takes 16 to 64


@dataclass
class _AttentionCall:
    """The arguments and results of one call of ``attend_cache``, for one layer. ``page_lse`` collects pairs: page
    indices [n] or [H, n], and the log-sum-exp of each page [Hq, T, n]. T is 1, the last token, unless the keeper
    observes the mass of each page.
    """

    cache: Cache
    layer: int
    q: Tensor
    scale: float
    window: int | None
    softcap: float
    expand: Expand | None
    page_lse: list[tuple[np.ndarray, Tensor]] = field(default_factory=list)

    @property
    def observation(self) -> Observation | None:
        """The observation that the keeper needs in this phase, or None."""
        return self.cache.keeper.observes(self.cache.phase)

    @property
    def observes_page_mass(self) -> bool:
        """True if the keeper observes the attention mass of each page."""
        return self.observation is Observation.PAGE_MASS

    @property
    def records(self) -> bool:
        """True if the attention mass of pages is recorded in this layer."""
        recording = self.cache.attention_mass is not None
        return recording and records_attention(self.cache.pool.shape, self.layer, self.window)

    @property
    def path(self) -> Path:
        """The path that computes this call."""
        latent = self.expand is not None
        return attention_path(AttentionCase(self.cache, self.layer, self.q.shape[1], self.window, self.q.dtype, latent))


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
    shared: bool = False,
) -> Tensor:
    """Compute causal attention of the new tokens' queries q [Hq, T, D] over the cache and the new k, v [H, T, D].
    Returns [Hq, T, Dv]. The cache is not extended, but its keeper and its history record the attention.

    ``scale`` is the factor of scores. ``window`` hides keys ``window`` or more positions back. With ``softcap`` c > 0,
    a score becomes c * tanh(score / c). ``sinks`` [Hq] are learned logits that take attention mass but add no value. In
    a latent layer (MLA), ``expand`` turns cached latents into keys and values; the new k, v are already expanded.
    ``shared`` is True if an earlier layer of the model attended over the same layer of the cache in this step. The
    recorded attention is then added to the attention of the earlier layer.
    """
    call = _AttentionCall(cache, layer, q, scale, window, softcap, expand)
    path = call.path
    parts = [_prefill(call, k, v)] if path is Path.PREFILL_KERNEL else _parts(call, path, k, v)
    out, lse = merge(parts, sinks)
    _report_masses(call, lse)
    if call.observation is Observation.TOKEN_VOTES and window is None:
        votes = _token_votes(call, lse)
        cache.keeper.observe(cache.history, layer, votes + cache.history.token_votes[layer] if shared else votes)
    return out


def _prefill(c: _AttentionCall, k: Tensor, v: Tensor) -> Part:
    """Attend with all new tokens to all pages, the open page and the new tokens, in one kernel call."""
    table, backend = c.cache.table, c.cache.pool.backend
    if c.records and len(table):  # the prefill kernel does not return the mass of single pages
        indices = torch.arange(len(table))
        last = backend.attend(
            c.layer,
            c.q[:, -1:],
            table.for_kernels(c.layer),
            indices,
            c.scale,
            softcap=c.softcap,
            extra=_extra_scores(replace(c, q=c.q[:, -1:]), indices),
            page_lse=True,
        )
        _note_page_lse(c, indices, last.page_lse)
    k, v = (torch.cat(pair, 1) for pair in zip(c.cache.open_tail(c.layer), (k, v), strict=True))
    bias = page_bias([c.cache], c.layer) if c.cache.pool.unbiased(c.layer) and len(table) else None
    pages, loss = table.for_kernels(c.layer), c.cache.prefill_loss
    return backend.prefill(c.layer, c.q, k, v, pages, c.scale, c.softcap, loss, bias)


def _parts(c: _AttentionCall, path: Path, k: Tensor, v: Tensor) -> list[Part]:
    """Attend to the sealed pages, the open page and the new tokens, each separately."""
    cache, parts = c.cache, list[Part]()
    for part in _over_pages(c, path):
        parts.append(part)
        if len(parts) == MAX_PARTS:
            parts = [merge(parts)]
    if cache.tail:
        tail = cache.open_tail(c.layer)
        k_tail, v_tail = c.expand(*tail) if c.expand else tail
        behind = _mask(c, _positions(cache, -cache.tail, cache.tail))
        parts.append(attend(c.q, k_tail, v_tail, c.scale, mask=behind, softcap=c.softcap))
    mask = _mask(c, _positions(cache, 0, c.q.shape[1]))
    if mask is not None:
        mask = mask.tril()
    parts.append(attend(c.q, k, v, c.scale, causal=mask is None, mask=mask, softcap=c.softcap))
    return parts


def _over_pages(c: _AttentionCall, path: Path) -> Iterator[Part]:
    table = c.cache.table
    first, skip = (0, 0) if c.window is None else table.first_seen(c.layer, c.window, c.cache.position)
    if first >= len(table):
        return
    if path is Path.SELECTED_PAGES:
        yield from _over_selected(c)
    elif path is Path.TOKEN_KERNEL:
        yield _in_place(c, torch.arange(first, len(table), device=c.cache.pool.device), skip)
    elif path is Path.FETCHED_PAGES:
        yield from _over_fetched(c, first, skip)
    else:
        yield from _over_runs(c, first)


def _over_runs(c: _AttentionCall, first: int) -> Iterator[Part]:
    """Attend to the pages from ``first`` on. They are decoded in runs, or one by one if the keeper observes the mass of
    each page.
    """
    table = c.cache.table
    for start, stop in table.runs(c.layer, first, _max_run(c), table.reads_mixed(c.layer)):
        k, v = _read(c, start, stop)
        mask = None if c.window is None else _mask(c, table.token_positions(c.layer, start, stop))
        part = attend(c.q, k, v, c.scale, mask=mask, softcap=c.softcap)
        if c.observes_page_mass:
            c.page_lse.append((np.arange(start, stop), part[1][..., None]))
        elif c.records:
            c.page_lse.append((np.arange(start, stop), _last_page_lse(c, k)))
        del k, v  # before the next run is decoded
        yield part


def _max_run(c: _AttentionCall) -> int:
    """Returns the number of pages to decode at a time."""
    if c.observes_page_mass:
        return 1
    shape = c.cache.pool.shape.layers[c.layer]
    plain = c.window is None and not c.softcap and not c.expand
    pool = c.cache.pool
    in_float32 = not pool.backend.mixes_kinds or pool.unbiased(c.layer)
    return WIDE_RUN if plain and not in_float32 and flash_runs(c.q, shape.k_dim, shape.v_dim) else RUN


def _over_fetched(c: _AttentionCall, first: int, skip: int) -> Iterator[Part]:
    """Attend with one token to the pages from ``first`` on, and fetch the pages that are not on the device. The first
    ``skip`` tokens of page ``first`` are hidden.
    """
    table, device = c.cache.table, c.cache.pool.device
    for start in range(first, len(table), FETCHED):
        stop = min(start + FETCHED, len(table))
        pages, holding = table.fetched(c.layer, np.arange(start, stop))
        yield _in_place(c, torch.arange(start, stop, device=device), skip if start == first else 0, pages)
        del holding


def _in_place(c: _AttentionCall, indices: Tensor, skip: int = 0, pages: PageAddresses | None = None) -> Part:
    """Attend with each token to its own pages by the backend's kernel. ``indices`` [T * n], or [H, T * n] by KV head,
    point into ``pages`` (None: the pages where they are).
    """
    result = c.cache.pool.backend.attend(
        c.layer,
        c.q,
        pages or c.cache.table.for_kernels(c.layer),
        indices,
        c.scale,
        skip=skip,
        softcap=c.softcap,
        extra=_extra_scores(c, indices),
        page_lse=c.observes_page_mass or c.records,
    )
    _note_page_lse(c, indices[..., -(indices.shape[-1] // c.q.shape[1]) :], result.page_lse)
    return result.out, result.lse


def _note_page_lse(c: _AttentionCall, indices: Tensor, page_lse: Tensor | None) -> None:
    if page_lse is not None:
        c.page_lse.append((indices.cpu().numpy(), page_lse[:, None]))


def _extra_scores(c: _AttentionCall, indices: Tensor) -> Tensor | None:
    """Returns the scaled ``bias_scores`` of each token for its pages at ``indices`` [T * n] or [H, T * n]:
    [Hq, T * n * 64].
    """
    if not c.cache.pool.unbiased(c.layer):
        return None
    heads, tokens = c.cache.pool.shape.layers[c.layer].kv_heads, c.q.shape[1]
    at = indices.expand(heads, -1).repeat_interleave(len(c.q) // heads, 0).unflatten(1, (tokens, -1))
    scores = torch.stack([bias_scores(c.cache, c.layer, c.q[:, t]) for t in range(tokens)], 1).mul_(c.scale)
    return scores.unflatten(2, (-1, PAGE)).take_along_dim(at[..., None], 2).flatten(1)


# --- Pages selected by the query


def _over_selected(c: _AttentionCall) -> Iterator[Part]:
    chosen = torch.stack([_choose(c, t) for t in range(c.q.shape[1])], 1)  # [H, T, selected]
    union = chosen.unique()
    indices = union.cpu().numpy()
    c.cache.table.touch(indices)
    if c.cache.table.readable(indices):
        yield _in_place(c, chosen.flatten(1))
    elif c.cache.table.readable_once_fetched:
        pages, holding = c.cache.table.fetched(c.layer, indices)
        yield _in_place(c, chosen.flatten(1), pages=pages)
        del holding
    else:
        yield from _over_union(c, chosen, union)


def _choose(c: _AttentionCall, token: int) -> Tensor:
    """Returns the pages [H, selected] that the new token with index ``token`` selects."""
    return choose_pages(c.cache, c.layer, c.q[:, token].float() * c.scale)


def _over_union(c: _AttentionCall, chosen: Tensor, union: Tensor) -> Iterator[Part]:
    """Attend to every page that any query selected, fetched one by one. Each query sees only its own pages."""
    group = c.q.shape[0] // len(chosen)
    for index in union.tolist():
        k, v = _read(c, index, index + 1)
        sees = (chosen == index).any(-1).repeat_interleave(group, 0)
        out, lse = attend_reference(c.q, k, v, c.scale, mask=sees[..., None].expand(-1, -1, PAGE), softcap=c.softcap)
        if c.records:
            c.page_lse.append((np.array([index]), lse[:, -1:, None]))
        yield out, lse


# --- By torch


def _read(c: _AttentionCall, start: int, stop: int) -> tuple[Tensor, Tensor]:
    k, v = c.cache.table.read(c.layer, start, stop, c.q.dtype)
    return c.expand(k, v) if c.expand else (k, v)


def _positions(cache: Cache, start: int, count: int) -> Tensor:
    """Returns ``count`` positions, starting ``start`` after the cache's position."""
    return torch.arange(cache.position + start, cache.position + start + count, device=cache.pool.device)


def _mask(c: _AttentionCall, positions: Tensor) -> Tensor | None:
    """Returns [T, keys], True where the window shows a key. None if every query sees every key."""
    tokens = c.q.shape[1]
    if c.window is None or c.cache.position + tokens - 1 - int(positions[0]) < c.window:
        return None
    return _positions(c.cache, 0, tokens)[:, None] - positions < c.window


def _scores(c: _AttentionCall, q: Tensor, k: Tensor) -> Tensor:
    """Returns scores [H, Hq / H, T, S], float32.

    Computes one product per KV head, because a broadcast product would copy the keys for every query head.
    """
    grouped = q.unflatten(0, (k.shape[0], -1))
    scores = (grouped.flatten(1, 2) @ k.transpose(1, 2)).unflatten(1, grouped.shape[1:3]).float() * c.scale
    return c.softcap * torch.tanh(scores / c.softcap) if c.softcap else scores


# --- Attention mass of pages and tokens


def _last_page_lse(c: _AttentionCall, k: Tensor) -> Tensor:
    """Returns the last query's log-sum-exp for each page, [Hq, 1, n]. ``k`` [H, n * 64, D] has the pages' keys."""
    return _scores(c, c.q[:, -1:], k).flatten(0, 1).unflatten(-1, (-1, PAGE)).logsumexp(-1)


def _report_masses(c: _AttentionCall, lse: Tensor) -> None:
    """Tell the keeper and the history how much attention mass each page received. ``lse`` [Hq, T] is the log-sum-exp
    over all keys.
    """
    if not c.page_lse:
        return
    indices = np.concatenate([at for at, _ in c.page_lse], -1)
    page_lse = torch.cat([each for _, each in c.page_lse], -1)
    received = (page_lse - lse[:, -page_lse.shape[1] :, None]).exp()
    if c.observes_page_mass:
        mass = np.zeros(c.cache.num_pages)
        mass[indices] = received.mean(0).sum(0).double().cpu().numpy()
        c.cache.keeper.observe(c.cache.history, c.layer, mass)
    if c.records:
        heads = len(indices) if indices.ndim == 2 else 1
        squared = received[:, -1].square()  # squares favour heads that attend to few pages
        c.cache.add_attention(indices, squared.unflatten(0, (heads, -1)).sum(1).double().cpu().numpy())


def _token_votes(c: _AttentionCall, lse: Tensor) -> Tensor:
    """Returns the mean weight that the last queries give each sealed token, [H, tokens] float32."""
    q, lse = c.q[:, -LAST_QUERIES:], lse[:, -LAST_QUERIES:]
    votes = []
    for start, stop in c.cache.table.runs(c.layer, 0, RUN):
        k, _ = _read(c, start, stop)
        weights = (_scores(c, q, k) - lse.unflatten(0, (k.shape[0], -1))[..., None]).exp().mean((1, 2))
        votes.append(weights.mean(0, keepdim=True) if c.expand else weights)
    return torch.cat(votes, 1) if votes else q.new_zeros(1, 0)
