"""Cache: the state of one sequence, and the steps by which forward passes extend it.

A step appends the same tokens to every layer, layer by layer: ``begin``, ``extend`` for each layer, then ``commit``.
Instead of ``commit``, ``rollback`` restores the sequence as it was before ``begin``.
"""

from collections.abc import Container, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from localctx.kv.attention_history import AttentionHistory
from localctx.kv.block_table import BlockTable, PageParts, PlacedPage
from localctx.kv.compaction import pack_tokens_by_score
from localctx.kv.eviction_log import EvictedRange, EvictionLog
from localctx.kv.keepers.full import Full
from localctx.kv.keepers.keeper import Keeper, Phase, TokenScore
from localctx.kv.open_page import OpenPage
from localctx.kv.pages import Activation
from localctx.kv.pool import Pool
from localctx.kv.rerotation import move_sinks_to_window, rebase_pages
from localctx.kv.sequence_states import SequenceStates, States
from localctx.kv.sketches import KeySketches
from localctx.shape import FULL, PAGE, SINK_PAGES, SLIDING


class Cache:
    """The KV cache of one sequence: sealed pages (``table``), an ``open_page``, and ``states`` of layers without pages.

    ``length`` is the number of committed tokens. ``position`` is the position of the next token for RoPE; it differs
    from ``length`` once a keeper has moved tokens to other positions. ``reach`` is the model's window in tokens.
    ``history`` records the attention that pages received, ``evictions`` the tokens that the ``keeper`` (eviction
    policy) evicted. ``activation`` names the LoRA adapter of the sequence, and the first token that it applies to; None
    for no adapter.

    If ``joins_chunks``, chunks of this sequence may be computed in one pass with chunks of other sequences. This can
    change the last digits, which is safe because the sequence will not be persisted.
    """

    activation: Activation | None = None
    joins_chunks = False

    def __init__(self, pool: Pool, dtype: torch.dtype, keeper: Keeper | None = None, reach: int | None = None) -> None:
        self.dtype, self.reach = dtype, reach
        self.keeper: Keeper = keeper or Full()
        self.phase: Phase = "reading"
        self.length = self.position = 0
        self.table, self.open_page = BlockTable(pool, dtype), OpenPage(pool, dtype)
        self.sketches = KeySketches(self.table)
        self.states = SequenceStates(pool.shape.states, dtype, pool.device)
        self.history, self.evictions = AttentionHistory(), EvictionLog()
        self._pending: tuple[list[int], list[int]] = ([], [])  # page parts that the open step fills
        self._step = 0  # tokens of the open step

    # --- Contents

    @property
    def pool(self) -> Pool:
        """The pool that holds the sealed pages."""
        return self.table.pool

    @property
    def placed_pages(self) -> list[PlacedPage]:
        """The sealed pages in order, each with its place in the text and its position."""
        return self.table.placed

    @property
    def pages(self) -> list[int]:
        """The ids of the sealed pages, in order."""
        return self.table.pages

    @property
    def num_pages(self) -> int:
        """The number of sealed pages."""
        return len(self.table)

    @property
    def tail(self) -> int:
        """The number of committed tokens in the open page."""
        return self.open_page.filled

    @property
    def exact(self) -> bool:
        """True if every page has the content that the page's name, a hash of tokens, stands for, so that pages may be
        persisted. False once tokens were evicted, re-encoded or copied from another sequence.
        """
        return self.evictions.exact

    @property
    def evicted(self) -> list[EvictedRange]:
        """The evicted token ranges, in text order."""
        return self.evictions.ranges

    @property
    def dropped(self) -> int:
        """The number of tokens that attention no longer sees, because they were evicted. If KV heads keep different
        tokens, this is the average over heads.
        """
        return self.evictions.tokens

    @property
    def attention_mass(self) -> np.ndarray | None:
        """The attention mass of every 64 tokens of the text since ``record_attention`` was called; None if it was not
        called.
        """
        return self.history.recorded

    def read(self, layer: int, first: int, stop: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the keys and values [kv_heads, tokens, dim] of the sealed pages ``first..stop``. The pages may be of
        both kinds (ORDINARY and SINK) only if ``table.reads_mixed(layer)``.
        """
        return self.table.read(layer, first, stop, dtype)

    def open_tail(self, layer: int) -> tuple[Tensor, Tensor]:
        """Returns the keys and values of the open page's committed tokens: k [kv_heads, tail, k_dim], v [kv_heads,
        tail, v_dim].
        """
        return self.open_page.tokens(layer)

    def tail_payload(self) -> np.ndarray:
        """Returns the tokens of the open page in full precision, as bytes (uint8): k and v of each layer in turn."""
        return self.open_page.payload()

    def sliding_payload(self, index: int) -> np.ndarray | None:
        """Returns the bytes (uint8) of the SLIDING part of a sealed page, which has the records of sliding-window
        layers. Returns None if the page has no such part, or if the part was released because those layers no longer
        see the page.
        """
        page = self.placed_pages[index].parts.sliding
        return None if page is None else self.pool.payload(page).cpu().numpy()

    def bytes_with(self, tokens: int) -> int:
        """Returns the size in bytes that the sequence will have with ``tokens`` more tokens: its pages in all tiers,
        its open page and its recurrent states.
        """
        first, pool = self.num_pages, self.pool
        new = range(first, first + (self.tail + tokens) // PAGE)
        more = sum(pool.page_bytes(i, part) for i in new for part in (FULL, SLIDING))
        return pool.bytes_of(self.table.ids) + more + self.open_page.nbytes + self.states.nbytes

    def sketch_bytes(self) -> int:
        """Returns the size in bytes of the sketches (keys at two bits, for selecting pages) made so far. They are
        stored outside of the pages.
        """
        return self.sketches.nbytes

    # --- The phases of a request

    def enter_phase(self, phase: Phase) -> None:
        """Set the phase of the tokens processed from now on: ``reading`` (the document), ``asking`` (the question) or
        ``answering``. Keepers evict and select differently in each phase.
        """
        self.phase = phase

    def finish_prefill(self) -> None:
        """End the prefill of a prompt. A keeper that compresses prompts now does so, if the prompt ends with a
        question. Raises OutOfKVMemory.
        """
        if self.phase == "asking":
            self.keeper.after_prefill(self)
        self.phase = "answering"

    def selects_pages(self) -> bool:
        """Returns True if each query now attends only to pages that it selects. The keeper decides this, and only
        tokens of the answer select pages.
        """
        return self.phase == "answering" and self.keeper.pages_seen(self.num_pages) < self.num_pages

    @property
    def prefill_loss(self) -> float:
        """The share of attention (0 to 1) that a query may lose to skipped pages while the document is read; 0 in
        questions and answers.
        """
        return self.pool.prefill_loss if self.phase == "reading" else 0.0

    def record_attention(self) -> None:
        """Start to record the attention mass that the pages read so far will receive, for ``attention_mass``. Forks add
        to the same record.
        """
        self.history.record(self.length // PAGE)

    def add_attention(self, indices: np.ndarray, mass: np.ndarray) -> None:
        """Add ``mass`` to the recorded attention mass of the sealed pages at ``indices``. Both are [n] or [kv_heads,
        n].
        """
        self.history.add_recorded(self.table.text_pages[indices], mass)

    # --- A step

    def begin(self, tokens: int) -> None:
        """Start a step that appends ``tokens`` tokens. Release the parts of pages that sliding-window layers no longer
        see. Raises OutOfKVMemory, and the sequence is then unchanged.
        """
        assert not self._step, "a step is open"
        assert tokens > 0
        if self.keeper.unbounded_positions and self.reach and self.position + tokens > self.reach:
            self._rebase()
        self.pool.clock += 1
        self.table.release_unseen(self.position)
        if not self.selects_pages():  # when pages are selected, each query touches its own
            self.table.touch()
        self._step = tokens
        try:
            for i in range((self.tail + tokens) // PAGE):
                self._add_pending(self.pool.kind_at(self.num_pages + i))
        except BaseException:  # OutOfKVMemory, or memory ran out
            self.rollback()
            raise

    def extend(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Append the new tokens' k [kv_heads, T, k_dim] and v [kv_heads, T, v_dim] to one layer, and seal the pages
        that are full.
        """
        assert k.shape[1] == self._step, "extend wants the tokens that begin announced"
        pending = self._pending[self.pool.format.parts[layer]]
        if not pending:
            self.open_page.write(layer, k, v)
            return
        k, v = (torch.cat(pair, 1) for pair in zip(self.open_page.tokens(layer), (k, v), strict=True))
        full = len(pending) * PAGE
        self.pool.seal(layer, pending, k[:, :full], v[:, :full], self.position - self.tail)
        self.open_page.write_next(layer, k[:, full:], v[:, full:])

    def commit(self) -> None:
        """Make the step part of the sequence, then evict pages as the keeper decides."""
        self.pool.close([*self._pending[FULL], *self._pending[SLIDING]])
        for i, parts in enumerate(zip_longest(*self._pending)):
            start = i * PAGE - self.tail
            self.table.append(PageParts(*parts), self.length + start, self.position + start)
        self.open_page.commit(self._step)
        self.length, self.position = self.length + self._step, self.position + self._step
        self.states.commit(self.length)
        self.history.advance(self.num_pages, self._step)
        self._pending, self._step = ([], []), 0
        self._evict()

    def rollback(self) -> None:
        """Discard the open step, if any."""
        self.open_page.rollback()
        self.states.rollback()
        self.pool.release([*self._pending[FULL], *self._pending[SLIDING]])
        self._pending, self._step = ([], []), 0

    # --- Other ways to change it

    def adopt(self, payloads: list[np.ndarray], windows: Mapping[int, np.ndarray] = MappingProxyType({})) -> None:
        """Append persisted pages in order, given as mapped bytes in ``payloads``. The open page must be empty.

        ``windows`` is for models with sliding-window layers: it maps the index of a page to the bytes of its SLIDING
        part. Only the last pages need one.
        """
        assert self.tail == 0
        assert not self._step
        for payload in payloads:
            kind, sliding = self.pool.kind_at(self.num_pages), windows.get(self.num_pages)
            parts = [self.pool.adopt(x, kind) for x in (payload, sliding) if x is not None]
            self._append_page(PageParts(*parts))
        self.history.advance(self.num_pages, 0)
        self._evict()

    def share_pages(self, pages: Sequence[PageParts], states: States | None) -> None:
        """Append pages that other sequences in the same pool hold. They are shared by reference, not copied. ``states``
        are the recurrent states after these pages, None if the model has none. The open page must be empty.
        """
        assert self.tail == 0
        assert not self._step
        for parts in pages:
            for page in parts.ids:
                self.pool.references.share(page)
            self._append_page(parts)
        self.states.share(states, self.length)
        self.history.advance(self.num_pages, 0)
        self._evict()

    def adopt_tail(self, payload: np.ndarray) -> None:
        """Load persisted tokens into the open page, which must be empty. ``payload`` is the output of
        ``tail_payload``.
        """
        assert not self._step
        self.open_page.adopt(payload)
        self.length, self.position = self.length + self.tail, self.position + self.tail

    def adopt_states(self, snapshot: np.ndarray) -> None:
        """Load the recurrent states in ``snapshot``, which must be the states after the tokens adopted so far."""
        self.states.adopt(snapshot, self.length)

    def keep_tokens(self, slots: int, stop: int, score: TokenScore) -> None:
        """Evict tokens by score: replace the sealed pages from the sinks to page ``stop`` by ``slots`` pages with the
        best tokens. ``score`` is a function that returns a score for each token of a layer, for each KV head; the
        tokens with the highest scores are kept. A sliding-window layer keeps its last pages instead. Raises
        OutOfKVMemory.
        """
        pages, positions = pack_tokens_by_score(self.table, slots, stop, score)
        start, end = self.table.replace(SINK_PAGES, stop, pages, positions)
        self.evictions.add(EvictedRange(start, end, slots * PAGE / (end - start)))
        self.sketches.clear()
        self.history.reset(self.num_pages)

    def keep_pages(self, kept: Container[int]) -> None:
        """Evict all sealed pages whose index is not in ``kept``. The positions of later tokens do not change."""
        self._evict_pages([i for i in range(self.num_pages) if i not in kept])

    def use_pool(self, pool: Pool, pages: list[PageParts], originals: list[PageParts]) -> None:
        """Continue with copies of all pages in another ``pool``. ``pages`` are the copies of the sealed pages, and
        ``originals`` are the copies of the original sink pages. The sequence is no longer exact.
        """
        self.table.move_to(pool, pages, originals)
        self.open_page.pool = pool
        self.mark_inexact()
        self.sketches.clear()

    def mark_inexact(self) -> None:
        """Mark the sequence as inexact: its pages no longer match their names and must not be persisted."""
        self.evictions.exact = False

    def fork(self, keeper: Keeper | None = None, *, recording: bool = True) -> "Cache":
        """Returns a new sequence with the same tokens. It shares the sealed pages; only the open page is copied.

        The fork has this ``keeper`` (None: the same one). If ``recording``, the fork adds its attention to the same
        ``attention_mass``.
        """
        assert not self._step
        twin = Cache.__new__(Cache)
        twin.dtype, twin.reach, twin.keeper, twin.phase = self.dtype, self.reach, keeper or self.keeper, self.phase
        twin.length, twin.position = self.length, self.position
        twin.activation, twin.joins_chunks = self.activation, self.joins_chunks
        twin.table, twin.open_page = self.table.fork(), self.open_page.fork()
        twin.sketches, twin.states = self.sketches.fork(twin.table), self.states.fork()
        twin.history, twin.evictions = self.history.fork(recording), self.evictions.fork()
        twin._pending, twin._step = ([], []), 0
        return twin

    def trimmable(self, length: int) -> int:
        """Returns the greatest length, up to ``length`` tokens, to which ``trim`` can cut the sequence without loss.

        Other lengths lose something: a reopened sealed page has only the codec's precision, recurrent states are not
        kept after every token, and sliding-window layers keep only the last window.
        """
        whole = length if length >= self.num_pages * PAGE else length // PAGE * PAGE
        known = self.states.restorable(whole, self.length)
        return known if self._has_window(known) else 0

    def trim(self, length: int) -> None:
        """Keep only the first ``length`` tokens. If the cut is inside a sealed page, that page becomes the open page,
        at the precision of the codec.

        Evicted tokens do not come back, so ``length`` must not be less than the end of the last evicted range.
        """
        assert 0 <= length <= self.length
        assert not self._step
        assert length == 0 or self.evictions.allows_trim(length), "a keeper evicted what lies before"
        assert self._has_window(length), "sliding layers no longer have what they would see"
        self.states.restore(length, self.length)
        placed = self.table.placed
        keep = sum(p.token + PAGE <= length for p in placed) if length else 0
        if keep < len(placed):
            self.open_page.reopen(self.table, keep, max(0, length - placed[keep].token))
            self._remove(list(range(keep, len(placed))))
        else:
            self.open_page.filled -= self.length - length
        self.position = 0 if length == 0 else self.position - (self.length - length)
        self.length = length

    def drop(self) -> None:
        """Release every page. The sequence must not be used afterwards."""
        self.rollback()
        self.trim(0)
        self.table.release_originals()

    def _append_page(self, parts: PageParts) -> None:
        self.table.append(parts, self.length, self.position)
        self.length, self.position = self.length + PAGE, self.position + PAGE

    def _has_window(self, length: int) -> bool:
        """Returns True if the pages that sliding layers need after the first ``length`` tokens are still there."""
        pages = sum(placed.token < length for placed in self.table.placed)
        return length == 0 or self.table.has_window(self.position - (self.length - length), pages)

    def _add_pending(self, kind: int) -> None:
        """Allocate every part (FULL and SLIDING) of a new page of this ``kind``, for the open step to fill. Raises
        OutOfKVMemory.
        """
        for part, pending in enumerate(self._pending):
            if part == FULL or self.pool.shape.window:
                pending.append(self.pool.new(kind, part))

    def _evict(self) -> None:
        """Evict the pages that the keeper does not keep."""
        evicted = self.keeper.pages_to_evict(self.num_pages, self.history.mean_mass)
        if evicted:
            self._evict_pages(evicted)
            if self.keeper.unbounded_positions:
                move_sinks_to_window(self.table, self.keeper.sink_pages)

    def _evict_pages(self, indices: list[int]) -> None:
        if indices:
            tokens = [self.table.placed[i].token for i in indices]
            self.evictions.add(*(EvictedRange(token, token + PAGE) for token in tokens))
            self._remove(indices)

    def _remove(self, indices: list[int]) -> None:
        self.history.keep(self.table.remove(indices))
        self.sketches.clear()

    def _rebase(self) -> None:
        """Rebase positions to zero and re-rotate the keys. If this raises OutOfKVMemory, the next call continues the
        work.
        """
        rebase_pages(self.table, self.keeper.sink_pages)
        if by := self.num_pages * PAGE + self.tail - self.position:
            self.open_page.rerotate(by)
            self.position += by
        self.sketches.clear()
