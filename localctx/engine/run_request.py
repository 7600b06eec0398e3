"""Answering an opened prompt: it is read, or ranked, answered, and shut. ``Request`` holds what is to be reported."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from torch import Tensor

from localctx.engine.beams import beam_search
from localctx.engine.coroutine import CancelCheck, EngineCoroutine, compute_alone, map_events, run_to_end
from localctx.engine.drafting import PromptLookup
from localctx.engine.events import Event, Token
from localctx.engine.page_map import page_map
from localctx.engine.prefill_decode import decode, decode_each, likelihood, prefill
from localctx.engine.prompt import common
from localctx.engine.request import Request
from localctx.errors import Cancelled, NoRoom
from localctx.models.base import Model, Tokenizer
from localctx.models.sampling import Sampler
from localctx.settings import Settings
from localctx.shape import PAGE

DRAFTED = 8192  # tokens; beyond, a guess costs as much attention as a right one saves of reading weights
MIN_RATED = 256  # tokens; a shorter reading says little about speed


def read(work: Request, stop: int | None = None) -> EngineCoroutine[Tensor | None]:
    """Read the prompt up to ``stop`` (None: its end), keeping pages behind; the last logits, None if all was there.

    Raises Cancelled, NoRoom.
    """
    start, tokens = time.perf_counter(), work.tokens[:stop]
    if work.cache.length >= len(tokens):
        return None
    try:
        return (
            yield from prefill(
                work.cache,
                tokens,
                chunk=work.relief,
                boundary=work.boundary,
                after_chunk=work.keeping or (lambda cache: None),
            )
        )
    finally:
        work.read = work.cache.length - work.plan.reused
        work.seconds["prefill"] = time.perf_counter() - start


def rank(work: Request) -> EngineCoroutine[tuple[float, Tensor]]:
    """Read the prompt; how likely its question is after what comes before, and the last logits."""
    yield from read(work, work.boundary)
    start = time.perf_counter()
    found = yield from likelihood(work.cache, work.tokens)
    work.read = work.cache.length - work.plan.reused
    work.seconds["prefill"] = work.seconds.get("prefill", 0.0) + time.perf_counter() - start
    return found


def answer(work: Request, logits: Tensor, tokenizer: Tokenizer, settings: Settings) -> EngineCoroutine[None]:
    """The answer, or several, after the prompt's last ``logits``; what it looks at is watched.

    Raises Cancelled, NoRoom; what came stands.
    """

    def note(event: Event) -> Event:
        if isinstance(event, Token):
            now = time.perf_counter()
            work.seconds.setdefault("first_token", now - work.started)
            work.seconds["decode"] = now - work.started - work.seconds["first_token"]
            work.answers[event.answer].append(event)
        return event

    work.cache.record_attention()
    yield from map_events(_decoding(work, logits, tokenizer, settings), note)
    work.seconds.setdefault("first_token", time.perf_counter() - work.started)  # the model had nothing to say
    if work.repetition.found:
        work.stopped = "repeated"
    else:
        work.stopped = "length" if max(map(len, work.answers)) == work.plan.answer_tokens else "eos"


def say(work: Request, text: str, tokenizer: Tokenizer) -> Iterator[Token]:
    """Give ``text`` as the answer, which the model did not write."""
    text_of = tokenizer.stream()
    for token in tokenizer.encode(text):
        work.answers[0].append(Token(text_of(token), token))
        yield work.answers[0][-1]


def settle(model: Model, work: Request, branch: int, cancelled: CancelCheck) -> None:
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
            run_to_end(prefill(cache, tokens, chunk=work.relief, boundary=len(tokens)), compute_alone(model, cancelled))


def shut(work: Request) -> None:
    """Keep what was read, remember what is to be reported of the cache, and drop it."""
    if work.keeping:
        rate = work.read / work.seconds["prefill"] if work.read >= MIN_RATED else None
        work.keeping.close(work.cache, rate)
    pool, pages = work.cache.pool, work.cache.pages
    work.pages, work.evicted = pool.counts(pages), list(work.cache.evicted)
    work.bytes, work.sketched = pool.nbytes(pages), work.cache.sketch_bytes()
    work.map = page_map(work.cache, work.restored)
    work.cache.drop()


def _decoding(work: Request, logits: Tensor, tokenizer: Tokenizer, s: Settings) -> EngineCoroutine[None]:
    how: dict[str, Any] = {"tokenizer": tokenizer, "limit": work.plan.answer_tokens}
    if s.beams > 1:
        yield from beam_search(work.cache, logits, width=s.beams, **how)
        return
    seeds = [None if s.seed is None else s.seed + i for i in range(s.n)]
    samplers = [Sampler(s.temperature, s.top_p, s.top_k, seed) for seed in seeds]
    work.answers = [[] for _ in samplers]
    if s.n == 1:
        work.lookup = PromptLookup(work.tokens, s.draft if len(work.tokens) <= DRAFTED else 0)
        if samplers[0].greedy and s.repeats == "stop":
            how["repetition"] = work.repetition
        yield from decode(work.cache, logits, sampler=samplers[0], lookup=work.lookup, **how)
        work.likelihood = samplers[0].likelihood
    else:
        yield from decode_each(work.cache, logits, samplers=samplers, **how)
