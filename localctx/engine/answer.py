"""Answering an opened prompt: it is read, or ranked, answered, and shut. ``Work`` holds what is to be reported."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

from torch import Tensor

from localctx.engine.beams import beam_search
from localctx.engine.events import Event, Token
from localctx.engine.generate import decode, decode_each, likelihood, prefill
from localctx.engine.pagemap import page_map
from localctx.engine.prompt import common
from localctx.engine.work import Work
from localctx.errors import Cancelled, NoRoom
from localctx.models.base import Model
from localctx.models.sampling import Sampler
from localctx.settings import Settings
from localctx.shape import PAGE

MIN_RATED = 256  # tokens; a shorter reading says little about speed

Check = Callable[[], bool]


def read(model: Model, work: Work, cancelled: Check, stop: int | None = None) -> Generator[Event, None, Tensor | None]:
    """Read the prompt up to ``stop`` (None: its end), keeping pages behind; the last logits, None if all was there.

    Raises Cancelled, NoRoom.
    """
    start, tokens = time.perf_counter(), work.tokens[:stop]
    if work.cache.length >= len(tokens):
        return None
    try:
        return (
            yield from prefill(
                model,
                work.cache,
                tokens,
                chunk=work.relief,
                boundary=work.boundary,
                cancelled=cancelled,
                after_chunk=work.keeping or (lambda cache: None),
            )
        )
    finally:
        work.read = work.cache.length - work.plan.reused
        work.seconds["prefill"] = time.perf_counter() - start


def rank(model: Model, work: Work, cancelled: Check) -> Generator[Event, None, tuple[float, Tensor]]:
    """Read the prompt; how likely its question is after what comes before, and the last logits."""
    yield from read(model, work, cancelled, work.boundary)
    start = time.perf_counter()
    found = likelihood(model, work.cache, work.tokens, cancelled)
    work.read = work.cache.length - work.plan.reused
    work.seconds["prefill"] = work.seconds.get("prefill", 0.0) + time.perf_counter() - start
    return found


def answer(model: Model, work: Work, logits: Tensor, settings: Settings, cancelled: Check) -> Iterator[Event]:
    """The answer, or several, after the prompt's last ``logits``; what it looks at is watched.

    Raises Cancelled, NoRoom; what came stands.
    """
    first = 0.0
    work.cache.watch()
    for event in _decoding(model, work, logits, settings, cancelled):
        yield event
        if not isinstance(event, Token):
            continue
        now = time.perf_counter()
        first = first or now
        work.seconds |= {"first_token": first - work.started, "decode": now - first}
        work.answers[event.answer].append(event)
    work.seconds.setdefault("first_token", time.perf_counter() - work.started)  # the model had nothing to say
    work.stopped = "length" if max(map(len, work.answers)) == work.plan.answer_tokens else "eos"


def settle(model: Model, work: Work, branch: int, cancelled: Check) -> None:
    """Read on to where a next question would begin, and keep all of it under the chat's ``branch``.

    The answer's pages stay as far as its text gives the same tokens again; templates and tokenizers see to the rest,
    which is read. Where the keeper dropped something, or there is no room, the next question reads more.
    """
    tokens, cache = work.following(work.said), work.cache
    if not work.keeping or work.failed or not cache.exact or len(tokens) > model.context:
        return
    same = min(cache.length, common([*work.tokens, *(t.id for t in work.answers[0])], tokens))
    sealed = len(cache.pages) * PAGE
    cache.trim(same if same >= sealed else same // PAGE * PAGE)  # a page that is cut open is not what was read
    work.keeping.extend(cache, tokens, branch)
    with suppress(Cancelled, NoRoom):
        if cache.length < len(tokens):
            deque(prefill(model, cache, tokens, chunk=work.relief, boundary=len(tokens), cancelled=cancelled), 0)


def shut(work: Work) -> None:
    """Keep what was read, remember what is to be reported of the cache, and drop it."""
    if work.keeping:
        rate = work.read / work.seconds["prefill"] if work.read >= MIN_RATED else None
        work.keeping.close(work.cache, rate)
    pool = work.cache.pool
    work.pages, work.evicted = pool.counts(), list(work.cache.evicted)
    work.bytes, work.sketched = pool.nbytes(), work.cache.sketch_bytes()
    work.map = page_map(work.cache, work.restored)
    work.cache.drop()


def _decoding(model: Model, work: Work, logits: Tensor, s: Settings, cancelled: Check) -> Iterator[Event]:
    limit = work.plan.answer_tokens
    if s.beams > 1:
        yield from beam_search(model, work.cache, logits, width=s.beams, limit=limit, cancelled=cancelled)
        return
    seeds = [None if s.seed is None else s.seed + i for i in range(s.n)]
    samplers = [Sampler(s.temperature, s.top_p, s.top_k, seed) for seed in seeds]
    work.answers = [[] for _ in samplers]
    if s.n == 1:
        yield from decode(model, work.cache, logits, sampler=samplers[0], limit=limit, cancelled=cancelled)
    else:
        yield from decode_each(model, work.cache, logits, samplers=samplers, limit=limit, cancelled=cancelled)
