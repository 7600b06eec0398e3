"""Blend: a prompt made of passages that were read alone is put together from what was kept of them.

The first tokens of each are read again after what stands before them (EPIC, arXiv:2410.15332), and those whose keys and
values would change most (after CacheBlend, arXiv:2405.16444); the others are taken over as they are.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby

import torch
from torch import Tensor

from localctx.engine.cache_plan import MemoryRelief
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.events import Progress
from localctx.engine.prefill_decode import prefill
from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.splice import as_if_next, take_over
from localctx.models.base import Model

DEVIATES = 1  # the first layer whose keys and values depend on what stands before; by it the others are judged
BLOCK = 16  # tokens judged and read again together: CacheBlend picks single ones, for which a step each would cost more


@dataclass(frozen=True)
class Blending:
    """How much of a passage is read again: its first ``recompute`` tokens, and the part ``deviate`` of the others."""

    recompute: int = 32
    deviate: float = 0.0

    @property
    def name(self) -> str:
        """``none``, ``32`` or ``32+15%``."""
        return f"{self.recompute or 'none'}" + (f"+{self.deviate:.0%}" if self.deviate else "")

    def key(self, fingerprint: bytes) -> bytes:
        """What its verdict is kept under, for a model and codec of this fingerprint."""
        return hashlib.sha256(fingerprint + f"blend {self.name}".encode()).digest()


USUAL = Blending()
BLENDINGS = (Blending(0), USUAL, Blending(32, 0.15))  # from the cheapest


@dataclass(frozen=True)
class CachedPassage:
    """A text that was read alone: all ``tokens`` that were read, with what a chat puts around it, and their cache."""

    tokens: Sequence[int]
    cache: Cache


@dataclass(frozen=True)
class PassageSpan:
    """Tokens ``start..stop`` of a prompt, which ``passage`` holds from its token ``at`` on."""

    start: int
    stop: int
    passage: CachedPassage
    at: int


def choose_blending(setting: str, verdict_of: Callable[[Blending], bool | None]) -> Blending | None:
    """The setting ``blend``: None for ``off``; for ``auto`` the cheapest that passed ``localctx quality --blend``, None
    where none did; ``on`` is then the usual one.
    """
    passed = next((b for b in BLENDINGS if setting != "off" and verdict_of(b)), None)
    return passed or (USUAL if setting == "on" else None)


def locate(tokens: Sequence[int], passages: Sequence[CachedPassage]) -> list[PassageSpan]:
    """Where in a prompt the passages stand, in their order: for each the longest run of tokens that it shares.

    Nothing need be known of templates and headings, and what is found is right to the token, wherever it is found. The
    last token is always left to be read.
    """
    spans, after, end = list[PassageSpan](), 0, len(tokens) - 1
    for passage in passages:
        same = SequenceMatcher(None, tokens, passage.tokens, autojunk=False).find_longest_match(after, end)
        after = same.a + same.size
        spans.append(PassageSpan(same.a, after, passage, same.b))
    return spans


def blend(
    model: Model,
    cache: Cache,
    tokens: Sequence[int],
    passages: Sequence[CachedPassage],
    how: Blending = USUAL,
    *,
    chunk: int | MemoryRelief,
) -> EngineCoroutine[int]:
    """Fill ``cache`` with ``tokens`` to the end of the last of ``passages``; how many tokens it has that were not read.

    ``passages`` as they stand in the prompt. The rest, with the question, is for ``prefill``. What was taken over is
    not what reading would give: ``cache.exact`` is False, and its pages are never kept.
    Raises ModelError for a model whose keys cannot be turned; Cancelled and NoRoom, with what was done in the cache.
    """

    def read(stop: int) -> EngineCoroutine[None]:
        if cache.length < stop:
            yield from prefill(cache, tokens[:stop], chunk=chunk, boundary=stop, total=len(tokens))

    refuse_unmovable(model)
    reused = cache.length
    for span in locate(tokens, passages):
        yield from read(min(span.start + how.recompute, span.stop))
        for start, stop in _taken(model, cache, tokens, span, how.deviate):
            yield from read(start)
            take_over(cache, span.passage.cache, span.at + start - span.start, span.at + stop - span.start)
            reused += stop - start
            yield Progress("reading", cache.length, len(tokens), reused)
        yield from read(span.stop)
    return reused


def refuse_unmovable(model: Model) -> None:
    """Raises ModelError for a model whose positions are not rotary."""
    if model.rope is None:
        raise ModelError(
            f"the positions of {model.name} are not rotary: kept passages cannot be moved", "leave blend off"
        )


def _taken(
    model: Model, cache: Cache, tokens: Sequence[int], span: PassageSpan, deviate: float
) -> list[tuple[int, int]]:
    """The runs (start, stop) of what ``cache`` lacks of ``span`` that are taken over: all but what deviates most."""
    start, stop = cache.length, span.stop
    if start >= stop or not deviate:
        return [(start, stop)] if start < stop else []
    gaps = _deviation(model, cache, tokens, replace(span, start=start, at=span.at + start - span.start))
    worst = set(gaps.topk(round(deviate * len(gaps))).indices.tolist())
    runs = [list(run) for taken, run in groupby(range(len(gaps)), lambda i: i not in worst) if taken]
    return [(start + run[0] * BLOCK, min(start + (run[-1] + 1) * BLOCK, stop)) for run in runs]


def _deviation(model: Model, cache: Cache, tokens: Sequence[int], span: PassageSpan) -> Tensor:
    """How far keys and values of each BLOCK of ``span``, which comes next, are from what reading it would give."""
    layer = min(DEVIATES, len(model.shape.layers) - 1)
    read = model.glance(tokens[span.start : span.stop], cache, layer)
    kept = as_if_next(cache, span.passage.cache, layer, span.at, span.at + span.stop - span.start)
    gap = sum((a.float() - b).square().sum((0, 2)) for a, b in zip(read, kept, strict=True))
    assert isinstance(gap, Tensor)
    return torch.stack([block.mean() for block in gap.split(BLOCK)])
