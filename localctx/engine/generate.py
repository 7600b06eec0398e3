"""Prefill in chunks and decode token by token, over one Cache."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence

from torch import Tensor

from localctx.engine.events import Progress, Token
from localctx.kv.cache import Cache
from localctx.models.base import Model
from localctx.models.sampling import Sampler

Check = Callable[[], bool]


def prefill(
    model: Model,
    cache: Cache,
    tokens: Sequence[int],
    *,
    chunk: int,
    boundary: int = 0,
    cancelled: Check = lambda: False,
    after_chunk: Callable[[Cache], None] = lambda cache: None,
) -> Generator[Progress, None, Tensor]:
    """Read ``tokens[cache.length:]``; returns the logits [vocabulary] after the last.

    A chunk ends at ``boundary``, where kept pages end: a run that reuses them then computes exactly what a run that
    read everything computed. Raises Cancelled, with the chunks before it in the cache.
    """
    reused, start = cache.length, time.perf_counter()
    logits = None
    yield Progress("reading", reused, len(tokens), reused)
    while cache.length < len(tokens):
        at = cache.length
        stop = boundary if at < boundary else len(tokens)
        logits = model.forward(tokens[at : min(at + chunk, stop)], cache, cancelled=cancelled)
        after_chunk(cache)
        rate = (cache.length - reused) / (time.perf_counter() - start)
        yield Progress("reading", cache.length, len(tokens), reused, rate, (len(tokens) - cache.length) / rate)
    assert logits is not None, "prefill needs at least one token to read"
    return logits[-1]


def decode(
    model: Model,
    cache: Cache,
    logits: Tensor,
    *,
    sampler: Sampler,
    limit: int,
    cancelled: Check = lambda: False,
) -> Iterator[Token]:
    """The answer after what ``cache`` holds, whose last logits [vocabulary] are given: to a stop token, or ``limit``.

    Raises Cancelled; what was yielded before stands.
    """
    text_of = model.tokenizer.stream()
    for left in reversed(range(limit)):
        token = sampler(logits)
        if token in model.tokenizer.stop_ids:
            return
        yield Token(text_of(token), token)
        if left:
            logits = model.forward([token], cache, cancelled=cancelled)[-1]
