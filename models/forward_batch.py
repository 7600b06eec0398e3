"""A step: new tokens of one sequence or several, in a row one after another, through all layers of a model."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from localctx.errors import Cancelled
from localctx.kv.attention import Expand, attend_cache
from localctx.kv.cache import Cache
from localctx.kv.decode_batch import DecodeBatch, chooses, fits_rows, make_rows
from localctx.kv.graph_inputs import CapturableBatch
from localctx.models.base import ForwardRequest
from localctx.models.rope import ModelRope


class ForwardBatch:
    """One run of the model over the tokens of ``feeds``; ``until`` a layer, where it ends as if cancelled, with what
    that would keep as ``seen``. To a latent layer it is transformers' cache, which it calls first.
    """

    def __init__(
        self, feeds: Sequence[ForwardRequest], cancelled: Callable[[], bool] = lambda: False, until: int | None = None
    ) -> None:
        self.feeds, self.cancelled, self.until = feeds, cancelled, until
        self.seen: tuple[Tensor, Tensor] | None = None
        self.shape = feeds[0].cache.pool.shape
        self.latent = any(layer.kind == "latent" for layer in self.shape.layers)
        self._parts, self._rows = list[tuple[slice, Cache]](), list[tuple[Tensor | None, DecodeBatch]]()
        self._new: tuple[Tensor, Tensor] | None = None

    @contextmanager
    def begun(self) -> Iterator[None]:
        """The caches of the feeds have begun: they may count positions anew. All of them are committed, or none."""
        with ExitStack() as caches:
            for feed in self.feeds:
                feed.cache.begin(len(feed.tokens))
                caches.callback(feed.cache.rollback)
            self._arrange()
            yield
            caches.pop_all()
        for _, rows in self._rows:
            rows.tell()
        for feed in self.feeds:
            feed.cache.commit()

    @property
    def tokens(self) -> list[int]:
        """All of them."""
        return [token for feed in self.feeds for token in feed.tokens]

    def places(self, position: int | None = None) -> list[int]:
        """Their positions. A feed begins where its cache says, unless ``position`` does."""
        starts = [feed.cache.position if position is None else position for feed in self.feeds]
        return [at + i for at, feed in zip(starts, self.feeds, strict=True) for i in range(len(feed.tokens))]

    @property
    def rope(self) -> ModelRope | None:
        """How the caches say that keys turn, which is the same; None where they say nothing."""
        ropes = {feed.cache.pool.rope for feed in self.feeds}
        assert len(ropes) == 1, "sequences in one step turn alike"
        rope = ropes.pop()
        return rope if isinstance(rope, ModelRope) else None

    @property
    def kept(self) -> list[int]:
        """The places in the row of the tokens whose logits are wanted."""
        ends = accumulate(len(feed.tokens) for feed in self.feeds)
        return [i for end, feed in zip(ends, self.feeds, strict=True) for i in range(end)[-feed.num_logits :]]

    def split(self, logits: Tensor) -> list[Tensor]:
        """Logits of what is kept [kept, vocabulary], feed by feed, float32."""
        return list(logits.float().split([feed.num_logits for feed in self.feeds]))

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float, expand: Expand | None = None, **how: Any
    ) -> Tensor:
        """Each sequence's q [Hq, T, D] over its cache and its new k and v [H, T, D], which it keeps (a latent layer
        what ``update`` heard). ``how`` as of ``attend_cache``. Returns [Hq, T, Dv]. Raises Cancelled, also where the
        step ends by itself.
        """
        how["window"] = self.shape.layers[layer].window
        kept = self._take() if expand else (k, v)
        if layer == self.until:
            self.seen = kept
        if layer == self.until or self.cancelled():
            raise Cancelled
        if self._together:
            return self._together.attend(layer, q, k, v, scale, **how)
        out = q.new_empty(q.shape[1], q.shape[0], v.shape[2]).transpose(0, 1)
        for part, cache in self._parts:
            mine = [x[:, part] for x in (q, k, v)]
            out[:, part] = attend_cache(cache, layer, mine[0], mine[1], mine[2], scale, expand=expand, **how)
            cache.extend(layer, *(new[:, part] for new in kept))
        for places, rows in self._rows:
            theirs = [x[:, places] for x in (q, k, v)]
            out[:, places] = rows.attend(layer, theirs[0], theirs[1], theirs[2], scale, **how)
        return out

    @property
    def steady(self) -> CapturableBatch | None:
        """All of it, where other steps can do the same."""
        return self._together.steady() if self._together and self.until is None else None

    @property
    def _together(self) -> DecodeBatch | None:
        """All tokens, where they are rows that attend together."""
        return self._rows[0][1] if not self._parts and self._rows[0][0] is None else None

    def _arrange(self) -> None:
        """Which sequences attend together, and which by themselves; where in the row their tokens are."""
        at, together = 0, defaultdict[tuple[str, int], list[tuple[list[int], Cache]]](list)
        for tokens, cache, _ in self.feeds:
            n = len(tokens)
            if not self.latent and fits_rows(cache, n):
                alone = id(cache) if chooses(cache) else 0
                together[cache.pool.codec, alone].append((list(range(at, at + n)), cache))
            else:
                self._parts.append((slice(at, at + n), cache))
            at += n
        for found in together.values():
            places = [place for some, _ in found for place in some]
            rows = make_rows([(cache, len(some)) for some, cache in found])
            self._rows.append((None if len(places) == at else torch.tensor(places), rows))

    def update(self, k: Tensor, v: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Hear of a layer's new latents, and give back no more than these: history is expanded run by run."""
        self._new = k[0], v[0]
        return k, v

    def _take(self) -> tuple[Tensor, Tensor]:
        """The latents of the layer that attends now, k [1, T, rank] and v [1, T, rope_dim]."""
        assert self._new is not None, "a latent layer attends before it updates"
        new, self._new = self._new, None
        return new
