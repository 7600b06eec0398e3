"""Cache: one sequence as ordered sealed pages and an open, full-precision tail.

A step appends the same tokens to every layer, layer by layer: ``begin``, ``extend`` for each layer, then ``commit``.
``rollback`` instead of ``commit`` leaves the sequence as it was before ``begin``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from localctx.errors import NoRoom
from localctx.kernels import decode_cpu, quant
from localctx.kernels.sketch import Sketch, make_sketch
from localctx.kv import rerotation
from localctx.kv.keepers import Full, Keeper
from localctx.kv.pool import ORDINARY, Pool
from localctx.shape import PAGE

EVERYWHERE = slice(None)
RUN = 32  # pages decoded at a time: bounds the full-precision copy of history to 2,048 tokens


@dataclass(frozen=True)
class EvictedRange:
    """Tokens ``start..stop`` that left: all of them, or all but the part ``kept`` of each KV head's."""

    start: int
    stop: int
    kept: float = 0.0


@dataclass(frozen=True)
class PlacedPage:
    """One sealed page in a sequence: its id, its first token's number in the text, and its first key's position."""

    page: int
    token: int
    position: int


@dataclass
class _BlockTable:
    """The pages' ids, where they lie (base addresses), kinds, positions and numbers in the text, while ``true_of`` is
    so.
    """

    true_of: tuple[int, int]
    ids: np.ndarray
    bases: np.ndarray
    kinds: np.ndarray
    positions: np.ndarray
    numbers: np.ndarray
    resident: np.ndarray  # which pages a GPU's kernels may read where they lie
    on_device: tuple[Tensor, Tensor] | None = None  # bases and kinds, once those kernels asked for them


@dataclass
class _Layer:
    """One layer's tail: k and v [kv_heads, 64, dim], the first ``tail`` tokens valid. And a sketch of its pages."""

    k: Tensor
    v: Tensor
    next_tail: tuple[Tensor, Tensor] | None = None
    sketch: Sketch | None = None
    positions: np.ndarray | None = None  # of its pages' first keys, where they are not the sequence's


class Cache:
    """What a model remembers of one sequence.

    ``length`` counts the committed tokens, ``position`` is where the next one goes; they part when a keeper turns what
    it keeps. ``phase``: what is being read is a document, the question after it, or the answer; keepers differ by it.
    ``reach`` is the last position the model is good for. ``attention_mass``, where it is recorded: how much attention
    each page that was read got since, by its number in the text.
    """

    def __init__(self, pool: Pool, dtype: torch.dtype, keeper: Keeper | None = None, reach: int | None = None) -> None:
        self.pool, self.dtype, self.reach = pool, dtype, reach
        self.keeper: Keeper = keeper or Full()
        self.length = self.position = self.tail = 0
        self.exact = True  # whether every page is what its name would say: nothing dropped, recoded or taken over
        self.placed_pages: list[PlacedPage] = []
        self.evicted: list[EvictedRange] = []
        self.observed: dict[int, Tensor] = {}  # by layer: what the prompt's last queries gave each sealed token
        self.phase: Literal["reading", "asking", "answering"] = "reading"
        self._mass, self._seen = np.zeros(0), np.zeros(0)
        self.attention_mass: np.ndarray | None = None
        self.originals: list[int] = []  # sink pages as they were read, which turned ones are made from
        self._pending: list[int] = []
        self._step = 0
        self._layers = [_Layer(*self._empty_tail(i)) for i in range(len(pool.shape.layers))]
        self._known: _BlockTable | None = None

    @property
    def pages(self) -> list[int]:
        """The ids of the sealed pages, in order."""
        return [place.page for place in self.placed_pages]

    @property
    def dropped(self) -> int:
        """Tokens that attention does not see any more; where heads keep different ones, their mean."""
        return round(sum((e.stop - e.start) * (1 - e.kept) for e in self.evicted))

    def begin(self, tokens: int) -> None:
        """Start a step of ``tokens`` tokens. Raises NoRoom, with the sequence as it was."""
        assert not self._step, "a step is open"
        assert tokens > 0
        if self.keeper.turns and self.reach and self.position + tokens > self.reach:
            rerotation.rebase(self)
        self.pool.clock += 1
        if self.phase == "reading" or self.keeper.selected(len(self.placed_pages)) == len(self.placed_pages):
            self.pool.touch(self._look().ids)  # who selects touches what it chose
        self._step = tokens
        try:
            for i in range((self.tail + tokens) // PAGE):
                self._pending.append(self.pool.new(self.pool.kind_at(len(self.placed_pages) + i)))
        except NoRoom:
            self.rollback()
            raise

    def bytes_with(self, tokens: int) -> int:
        """What the sequence takes with so many more tokens: pages, wherever they are, and its open page."""
        first, pool = len(self.placed_pages), self.pool
        more = sum(pool.page_bytes(i) for i in range(first, first + (self.tail + tokens) // PAGE))
        return pool.bytes_of(self._look().ids) + more + sum(s.k.nbytes + s.v.nbytes for s in self._layers)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Append this step's k [kv_heads, T, k_dim] and v [kv_heads, T, v_dim] to one layer; seals what is full."""
        assert k.shape[1] == self._step, "extend wants the tokens that begin announced"
        state, n, end = self._layers[layer], self.tail, self.tail + self._step
        if not self._pending:
            state.k[:, n:end], state.v[:, n:end] = k, v
            return
        k, v = torch.cat((state.k[:, :n], k), 1), torch.cat((state.v[:, :n], v), 1)
        full = len(self._pending) * PAGE
        self.pool.seal(layer, self._pending, k[:, :full], v[:, :full], self.position - n)
        fresh = self._empty_tail(layer)
        for buffer, rest in zip(fresh, (k[:, full:], v[:, full:]), strict=True):
            buffer[:, : end - full] = rest
        state.next_tail = fresh

    def commit(self) -> None:
        """Make the step part of the sequence, and let the keeper drop what it will."""
        for state in self._layers:
            if state.next_tail:
                (state.k, state.v), state.next_tail = state.next_tail, None
        self.pool.close(self._pending)
        for i, page in enumerate(self._pending):
            self.placed_pages.append(
                PlacedPage(page, self.length - self.tail + i * PAGE, self.position - self.tail + i * PAGE)
            )
        self.tail = (self.tail + self._step) % PAGE
        self.length, self.position = self.length + self._step, self.position + self._step
        self._weighed(self._step)
        self._pending, self._step = [], 0
        self._let_go()

    def rollback(self) -> None:
        """Forget the open step, if there is one."""
        for state in self._layers:
            state.next_tail = None
        self.pool.release(self._pending)
        self._pending, self._step = [], 0

    def adopt(self, payloads: list[np.ndarray]) -> None:
        """Take stored pages (mapped bytes, in order) as the sequence's next pages. The tail must be empty."""
        assert self.tail == 0
        assert not self._step
        for payload in payloads:
            page = self.pool.adopt(payload, self.pool.kind_at(len(self.placed_pages)))
            self.placed_pages.append(PlacedPage(page, self.length, self.position))
            self.length, self.position = self.length + PAGE, self.position + PAGE
        self._weighed(0)
        self._let_go()

    def tail_payload(self) -> np.ndarray:
        """The open page as it is, in full precision: each layer's k and v of its tokens, uint8."""
        parts = [
            x.contiguous().view(torch.uint8).flatten() for i in range(len(self._layers)) for x in self.open_tail(i)
        ]
        return torch.cat(parts).cpu().numpy()

    def adopt_tail(self, payload: np.ndarray) -> None:
        """Take what ``tail_payload`` gave as the open page, which must be empty."""
        assert self.tail == 0
        assert not self._step
        flat = torch.from_numpy(payload.copy()).view(self.dtype).to(self.pool.device)
        self.tail = len(flat) // sum(s.kv_heads * (s.k_dim + s.v_dim) for s in self.pool.shape.layers)
        for layer in range(len(self._layers)):
            for x in self.open_tail(layer):
                x.copy_(flat[: x.numel()].view_as(x))
                flat = flat[x.numel() :]
        self.length, self.position = self.length + self.tail, self.position + self.tail

    def weigh(self, first: int, mass: np.ndarray) -> None:
        """Add the attention mass that pages ``first..`` got in this step."""
        self._mass[first : first + len(mass)] += mass

    def record_attention(self) -> None:
        """From here on, add up in ``attention_mass`` what the pages read so far get. Forks add to it as well."""
        self.attention_mass = np.zeros(self.length // PAGE)

    def add_attention(self, places: np.ndarray, mass: np.ndarray) -> None:
        """Add ``mass`` of the pages at ``places`` to ``attention_mass``; both of as many numbers, [n] or [H, n]."""
        assert self.attention_mass is not None
        read = len(self.attention_mass)
        self.attention_mass += np.bincount(self._look().numbers[places].ravel(), mass.ravel(), read)[:read]

    def evict(self, drop: list[int]) -> None:
        """Drop the pages at these places, in all layers; a keeper that turns then moves its sinks beside the rest."""
        self._note(*(EvictedRange(self.placed_pages[i].token, self.placed_pages[i].token + PAGE) for i in drop))
        self._release(drop)
        if self.keeper.turns:
            rerotation.sinks_beside_window(self)

    def move(self, i: int, page: int, position: int) -> None:
        """Put a turned copy at place ``i``. Who holds what was there is the caller's care."""
        self.placed_pages[i] = PlacedPage(page, self.placed_pages[i].token, position)
        self._known = None

    def turn_tail(self, by: int) -> None:
        """Turn the open page's keys, and count on from there."""
        for layer, state in enumerate(self._layers):
            state.k, state.v = rerotation.turn(self.pool, layer, state.k, state.v, by)
            state.sketch = None
        self.position += by

    def replace(self, first: int, stop: int, pages: list[int], positions: list[np.ndarray | None]) -> None:
        """Put ``pages``, which hold some tokens of those at places ``first..stop``, in their stead.

        ``positions`` of all pages' first keys, for layers where they matter and are not the sequence's.
        """
        token, until = self.placed_pages[first].token, self.placed_pages[stop - 1].token + PAGE
        self.pool.release(p.page for p in self.placed_pages[first:stop])
        kept = [PlacedPage(page, token + i, self.placed_pages[first].position + i) for i, page in enumerate(pages)]
        self.placed_pages[first:stop] = kept
        self._note(EvictedRange(token, until, len(pages) * PAGE / (until - token)))
        for state, own in zip(self._layers, positions, strict=True):
            state.positions, state.sketch = own, None
        self._mass, self._seen = np.zeros(len(self.placed_pages)), np.zeros(len(self.placed_pages))
        self._known = None

    def settle_in(self, pool: Pool, pages: list[int], originals: list[int]) -> None:
        """Go on in another pool, in which ``pages`` are copies of the sealed pages, and ``originals`` of the sinks."""
        self.placed_pages = [
            PlacedPage(page, p.token, p.position) for page, p in zip(pages, self.placed_pages, strict=True)
        ]
        self.pool, self.originals, self.exact, self._known = pool, originals, False, None
        for state in self._layers:
            state.sketch = None

    def bases(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the pages lie (int64), every layer's record in order, and each page's kind (uint8)."""
        known = self._look()
        return known.bases, known.kinds

    def in_place(self, places: np.ndarray | slice = EVERYWHERE) -> bool:
        """Whether a kernel reads the pages at ``places`` where they lie: a GPU's only in its own memory."""
        return self.pool.in_place or (self._for_gpu and bool(self._look().resident[places].all()))

    def on_device(self) -> tuple[Tensor, Tensor]:
        """``bases`` as a GPU's kernels want them, where all or some pages are ``in_place``."""
        assert self._for_gpu, "no kernel reads these pages"
        known, device = self._look(), self.pool.device
        if known.on_device is None:
            known.on_device = torch.from_numpy(known.bases).to(device), torch.from_numpy(known.kinds).to(device)
        return known.on_device

    def tail_addresses(self) -> np.ndarray:
        """Where each layer's open page lies: [layers, 2], keys and values, int64."""
        return np.array([(state.k.data_ptr(), state.v.data_ptr()) for state in self._layers], np.int64)

    def addresses(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Where the records of a layer's pages lie (int64), and each page's kind (uint8)."""
        known = self._look()
        return known.bases + self.pool.offsets[known.kinds, layer], known.kinds

    def positions(self, layer: int) -> np.ndarray:
        """The position of each page's first key in this layer, int64."""
        own = self._layers[layer].positions
        if own is None:
            return self._look().positions
        return np.concatenate((own, self._look().positions[len(own) :]))

    def touch(self, places: np.ndarray) -> None:
        """A query chose the pages at these places."""
        self.pool.touch(self._look().ids[places])

    def records(self, layer: int, first: int, stop: int) -> Tensor:
        """The records of the pages at places ``first..stop``, which are of one kind: [pages, total] uint8."""
        return self.pool.fetch(self.pages[first:stop], layer)

    def read(self, layer: int, first: int, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The keys and values [kv_heads, tokens, dim] of the pages at places ``first..stop``, of one kind, decoded."""
        kind = self.pool.kinds(self.pages[first : first + 1])[0]
        if self.pool.in_place:
            at, kinds = (a[first:stop] for a in self.addresses(layer))
            k, v = map(torch.from_numpy, decode_cpu.unpack_pages(at, kinds, self.pool.layouts[layer]))
            if self.pool.rotated:
                k, v = quant.rotate(k), quant.rotate(v)
        else:
            k, v = self.pool.codec_of(layer, kind).decode(self.records(layer, first, stop), torch.float32)
        if kind == ORDINARY and self.pool.unbiased(layer):
            assert self.pool.rope
            k = k + self.pool.rope.bias_keys(layer, self.token_positions(layer, first, stop))
        return k.to(dtype), v.to(dtype)

    def token_positions(self, layer: int, first: int, stop: int) -> Tensor:
        """The position of every key of the pages at places ``first..stop``, int64."""
        starts = torch.from_numpy(self.positions(layer)[first:stop]).to(self.pool.device)
        return (starts[:, None] + torch.arange(PAGE, device=starts.device)).flatten()

    def sketch(self, layer: int) -> Sketch:
        """Every page's stored keys at two bits, which stay on the device wherever the pages are."""
        state = self._layers[layer]
        for start, stop in self.runs(state.sketch.codes.shape[1] if state.sketch else 0, RUN):
            more = self._sketched(layer, start, stop)
            state.sketch = state.sketch.with_more(more) if state.sketch else more
        assert state.sketch, "there are no pages"
        return state.sketch

    def _sketched(self, layer: int, start: int, stop: int) -> Sketch:
        if self.pool.gpu and self.in_place(np.arange(start, stop)):
            return self.pool.gpu.make_sketch(self, layer, start, stop)
        kind = self.pool.kinds(self.pages[start : start + 1])[0]
        return make_sketch(self.pool.codec_of(layer, kind).stored_keys(self.records(layer, start, stop)))

    def sketch_bytes(self) -> int:
        """What the sketches made so far take on the device, beside the pages."""
        return sum(state.sketch.nbytes for state in self._layers if state.sketch)

    def runs(self, first: int, most: int) -> Iterator[tuple[int, int]]:
        """The places ``first..`` in runs of at most ``most`` pages of one kind: (start, stop)."""
        kinds = self._look().kinds
        start = first
        for i in range(first + 1, len(kinds) + 1):
            if i == len(kinds) or i - start == most or kinds[i] != kinds[start]:
                yield start, i
                start = i

    def open_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """The committed tokens of the open page: k [kv_heads, tail, k_dim], v [kv_heads, tail, v_dim]."""
        state = self._layers[layer]
        return state.k[:, : self.tail], state.v[:, : self.tail]

    def fork(self) -> "Cache":
        """Another sequence with the same past. Sealed pages are shared; only the open page is copied."""
        assert not self._step
        twin = Cache(self.pool, self.dtype, self.keeper, self.reach)
        twin.length, twin.position, twin.tail, twin.phase = self.length, self.position, self.tail, self.phase
        twin.placed_pages, twin.evicted, twin.exact = list(self.placed_pages), list(self.evicted), self.exact
        for page in (*self.pages, *self.originals):
            self.pool.table.share(page)
        twin.originals, twin.attention_mass = list(self.originals), self.attention_mass
        twin._mass, twin._seen = self._mass.copy(), self._seen.copy()
        for mine, its in zip(self._layers, twin._layers, strict=True):
            its.k, its.v = mine.k.clone(), mine.v.clone()
            its.positions, its.sketch = mine.positions, mine.sketch
        return twin

    def trim(self, length: int) -> None:
        """Keep the first ``length`` tokens. Cutting inside a sealed page reopens it at its codec's precision.

        What a keeper dropped does not come back: only tokens after it can be trimmed.
        """
        assert 0 <= length <= self.length
        assert not self._step
        assert length == 0 or all(e.stop <= length for e in self.evicted), "a keeper dropped what lies before"
        keep = sum(place.token + PAGE <= length for place in self.placed_pages) if length else 0
        if keep < len(self.placed_pages):
            self.tail = max(0, length - self.placed_pages[keep].token)
            if self.tail:
                self._reopen(keep)
            self._release(list(range(keep, len(self.placed_pages))))
        else:
            self.tail -= self.length - length
        self.position = 0 if length == 0 else self.position - (self.length - length)
        self.length = length

    def drop(self) -> None:
        """Give back every page."""
        self.rollback()
        self.trim(0)
        self.pool.release(self.originals)
        self.originals = []

    def _let_go(self) -> None:
        """Evict what the keeper does not keep."""
        if drop := self.keeper.excess(len(self.placed_pages), self._mass / np.maximum(self._seen, 1)):
            self.evict(drop)

    def _release(self, drop: list[int]) -> None:
        gone = set(drop)
        self.pool.release(self.placed_pages[i].page for i in drop)
        keep = [i for i in range(len(self.placed_pages)) if i not in gone]
        self.placed_pages = [self.placed_pages[i] for i in keep]
        self._mass, self._seen = self._mass[keep], self._seen[keep]
        for state in self._layers:
            state.sketch = None
            if state.positions is not None:
                state.positions = state.positions[[i for i in keep if i < len(state.positions)]]
        self._known = None

    def _note(self, *gone: EvictedRange) -> None:
        """Remember what left, in the order of the text; neighbours become one."""
        self.exact, merged = False, list[EvictedRange]()
        for e in sorted([*self.evicted, *gone], key=lambda e: e.start):
            if merged and (merged[-1].stop, merged[-1].kept) == (e.start, e.kept):
                e = EvictedRange(merged.pop().start, e.stop, e.kept)
            merged.append(e)
        self.evicted = merged

    def _weighed(self, queries: int) -> None:
        """Make the masses as long as the pages; ``queries`` more have looked at them."""
        more = np.zeros(len(self.placed_pages) - len(self._mass))
        self._mass, self._seen = np.concatenate((self._mass, more)), np.concatenate((self._seen, more)) + queries

    def _reopen(self, place: int) -> None:
        for layer, state in enumerate(self._layers):
            k, v = self.read(layer, place, place + 1, self.dtype)
            state.k, state.v = k.contiguous(), v.contiguous()

    def _look(self) -> _BlockTable:
        """Looked up again after any move."""
        true_of = (self.pool.version, len(self.placed_pages))
        if self._known is None or self._known.true_of != true_of:
            pages = self.pages
            bases = np.array([self.pool.payload(p).data_ptr() for p in pages], np.int64)
            at = np.array([p.position for p in self.placed_pages], np.int64)
            numbers = np.array([p.token // PAGE for p in self.placed_pages], np.int64)
            resident = np.array([self._for_gpu and p in self.pool.device_tier for p in pages], bool)
            ids, kinds = np.array(pages, np.int64), self.pool.kinds(pages)
            self._known = _BlockTable(true_of, ids, bases, kinds, at, numbers, resident)
        return self._known

    @property
    def _for_gpu(self) -> bool:
        """Whether a GPU's kernels read what of it is in that GPU's memory."""
        return self.pool.gpu is not None and self.dtype == torch.bfloat16

    def _empty_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        s = self.pool.shape.layers[layer]
        new = (torch.zeros(s.kv_heads, PAGE, d, dtype=self.dtype, device=self.pool.device) for d in (s.k_dim, s.v_dim))
        return next(new), next(new)


def first_seen(cache: Cache, layer: int, window: int, later: int = 0) -> tuple[int, int]:
    """The place of the first page that any new token from the ``later``-th on sees, where keys ``window`` or more
    positions back are hidden, and how many of its first tokens none sees.
    """
    unseen = cache.position + later + 1 - window  # that token sees nothing before this position
    at = cache.positions(layer)
    first = int(np.searchsorted(at + PAGE, unseen, side="right"))
    return first, max(0, unseen - int(at[first])) if first < len(at) else 0
