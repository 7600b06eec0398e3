"""Prefills in chunks and decodes token by token, with one cache or several forks of it."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import torch
from torch import Tensor

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.drafting import PromptLookup
from localctx.engine.decoding.prefill_pace import PrefillPace
from localctx.engine.decoding.repetition import Repetition
from localctx.engine.events import Evicted, Note, Progress, Token
from localctx.engine.planning.cache_plan import OomRecovery, out_of_memory
from localctx.errors import OutOfKVMemory
from localctx.kv.dispatch import max_tokens_at_once
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.base import ForwardRequest, Tokenizer
from localctx.models.sampling import Sampler


def prefill(
    cache: SequenceCache,
    tokens: Sequence[int],
    *,
    chunk: int | OomRecovery,
    cuts: Sequence[int] = (),
    stops: Sequence[int] = (),
    total: int | None = None,
    after_chunk: Callable[[Any], None] = lambda cache: None,
) -> EngineCoroutine[Tensor]:
    """Prefill ``tokens[cache.length:]`` in chunks. Returns the logits [vocabulary] after the last token.

    ``chunk`` is the maximum number of tokens of a chunk, or an ``OomRecovery``, which makes room when memory runs out,
    so that prefill goes on. A chunk ends at each of ``cuts`` and ``stops``, which are token counts. The first cut is
    where the documents end, so that a run that reuses kept pages computes exactly the same as a full prefill. ``total``
    is the number of tokens that progress counts to, if ``tokens`` are only the beginning of a prompt. ``after_chunk``
    is called with the cache after each chunk. Raises Cancelled, with the finished chunks in the cache, and
    OutOfKVMemory if nothing is left to try.
    """
    recovery = chunk if isinstance(chunk, OomRecovery) else OomRecovery(chunk)
    reused, start, dropped = cache.length, time.perf_counter(), cache.dropped
    logits, total, pace = None, total or len(tokens), PrefillPace(reused)
    yield Progress("reading", reused, total, reused)
    while cache.length < len(tokens):
        at = cache.length
        stop = min((cut for cut in (*cuts, *stops) if at < cut), default=len(tokens))
        cache.enter_phase("reading" if at < min(cuts, default=0) else "asking")
        try:
            logits = yield ForwardRequest(tokens[at : min(at + recovery.chunk, stop)], cache)
        except (MemoryError, RuntimeError, OutOfKVMemory) as e:
            yield Note(_recover(recovery, cache, e))
            continue
        after_chunk(cache)
        rate = (cache.length - reused) / (time.perf_counter() - start)
        pace.note(cache.length)
        yield Progress("reading", cache.length, total, reused, rate, pace.seconds_to(total))
        yield from _report_evicted(cache, dropped)
        dropped = cache.dropped
    assert logits is not None, "prefill needs at least one token to read"
    cache.finish_prefill()
    yield from _report_evicted(cache, dropped)
    return logits[-1]


def likelihood(cache: SequenceCache, tokens: Sequence[int], start: int) -> EngineCoroutine[float]:
    """Prefill ``tokens[cache.length:]`` in one forward pass. Returns the sum of the log-probabilities of
    ``tokens[start:]``, in nats.

    Passages are ranked by the likelihood of the question after them (Sachan et al., arXiv:2204.07496). Raises
    Cancelled, OutOfKVMemory.
    """
    cache.enter_phase("asking")
    with out_of_memory_as_kv_error(cache):
        logits = yield ForwardRequest(tokens[cache.length :], cache, len(tokens) - start + 1)
    cache.finish_prefill()
    logs = logits[:-1].log_softmax(-1).gather(1, torch.tensor(tokens[start:], device=logits.device)[:, None])
    return float(logs.sum())


def decode(
    cache: SequenceCache,
    logits: Tensor,
    *,
    tokenizer: Tokenizer,
    sampler: Sampler,
    limit: int,
    answer: int = 0,
    lookup: PromptLookup | None = None,
    repetition: Repetition | None = None,
    at_once: Callable[[Any], int] = max_tokens_at_once,
) -> EngineCoroutine[None]:
    """Yield the tokens of an answer, up to a stop token or ``limit`` tokens.

    ``logits`` [vocabulary] are those after the tokens in ``cache``. ``sampler`` chooses the tokens. ``answer`` is the
    index of this answer, which its tokens carry. ``lookup`` drafts tokens, which are verified in the same pass as the
    token before them; a greedy answer does not change. ``repetition`` withholds tokens that may be a repetition, and
    ends the answer once it repeats itself. ``at_once`` returns how many tokens may be verified in one pass. Raises
    Cancelled or OutOfKVMemory; tokens yielded before remain valid.
    """
    text_of, withheld = tokenizer.stream(), deque[Token]()
    drafted = _DraftedLogits(cache, lookup if sampler.greedy else None, at_once)
    with closing(drafted):
        for left in reversed(range(limit)):
            token = sampler(logits)
            if token in tokenizer.stop_ids:
                break
            withheld.append(Token(text_of(token), token, answer, _logprobs(sampler, token, tokenizer)))
            released = repetition.add(token, "\n" in withheld[-1].text) if repetition else len(withheld)
            if repetition and repetition.found:
                return
            yield from (withheld.popleft() for _ in range(released))
            if left:
                logits = yield from drafted.after(token, left)
        yield from withheld


def _logprobs(sampler: Sampler, token: int, tokenizer: Tokenizer) -> tuple[tuple[str, float], ...] | None:
    """Returns the logprobs of ``token`` and of its alternatives, as ``Token.logprobs`` describes them. The text of a
    token is empty for an incomplete UTF-8 sequence.
    """
    if sampler.logprobs is None:
        return None
    logprob, likeliest = sampler.logprobs
    return tuple((tokenizer.stream()(one), value) for one, value in ((token, logprob), *likeliest))


class _DraftedLogits:
    """Provides the logits after each token of an answer: from an earlier pass if the token was drafted, else from a new
    pass.

    ``close`` removes unconfirmed drafted tokens from the cache.
    """

    def __init__(self, cache: SequenceCache, lookup: PromptLookup | None, at_once: Callable[[Any], int]) -> None:
        self._cache, self._lookup, self._drafted = cache, lookup or PromptLookup((), 0), 0
        self._at_once = at_once
        self._draft, self._logits = list[int](), list[Tensor]()  # unconfirmed tokens, and the logits after each

    def after(self, token: int, left: int) -> EngineCoroutine[Tensor]:
        """Returns the logits [vocabulary] after ``token``, the next one of the answer; at most ``left`` more tokens are
        needed.
        """
        self._lookup.add(token)
        if self._draft and self._draft[0] == token:
            self._draft.pop(0)
            return self._logits.pop(0)
        self.close()
        draft = self._lookup.draft(min(left, self._at_once(self._cache)) - 1) if self._lookup.max_draft else []
        with out_of_memory_as_kv_error(self._cache):
            logits = yield ForwardRequest([token, *draft], self._cache, 1 + len(draft))
        self._drafted, self._draft, self._logits = len(draft), draft, list(logits[1:])
        return logits[0]

    def close(self) -> None:
        """Trim rejected tokens from the cache, and record how many drafted tokens were accepted."""
        if rejected := len(self._draft):
            self._cache.trim(self._cache.length - rejected)
        if self._drafted:
            self._lookup.record(self._drafted, self._drafted - rejected)
        self._drafted, self._draft, self._logits = 0, [], []


def decode_each(
    cache: SequenceCache, logits: Tensor, *, tokenizer: Tokenizer, samplers: Sequence[Sampler], limit: int
) -> EngineCoroutine[None]:
    """Yield one answer of at most ``limit`` tokens for each sampler, one answer after the other. Each answer decodes in
    a fork of ``cache``, which shares the sealed pages and has its own open page. Raises Cancelled.
    """
    for i, sampler in enumerate(samplers):
        own = cache.fork(recording=not i)  # only the attention of the first answer is cited
        try:
            yield from decode(own, logits, tokenizer=tokenizer, sampler=sampler, limit=limit, answer=i)
        finally:
            own.drop()


def _recover(recovery: OomRecovery, cache: SequenceCache, error: Exception) -> str:
    """Make room after an out-of-memory ``error``. Returns a sentence for the user that says how.

    Raises OutOfKVMemory if nothing is left to try, and re-raises any other error.
    """
    if not (isinstance(error, OutOfKVMemory) or out_of_memory(error)):
        raise error
    if action := recovery(cache, of_budget=isinstance(error, OutOfKVMemory)):
        return action
    raise error if isinstance(error, OutOfKVMemory) else _out_of_kv_memory(cache) from error


@contextmanager
def out_of_memory_as_kv_error(cache: SequenceCache) -> Iterator[None]:
    """Within the block, convert torch's out-of-memory errors to OutOfKVMemory, with the memory that ``cache`` uses."""
    try:
        yield
    except (MemoryError, RuntimeError) as e:
        if not out_of_memory(e):
            raise
        raise _out_of_kv_memory(cache) from e


def _out_of_kv_memory(cache: SequenceCache) -> OutOfKVMemory:
    return OutOfKVMemory(cache.pool.nbytes(), cache.pool.bytes_of_page, "the device's memory ran out")


def _report_evicted(cache: SequenceCache, dropped: int) -> Iterator[Evicted]:
    """Yield an event if the keeper evicted tokens since ``dropped`` was read."""
    if cache.dropped != dropped:
        ranges = tuple((e.start, e.stop) for e in cache.evicted)
        yield Evicted(cache.keeper.name, cache.dropped, ranges)
