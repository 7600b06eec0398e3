"""Finds the likeliest answer that consists of words of a text, in runs of consecutive words.

It searches best first. A partial answer is at least as likely as all its continuations, so the first complete answer
reached is the likeliest (greedy decoding falls short of it: Castel et al., arXiv:2108.05857). A length penalty favours
long answers, for models not trained to answer briefly; then the answer found is only nearly the best.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count

import torch
from torch import Tensor

from localctx.engine.coroutine import EngineCoroutine, ForwardGroup
from localctx.engine.decoding.prefill_decode import out_of_memory_as_kv_error
from localctx.engine.decoding.span_index import Form, Place, SpanIndex, SpanState
from localctx.engine.events import Progress
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.base import ForwardRequest

WIDTH = 4  # partial answers extended in one forward pass
MAX_PASSES = 24  # after these, the best answer found so far is returned
LOOK_AHEAD = 6  # forced tokens that are computed at once
MAX_HOPE = 4  # tokens by which a partial answer is expected to grow under a length penalty
MAX_BRANCHES = 128  # continuations of one partial answer; a less likely one is not the best
SEPARATORS: dict[str, Form] = {",": "spaced", " and": "spaced", "\n": "bare"}
"""Separators between the runs of a list answer, and how the word after each is tokenized."""


@dataclass(frozen=True)
class QuotedAnswer:
    """An answer that consists of words of the texts, in one or more runs. ``places`` lists for each run the places
    where it occurs in the texts; ``separators`` are the characters between the runs. ``likelihood`` is the
    log-likelihood, in nats, of ``tokens`` and a stop token. ``score``, by which answers are ranked, is the likelihood
    divided by a power of the number of tokens.
    """

    tokens: tuple[int, ...]
    likelihood: float
    score: float
    places: tuple[Sequence[Place], ...]
    separators: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Partial:
    """A partial answer. ``state`` is the state of the last run. If ``branch`` is set, it is the last of the ``tokens``,
    and ``state`` does not include it yet. ``places`` and ``separators`` belong to the runs before the last one.
    ``likelihood`` excludes the last ``unscored`` tokens.
    """

    likelihood: float
    tokens: tuple[int, ...]
    state: SpanState
    branch: int | None = None
    unscored: int = 0
    places: tuple[Sequence[Place], ...] = ()
    separators: tuple[str, ...] = ()


class SpanSearch:
    """Searches for the best answer that consists of at most ``max_runs`` runs of words in ``index``, with at most
    ``limit`` tokens. ``ends`` are the ids of the tokens that end an answer. The score of an answer is its
    log-likelihood divided by ``(tokens + 1) ** length_penalty``. With a ``length_penalty`` of 0, the likeliest answer
    wins; a larger one favours long answers.
    """

    def __init__(
        self, index: SpanIndex, ends: Iterable[int], *, limit: int, max_runs: int, length_penalty: float = 0.0
    ) -> None:
        self._index, self._ends, self._length_penalty = index, sorted(ends), length_penalty
        self._limit, self._max_runs = limit, max_runs
        self._heap, self._order = list[tuple[float, int, _Partial]](), count()
        self._found = list[QuotedAnswer]()
        encoded = [(text, tuple(index.encode(text)), form) for text, form in SEPARATORS.items()]
        self._separators = [one for one in encoded if one[1]]  # some tokenizers have no token for a line break

    def run(self, cache: SequenceCache, logits: Tensor) -> EngineCoroutine[list[QuotedAnswer]]:
        """Returns complete answers, best first. The result is empty only if the texts have no words.

        ``logits`` [vocabulary] are those after the tokens in ``cache``, which is not changed. Raises Cancelled,
        OutOfKVMemory.
        """
        self._extend(_Partial(0.0, (), self._index.begin("bare", "spaced")), [], logits[None])
        passes = 0
        while not (self._found and passes >= MAX_PASSES) and (likeliest := self._take()):
            yield Progress("quoting", passes, MAX_PASSES)
            yield from self._forward(cache, likeliest)
            passes += 1
        return sorted(self._found, key=lambda answer: -answer.score)

    def _take(self) -> list[_Partial]:
        """Pop the likeliest partial answers that may still beat the best complete one."""
        best = max((answer.score for answer in self._found), default=-float("inf"))
        taken = list[_Partial]()
        while self._heap and len(taken) < WIDTH and self._hope(self._heap[0][2]) > best:
            partial = heappop(self._heap)[2]
            state = partial.state if partial.branch is None else self._index.choose(partial.state, partial.branch)
            taken.append(replace(partial, state=state, branch=None))
        return taken

    def _hope(self, partial: _Partial) -> float:
        """Returns an upper estimate of the score that ``partial`` can reach. With a length penalty, it is the score
        after MAX_HOPE more tokens at no cost in likelihood; without one, it is the current score.
        """
        return self._score(partial.likelihood, len(partial.tokens) + (MAX_HOPE if self._length_penalty else 0))

    def _score(self, likelihood: float, tokens: int) -> float:
        return float(likelihood / (tokens + 1) ** self._length_penalty)

    def _push(self, partial: _Partial) -> None:
        heappush(self._heap, (-partial.likelihood, next(self._order), partial))

    def _forward(self, cache: SequenceCache, partials: Sequence[_Partial]) -> EngineCoroutine[None]:
        """Extend ``partials``, each in a fork of ``cache`` that lasts for one pass: recomputing their few tokens is
        faster than keeping forks.
        """
        ahead = [self._only_continuation(partial) for partial in partials]
        forks = [cache.fork(recording=False) for _ in partials]
        try:
            with out_of_memory_as_kv_error(cache):
                logits = yield ForwardGroup(
                    [
                        ForwardRequest([*partial.tokens, *more], fork, partial.unscored + 1 + len(more))
                        for partial, more, fork in zip(partials, ahead, forks, strict=True)
                    ]
                )
        finally:
            for fork in forks:
                fork.drop()
        for partial, more, own in zip(partials, ahead, logits, strict=True):
            self._extend(partial, more, own)

    def _only_continuation(self, partial: _Partial) -> list[int]:
        """Returns the tokens that must come next, as long as the run has only one continuation."""
        state, tokens = partial.state, list[int]()
        while state.depth and len(tokens) < min(LOOK_AHEAD, self._limit - len(partial.tokens)):
            following = self._index.next_tokens(state)
            if len(following) != 1:
                break
            tokens.append(int(following[0]))
            state = self._index.choose(state, tokens[-1])
        return tokens

    def _extend(self, partial: _Partial, ahead: Sequence[int], logits: Tensor) -> None:
        """Add the answers that continue ``partial``. ``logits`` [n, vocabulary] predict the unscored tokens of
        ``partial``, then the next token, then the token after each of ``ahead``.
        """
        logs, n = logits.log_softmax(-1), partial.unscored
        unscored = partial.tokens[len(partial.tokens) - n :]
        likelihood = partial.likelihood + sum(float(row[token]) for row, token in zip(logs[:n], unscored, strict=True))
        partial = replace(partial, likelihood=likelihood, unscored=0)
        for own, token in zip(logs[n:], ahead, strict=False):
            self._end(partial, own)
            partial = replace(
                partial,
                likelihood=partial.likelihood + float(own[token]),
                tokens=(*partial.tokens, token),
                state=self._index.choose(partial.state, token),
            )
        self._end(partial, logs[-1])
        self._branch(partial, logs[-1])

    def _end(self, partial: _Partial, logs: Tensor) -> None:
        """If ``partial`` may end here, add it as a complete answer, and add the lists that continue it after a
        separator.
        """
        if not (here := self._index.places(partial.state)):
            return
        places, likelihood = (*partial.places, here), partial.likelihood + float(logs[self._ends].logsumexp(0))
        score = self._score(likelihood, len(partial.tokens))
        self._found.append(QuotedAnswer(partial.tokens, likelihood, score, places, partial.separators))
        following = self._index.next_tokens(partial.state)
        for text, tokens, form in self._separators if len(places) < self._max_runs else ():
            if tokens[0] not in following and len(partial.tokens) + len(tokens) < self._limit:
                self._push(
                    _Partial(
                        likelihood=partial.likelihood + float(logs[tokens[0]]),
                        tokens=(*partial.tokens, *tokens),
                        state=self._index.begin(form),
                        unscored=len(tokens) - 1,
                        places=places,
                        separators=(*partial.separators, text),
                    )
                )

    def _branch(self, partial: _Partial, logs: Tensor) -> None:
        """Add the partial answers that extend ``partial`` by one token."""
        allowed = torch.from_numpy(self._index.next_tokens(partial.state)).to(logs.device)
        if not len(allowed) or len(partial.tokens) >= self._limit:
            return
        best = logs[allowed].topk(min(MAX_BRANCHES, len(allowed)))
        for log, token in zip(best.values.tolist(), allowed[best.indices].tolist(), strict=True):
            tokens = (*partial.tokens, token)
            self._push(replace(partial, likelihood=partial.likelihood + log, tokens=tokens, branch=token))


def likelihood_of(
    cache: SequenceCache, logits: Tensor, tokens: Sequence[int], stop_ids: frozenset[int]
) -> EngineCoroutine[float]:
    """Returns the log-likelihood, in nats, of an answer: ``tokens``, followed by a stop token (one of ``stop_ids``).
    ``logits`` [vocabulary] are those after the tokens in ``cache``, which is not changed. Raises Cancelled,
    OutOfKVMemory.
    """
    fork = cache.fork(recording=False)
    try:
        with out_of_memory_as_kv_error(cache):
            after = yield ForwardRequest(tokens, fork, len(tokens))
    finally:
        fork.drop()
    logs = torch.cat([logits[None], after]).log_softmax(-1)
    stop = logs[-1][sorted(stop_ids)].logsumexp(0)
    return float(logs[:-1].gather(1, torch.tensor(tokens, device=logs.device)[:, None]).sum() + stop)
