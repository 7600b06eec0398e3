"""Prefill in chunks and decode token by token, over one Cache or several that share their past."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import torch
from torch import Tensor

from localctx.engine.cache_plan import MemoryRelief, out_of_memory
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.drafting import PromptLookup
from localctx.engine.events import Evicted, Note, Progress, Token
from localctx.engine.repetition import Repetition
from localctx.errors import NoRoom
from localctx.kv.cache import Cache
from localctx.kv.dispatch import max_tokens_at_once
from localctx.models.base import ForwardRequest, Tokenizer
from localctx.models.sampling import Sampler


def prefill(
    cache: Cache,
    tokens: Sequence[int],
    *,
    chunk: int | MemoryRelief,
    boundary: int = 0,
    total: int | None = None,
    after_chunk: Callable[[Cache], None] = lambda cache: None,
) -> EngineCoroutine[Tensor]:
    """Read ``tokens[cache.length:]``; returns the logits [vocabulary] after the last.

    A chunk ends at ``boundary``, where the documents end: a run that reuses kept pages then computes exactly what a run
    that read everything computed. When memory runs out the ``MemoryRelief`` helps, and the reading goes on.
    ``total``: the tokens there will be, where these are not all.
    Raises Cancelled, with the chunks before it in the cache; NoRoom when there is no relief left.
    """
    relief = chunk if isinstance(chunk, MemoryRelief) else MemoryRelief(chunk)
    reused, start, dropped = cache.length, time.perf_counter(), cache.dropped
    logits, total = None, total or len(tokens)
    yield Progress("reading", reused, total, reused)
    while cache.length < len(tokens):
        at = cache.length
        stop = boundary if at < boundary else len(tokens)
        cache.enter_phase("reading" if at < boundary else "asking")
        try:
            logits = yield ForwardRequest(tokens[at : min(at + relief.chunk, stop)], cache)
        except (MemoryError, RuntimeError, NoRoom) as e:
            yield Note(_relieved(relief, cache, e))
            continue
        after_chunk(cache)
        rate = (cache.length - reused) / (time.perf_counter() - start)
        yield Progress("reading", cache.length, total, reused, rate, (total - cache.length) / rate)
        yield from _news(cache, dropped)
        dropped = cache.dropped
    assert logits is not None, "prefill needs at least one token to read"
    cache.finish_prefill()
    yield from _news(cache, dropped)
    return logits[-1]


def likelihood(cache: Cache, tokens: Sequence[int]) -> EngineCoroutine[tuple[float, Tensor]]:
    """Read the rest of ``tokens`` at once; log p of all but the first of it, and the last logits [vocabulary].

    How likely a question is after a passage ranks passages (Sachan et al., arXiv:2204.07496). Raises Cancelled, NoRoom.
    """
    rest = tokens[cache.length :]
    cache.enter_phase("asking")
    with no_room_told(cache):
        logits = yield ForwardRequest(rest, cache, len(rest))
    cache.finish_prefill()
    logs = logits[:-1].log_softmax(-1).gather(1, torch.tensor(rest[1:], device=logits.device)[:, None])
    return float(logs.sum()), logits[-1]


def decode(
    cache: Cache,
    logits: Tensor,
    *,
    tokenizer: Tokenizer,
    sampler: Sampler,
    limit: int,
    answer: int = 0,
    lookup: PromptLookup | None = None,
    repetition: Repetition | None = None,
) -> EngineCoroutine[None]:
    """The answer after what ``cache`` holds, whose last logits [vocabulary] are given: to a stop token, or ``limit``.

    A greedy answer is the same with a ``lookup``, whose guesses are computed together with the token before them; it
    knows the prompt. With a ``repetition`` the answer ends where that is found, and tokens may come a little later.
    Raises Cancelled, or NoRoom; what was yielded before stands.
    """
    text_of, held = tokenizer.stream(), deque[Token]()
    ahead = _Ahead(cache, lookup if sampler.greedy else None)
    with closing(ahead):
        for left in reversed(range(limit)):
            token = sampler(logits)
            if token in tokenizer.stop_ids:
                break
            held.append(Token(text_of(token), token, answer))
            free = repetition.add(token, "\n" in held[-1].text) if repetition else len(held)
            if repetition and repetition.found:
                return
            yield from (held.popleft() for _ in range(free))
            if left:
                logits = yield from ahead.after(token, left)
        yield from held


class _Ahead:
    """Logits after each token, computed ahead where the tokens were guessed. Closed, the cache holds no guess."""

    def __init__(self, cache: Cache, lookup: PromptLookup | None) -> None:
        self._cache, self._lookup, self._drafted = cache, lookup or PromptLookup((), 0), 0
        self._guessed, self._rows = list[int](), list[Tensor]()  # what was fed and is not confirmed, logits after it

    def after(self, token: int, left: int) -> EngineCoroutine[Tensor]:
        """The logits [vocabulary] after ``token``, when at most ``left`` more are wanted."""
        self._lookup.add(token)
        if self._guessed and self._guessed[0] == token:
            self._guessed.pop(0)
            return self._rows.pop(0)
        self.close()
        guess = self._lookup.guess(min(left, max_tokens_at_once(self._cache)) - 1)
        with no_room_told(self._cache):
            logits = yield ForwardRequest([token, *guess], self._cache, 1 + len(guess))
        self._drafted, self._guessed, self._rows = len(guess), guess, list(logits[1:])
        return logits[0]

    def close(self) -> None:
        """Take back what was guessed wrong."""
        if wrong := len(self._guessed):
            self._cache.trim(self._cache.length - wrong)
        if self._drafted:
            self._lookup.hear(self._drafted, self._drafted - wrong)
        self._drafted, self._guessed, self._rows = 0, [], []


def decode_each(
    cache: Cache, logits: Tensor, *, tokenizer: Tokenizer, samplers: Sequence[Sampler], limit: int
) -> EngineCoroutine[None]:
    """An answer for each sampler, one after the other. They share the prompt's pages; each has an open page of its own.

    Raises Cancelled.
    """
    for i, sampler in enumerate(samplers):
        own = cache.fork(recording=not i)  # only the attention of the first answer is cited
        try:
            yield from decode(own, logits, tokenizer=tokenizer, sampler=sampler, limit=limit, answer=i)
        finally:
            own.drop()


def _relieved(relief: MemoryRelief, cache: Cache, e: Exception) -> str:
    """What was done about ``e``, when it says that memory ran out. Raises it otherwise, or NoRoom."""
    if not (isinstance(e, NoRoom) or out_of_memory(e)):
        raise e
    if said := relief(cache, of_budget=isinstance(e, NoRoom)):
        return said
    raise e if isinstance(e, NoRoom) else _no_room(cache) from e


@contextmanager
def no_room_told(cache: Cache) -> Iterator[None]:
    """Turn what torch raises when memory ran out into NoRoom."""
    try:
        yield
    except (MemoryError, RuntimeError) as e:
        if not out_of_memory(e):
            raise
        raise _no_room(cache) from e


def _no_room(cache: Cache) -> NoRoom:
    return NoRoom(cache.pool.nbytes(), cache.pool.shape.page_bytes(cache.pool.codec), "the device's memory ran out")


def _news(cache: Cache, dropped: int) -> Iterator[Evicted]:
    if cache.dropped != dropped:
        ranges = tuple((e.start, e.stop) for e in cache.evicted)
        yield Evicted(cache.keeper.name, cache.dropped, ranges)
