"""Beam search: extends the likeliest partial answers together. Their caches share all pages but the open one."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.prefill_decode import out_of_memory_as_kv_error
from localctx.engine.events import Progress, Token
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.base import ForwardRequest, Tokenizer


@dataclass
class _Beam:
    """A partial answer. ``score`` is the sum of the log-probabilities of ``tokens``, with the stop token if there is
    one. ``logits`` [vocabulary] are those after the last token.
    """

    tokens: list[int]
    score: float
    cache: SequenceCache
    logits: Tensor

    @property
    def mean_score(self) -> float:
        return self.score / max(1, len(self.tokens))


def beam_search(
    cache: SequenceCache, logits: Tensor, *, tokenizer: Tokenizer, width: int, limit: int
) -> EngineCoroutine[None]:
    """Search for the answer with the best mean log-probability among ``width`` beams (partial answers). Yields its
    tokens at the end.

    ``logits`` [vocabulary] are those after the tokens in ``cache``, which is not changed. An answer has at most
    ``limit`` tokens. Raises Cancelled, OutOfKVMemory.
    """
    live, ended = [_Beam([], 0.0, cache.fork(), logits)], list[_Beam]()
    try:
        for step in range(limit):
            yield Progress("beams", step, limit)
            live = yield from _extend(live, ended, width, tokenizer.stop_ids)
            if not live or (len(ended) >= width and _best(ended).mean_score >= _best(live).mean_score):
                break
        best = _best([*ended, *live])
    finally:
        for beam in live:
            beam.cache.drop()
    text_of = tokenizer.stream()
    for token in best.tokens:
        if token not in tokenizer.stop_ids:
            yield Token(text_of(token), token)


def _best(beams: Sequence[_Beam]) -> _Beam:
    return max(beams, key=lambda beam: beam.mean_score)


def _extend(
    live: list[_Beam], ended: list[_Beam], width: int, stop_ids: frozenset[int]
) -> Generator[ForwardRequest, Tensor, list[_Beam]]:
    """Extend the beams in ``live`` by one token, and return the best ``width`` with their logits. Beams that stop are
    added to ``ended`` and not returned.
    """
    candidates = []
    for beam in live:
        top = beam.logits.log_softmax(-1).topk(width)
        candidates += [
            (beam.score + score, token, beam)
            for score, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
    candidates.sort(key=lambda c: -c[0])
    going_on = list[_Beam]()
    for score, token, beam in candidates[:width]:
        if token in stop_ids:
            ended.append(_Beam([*beam.tokens, token], score, beam.cache, beam.logits))
        else:
            going_on.append(_Beam([*beam.tokens, token], score, beam.cache.fork(), beam.logits))
    for beam in live:
        beam.cache.drop()
    live[:] = going_on  # so that a cancel drops the caches that are open now
    for beam in going_on:
        with out_of_memory_as_kv_error(beam.cache):
            beam.logits = (yield ForwardRequest(beam.tokens[-1:], beam.cache))[-1]
    return going_on
