"""Runs a request: prefills or ranks its prompt, generates its answer, and closes it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from torch import Tensor

from localctx.engine.coroutine import CancelCheck, EngineCoroutine, compute_alone, map_events, run_to_end
from localctx.engine.decoding.beams import beam_search
from localctx.engine.decoding.continued_text import ContinuedTokenizer
from localctx.engine.decoding.drafting import PromptLookup
from localctx.engine.decoding.prefill_decode import decode, decode_each, likelihood, prefill
from localctx.engine.events import Event, Token
from localctx.engine.prompt import common
from localctx.engine.request import Request
from localctx.errors import Cancelled, OutOfKVMemory
from localctx.models.base import Tokenizer
from localctx.models.constraint import Constraint
from localctx.models.sampling import Sampler
from localctx.models.token_controls import LogitsProcessor, Penalties
from localctx.settings import Settings

MAX_DRAFTED_PROMPT = 8192  # tokens; in longer prompts a wrong draft costs as much attention as a right one saves
MIN_RATED_TOKENS = 256  # a shorter prefill says little about speed
MIN_RATED_ANSWER = 16  # tokens; a shorter answer says little about speed


def run_request(request: Request, coroutine: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``coroutine``, which answers or prefills a request, and always close the request.

    A cancel is no error: ``request.stopped`` is then ``cancelled``, and the tokens generated so far remain.
    """
    try:
        yield from coroutine
    except Cancelled:
        pass
    finally:
        close_request(request)


def answer_request(request: Request, settings: Settings) -> EngineCoroutine[None]:
    """Prefill the rest of the prompt and generate the answer, or as many answers as ``settings`` ask for. The cache
    records the attention of the answers for attribution.

    Raises Cancelled, OutOfKVMemory; tokens generated before remain.
    """
    return record_tokens(request, generate_tokens(request, settings))


def record_tokens(request: Request, answering: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``answering``, and add the tokens that it yields to the answers of ``request``. The time that they take is
    added to the seconds of the request.
    """
    return map_events(answering, partial(_record, request))


def generate_tokens(request: Request, settings: Settings) -> EngineCoroutine[None]:
    """Prefill and generate like ``answer_request``, but do not record the tokens. The caller records them with
    ``record_tokens``.
    """
    if request.logits is None:
        yield from prefill_request(request)
    assert request.logits is not None, "a prompt always ends with tokens that are not kept, and are prefilled"
    request.cache.record_attention()
    samplers = _samplers(request, settings)
    yield from _decode(request, request.logits, settings, samplers)
    request.seconds.setdefault("first_token", time.perf_counter() - request.started)  # an empty answer
    request.result.likelihood = samplers[0].likelihood
    longest = max(map(len, request.result.answers))
    request.result.stopped = "length" if longest == request.plan.answer_tokens else "eos"
    if request.repetition.found:
        request.result.stopped = "repeated"


def prefill_request(request: Request, stop: int | None = None) -> EngineCoroutine[None]:
    """Prefill the prompt up to token ``stop`` (None: all of it), and persist pages meanwhile. At the end of the prompt,
    sets ``request.logits``. Raises Cancelled, OutOfKVMemory.
    """
    start, tokens = time.perf_counter(), request.prompt.tokens[:stop]
    if request.cache.length >= len(tokens):
        return
    cuts = request.persister or request.sharing or request.engine.always_cuts
    snapshots = request.persister.stops(request.cache) if request.persister else ()
    shared = request.sharing.ends if request.sharing else ()
    try:
        logits = yield from prefill(
            request.cache,
            tokens,
            chunk=request.recovery,
            cuts=request.prompt.cuts if cuts else (),
            stops=(*request.prompt.document_ends, *snapshots, *shared) if cuts else (),
            after_chunk=request.after_chunk,
        )
        request.logits = logits if len(tokens) == len(request.prompt.tokens) else None
    finally:
        request.prefilled = request.cache.length - request.plan.reused
        _add_prefill_seconds(request, start)


def rank_request(request: Request) -> EngineCoroutine[float]:
    """Compute how well a passage matches the question: prefill the passage, and return the log-likelihood, in nats, of
    the question after it. The adapter is not used. The question is computed in a fork, so the request's own cache ends
    with the passage. Raises Cancelled, OutOfKVMemory.
    """
    assert request.prompt.ranking, "only passages are ranked"
    yield from prefill_request(request, request.prompt.boundary)
    start, cache = time.perf_counter(), request.cache.fork(recording=False)
    cache.activation = None
    try:
        logprob = yield from likelihood(cache, request.prompt.ranking.tokens, request.prompt.ranking.question)
        request.prefilled = request.prefilled_to_rank = cache.length - request.plan.reused
    finally:
        cache.drop()
    _add_prefill_seconds(request, start)
    return logprob


def _add_prefill_seconds(request: Request, start: float) -> None:
    """Add the time since ``start`` to the seconds of prefill. A passage is first ranked, then prefilled to the end of
    the prompt, so that both times count.
    """
    request.seconds["prefill"] = request.seconds.get("prefill", 0.0) + time.perf_counter() - start


def emit_text(request: Request, text: str) -> Iterator[Token]:
    """Yield ``text``, which the model did not generate, as tokens of the answer, and add them to the first answer.
    The first of them is the request's first token.
    """
    request.seconds["first_token"] = time.perf_counter() - request.started
    tokenizer = request.model.tokenizer
    text_of = tokenizer.stream()
    for token in tokenizer.encode(text):
        request.result.answers[0].append(Token(text_of(token), token))
        yield request.result.answers[0][-1]


def persist_answer(request: Request, branch: int, cancelled: CancelCheck) -> None:
    """Prefill the conversation with the answer, up to where the next question will begin, and persist this prefix as a
    ``branch`` of the chat.

    The pages of the generated answer are reused as far as its text is tokenized in the same way again; all further
    tokens are prefilled as the chat template renders them. If the keeper evicted tokens or memory is short, nothing is
    done, and the next question prefills more.
    """
    tokens, cache = request.prompt.next_tokens(request.text), request.cache
    if not request.persister or request.persist_error or not cache.exact or len(tokens) > request.model.context:
        return
    same = min(cache.length, common([*request.prompt.tokens, *(t.id for t in request.result.answers[0])], tokens))
    cache.trim(cache.trimmable(same))
    request.persister.extend(cache, tokens, branch)
    with suppress(Cancelled, OutOfKVMemory):
        if cache.length < len(tokens):
            stops = request.persister.stops(cache)
            rest = prefill(cache, tokens, chunk=request.recovery, cuts=[len(tokens)], stops=stops)
            run_to_end(rest, compute_alone(request.model, cancelled))


def close_request(request: Request) -> None:
    """Persist the pages that were prefilled, record the report on the cache, and drop the cache."""
    if request.persister:
        if (answer_rate := _answer_rate(request)) is not None:
            request.persister.note_answer_rate(answer_rate)
        enough = request.prefilled >= MIN_RATED_TOKENS
        request.persister.close(request.cache, request.prefilled / request.seconds["prefill"] if enough else None)
    request.record_kv()
    request.cache.drop()


def _answer_rate(request: Request) -> float | None:
    """Returns the decode rate of a single answer in tokens per second; None for a short answer, which says little about
    speed.
    """
    count = len(request.result.answers[0]) - 1 if len(request.result.answers) == 1 else 0
    seconds = request.seconds.get("decode", 0.0)
    return count / seconds if count >= MIN_RATED_ANSWER and seconds else None


def _samplers(request: Request, s: Settings) -> list[Sampler]:
    """Returns one sampler per answer, with consecutive seeds."""
    seeds = [None if s.seed is None else s.seed + i for i in range(s.n)]
    top = request.controls.top
    return [Sampler(s.temperature, s.top_p, s.top_k, seed, _processors(request), top) for seed in seeds]


def _processors(request: Request) -> list[LogitsProcessor]:
    """Returns the logits processors of one answer; a grammar comes last, so that no logit bias can override it."""
    controls, found = request.controls, list[LogitsProcessor]()
    if controls.bias or controls.frequency_penalty or controls.presence_penalty:
        found.append(Penalties(controls))
    if controls.grammar:
        found.append(Constraint(request.model.tokenizer, controls.grammar))
    return found


def _decode(request: Request, logits: Tensor, settings: Settings, samplers: Sequence[Sampler]) -> EngineCoroutine[None]:
    """Returns the coroutine that generates as the settings say: beam search, several answers, or one with drafting."""
    cache, limit, tokenizer = request.cache, request.plan.answer_tokens, _tokenizer(request)
    if settings.beams > 1:
        return beam_search(cache, logits, tokenizer=tokenizer, width=settings.beams, limit=limit)
    request.result.answers = [[] for _ in samplers]
    if settings.n > 1:
        return decode_each(cache, logits, tokenizer=tokenizer, samplers=samplers, limit=limit)
    (sampler,) = samplers
    drafts = len(request.prompt.tokens) <= MAX_DRAFTED_PROMPT and request.engine.max_tokens_at_once(cache) > 1
    request.lookup = PromptLookup(request.prompt.tokens, settings.draft if drafts else 0)
    return decode(
        cache,
        logits,
        tokenizer=tokenizer,
        sampler=sampler,
        limit=limit,
        lookup=request.lookup,
        repetition=request.repetition if sampler.greedy and settings.repeats == "stop" else None,
        at_once=request.engine.max_tokens_at_once,
    )


def _tokenizer(request: Request) -> Tokenizer:
    tokenizer = request.model.tokenizer
    return ContinuedTokenizer(tokenizer, request.prompt.begun) if request.prompt.begun else tokenizer


def _record(request: Request, event: Event) -> Event:
    """Append a token to its answer, and record the time."""
    if isinstance(event, Token):
        now = time.perf_counter()
        request.seconds.setdefault("first_token", now - request.started)
        request.seconds["decode"] = now - request.started - request.seconds["first_token"]
        request.result.answers[event.answer].append(event)
    return event
