"""Beam search: the likeliest answer found by following the best few at once. They share all pages but their last."""

from collections.abc import Generator
from dataclasses import dataclass

from torch import Tensor

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Progress, Token
from localctx.engine.prefill_decode import no_room_told
from localctx.kv.cache import Cache
from localctx.models.base import ForwardRequest, Tokenizer


@dataclass
class _Beam:
    """``score`` is the summed log-probability of ``tokens``, a stop token too; ``logits`` follow the last of them."""

    tokens: list[int]
    score: float
    cache: Cache
    logits: Tensor

    @property
    def mean(self) -> float:
        return self.score / max(1, len(self.tokens))


def beam_search(cache: Cache, logits: Tensor, *, tokenizer: Tokenizer, width: int, limit: int) -> EngineCoroutine[None]:
    """The answer with the best mean log-probability among those ``width`` beams met: its tokens come at the end.

    ``logits`` [vocabulary] are those after what ``cache`` holds, which stays as it is. Raises Cancelled.
    """
    live, ended = [_Beam([], 0.0, cache.fork(), logits)], list[_Beam]()
    try:
        for step in range(limit):
            yield Progress("beams", step, limit)
            live = yield from _extended(live, ended, width, tokenizer.stop_ids)
            if not live or (len(ended) >= width and max(b.mean for b in ended) >= max(b.mean for b in live)):
                break
        best = max([*ended, *live], key=lambda b: b.mean)
    finally:
        for beam in live:
            beam.cache.drop()
    text_of = tokenizer.stream()
    for token in best.tokens:
        if token not in tokenizer.stop_ids:
            yield Token(text_of(token), token)


def _extended(
    live: list[_Beam], ended: list[_Beam], width: int, stop_ids: frozenset[int]
) -> Generator[ForwardRequest, Tensor, list[_Beam]]:
    """The best ``width`` continuations by one token, computed; those that stop go to ``ended``."""
    candidates = []
    for beam in live:
        top = beam.logits.log_softmax(-1).topk(width)
        candidates += [
            (beam.score + score, token, beam)
            for score, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
    candidates.sort(key=lambda c: -c[0])
    going = []
    for score, token, beam in candidates[:width]:
        if token in stop_ids:
            ended.append(_Beam([*beam.tokens, token], score, beam.cache, beam.logits))
        else:
            going.append(_Beam([*beam.tokens, token], score, beam.cache.fork(), beam.logits))
    for beam in live:
        beam.cache.drop()
    live[:] = going  # so that a cancel gives back what is held now
    for beam in going:
        with no_room_told(beam.cache):
            beam.logits = (yield ForwardRequest(beam.tokens[-1:], beam.cache))[-1]
    return going
