"""Blending: fills the cache of a prompt made of several passages with the KV pages of passages that were prefilled
alone.

The first tokens of each passage are recomputed in the context of the prompt (EPIC, arXiv:2410.15332), and so are tokens
whose keys and values would change most (after CacheBlend, arXiv:2405.16444). All other tokens are copied, and their
keys are re-rotated to the new positions.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby

import torch
from torch import Tensor

from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.decoding.prefill_decode import prefill
from localctx.engine.events import Progress
from localctx.engine.planning.cache_plan import OomRecovery
from localctx.engine.prompt import common
from localctx.errors import ModelError, UsageError
from localctx.kv.cache import Cache
from localctx.kv.copy_tokens import copy_tokens, rerotated_to_follow
from localctx.models.base import PagedModel

DEVIATION_LAYER = 1  # the first layer whose keys and values depend on earlier tokens; it represents the others
MAX_COPIED = 4096  # tokens copied at once, because their keys and values are unpacked to 32 bits, layer by layer
MAX_COMPARED = 4096  # tokens of a passage searched for the longest match, which takes quadratic time
ANCHOR = 64  # tokens from the middle of a longer passage, found in the prompt and extended both ways
BLOCK = 16  # tokens recomputed together: CacheBlend picks single ones, but a forward pass for each would cost more


@dataclass(frozen=True)
class Blending:
    """Says which tokens of a passage are recomputed when its pages are blended into a prompt. They are the first
    ``recompute`` tokens, and the share ``deviate`` (0 to 1) of the other tokens: those in blocks whose keys and values
    would change most.
    """

    recompute: int = 32
    deviate: float = 0.0

    @property
    def name(self) -> str:
        """The short description: ``recompute`` and the share ``deviate``, such as ``32+15%``, or ``32`` if ``deviate``
        is 0. It is ``none`` if nothing is recomputed.
        """
        return f"{self.recompute or 'none'}" + (f"+{self.deviate:.0%}" if self.deviate else "")

    def key(self, fingerprint: bytes) -> bytes:
        """Returns the key under which the store holds the quality result of this blending. ``fingerprint`` is the
        fingerprint of the model and codec.
        """
        return hashlib.sha256(fingerprint + f"blend {self.name}".encode()).digest()


DEFAULT_BLENDING = Blending()
BLENDINGS = (Blending(0), DEFAULT_BLENDING, Blending(32, 0.15))  # from the cheapest


@dataclass(frozen=True)
class CachedPassage:
    """A passage that was prefilled alone: the ``tokens`` of its prompt, which include the chat template, and their
    cache.
    """

    tokens: Sequence[int]
    cache: Cache


@dataclass(frozen=True)
class PassageSpan:
    """Says that tokens ``start..stop`` of a prompt equal the tokens of ``passage`` from its token ``at`` on, so that
    they can be copied.
    """

    start: int
    stop: int
    passage: CachedPassage
    at: int


def choose_blending(setting: str, passed: Callable[[Blending], bool | None]) -> Blending | None:
    """Returns the blending that the setting ``blend`` selects, or None for no blending. ``passed`` returns True or
    False for a blending whose quality was measured, and None for one that was not.

    ``off`` gives None. ``auto`` gives the cheapest blending that passed ``localctx quality --blend``, None if none did.
    ``on`` gives the cheapest that passed, DEFAULT_BLENDING if none did.
    """
    best = next((blending for blending in BLENDINGS if setting != "off" and passed(blending)), None)
    return best or (DEFAULT_BLENDING if setting == "on" else None)


def no_blending(model: str) -> UsageError:
    """Returns the error to raise if passages cannot be blended with ``model``, because some of its layers do not keep
    every token.
    """
    what = f"{model} has layers that do not keep every token: texts that were read alone cannot be put together"
    return UsageError(what, "use --blend off")


def locate(tokens: Sequence[int], passages: Sequence[CachedPassage]) -> list[PassageSpan]:
    """Find the passages in a prompt. The ``passages`` are in the order of the prompt. Returns for each passage the
    longest run of tokens that the passage and the prompt's ``tokens`` have in common.

    The search needs no knowledge of the chat template or headings. The last token of the prompt is never in a span,
    because it must be prefilled.
    """
    spans, after = list[PassageSpan](), 0
    for passage in passages:
        span = _find_long(tokens, passage, after) or _longest_match(tokens, passage, after)
        after = span.stop
        spans.append(span)
    return spans


def _longest_match(tokens: Sequence[int], passage: CachedPassage, after: int) -> PassageSpan:
    compared = passage.tokens[:MAX_COMPARED]
    same = SequenceMatcher(None, tokens, compared, autojunk=False).find_longest_match(after, len(tokens) - 1)
    return PassageSpan(same.a, same.a + same.size, passage, same.b)


def _find_long(tokens: Sequence[int], passage: CachedPassage, after: int) -> PassageSpan | None:
    """Find a long passage in the prompt by ANCHOR tokens from the middle of the passage. Returns None for a short
    passage, or if the prompt lacks these tokens.
    """
    middle, end = len(passage.tokens) // 2, len(tokens) - 1
    if len(passage.tokens) <= MAX_COMPARED:
        return None
    anchor = list(passage.tokens[middle : middle + ANCHOR])
    candidates = (i for i in range(after, end - ANCHOR) if tokens[i] == anchor[0])
    at = next((i for i in candidates if list(tokens[i : i + ANCHOR]) == anchor), None)
    if at is None:
        return None
    before = common(tokens[after:at][::-1], passage.tokens[:middle][::-1])
    behind = common(tokens[at:end], passage.tokens[middle:])
    return PassageSpan(at - before, at + behind, passage, middle - before)


def blend(
    model: PagedModel,
    cache: Cache,
    tokens: Sequence[int],
    passages: Sequence[CachedPassage],
    blending: Blending = DEFAULT_BLENDING,
    *,
    chunk: int | OomRecovery,
) -> EngineCoroutine[int]:
    """Fill ``cache`` with ``tokens`` up to the end of the last passage. Returns how many tokens were copied and not
    prefilled.

    ``passages`` are in the order of the prompt. The tokens after the last passage, with the question, are left to
    ``prefill``. ``blending`` says which tokens are recomputed. ``chunk`` is the maximum number of tokens that are
    recomputed in one step, or an OomRecovery. Copied keys and values differ from prefilled ones, so ``cache.exact``
    becomes False and the pages are never persisted. Raises ModelError for a model whose keys cannot be re-rotated.
    Raises Cancelled and OutOfKVMemory, with the tokens done so far in the cache.
    """

    def prefill_to(stop: int) -> EngineCoroutine[None]:
        if cache.length < stop:
            yield from prefill(cache, tokens[:stop], chunk=chunk, cuts=[stop], total=len(tokens))

    refuse_unmovable(model)
    reused = cache.length
    for span in locate(tokens, passages):
        yield from prefill_to(min(span.start + blending.recompute, span.stop))
        for start, stop in _pieces(_copied_ranges(model, cache, tokens, span, blending.deviate)):
            yield from prefill_to(start)
            copy_tokens(cache, span.passage.cache, span.at + start - span.start, span.at + stop - span.start)
            reused += stop - start
            yield Progress("reading", cache.length, len(tokens), reused)
        yield from prefill_to(span.stop)
    return reused


def refuse_unmovable(model: PagedModel) -> None:
    """Raise ModelError for a model without rotary positions, whose keys cannot be moved to other positions."""
    if model.rope is None:
        raise ModelError(
            f"the positions of {model.name} are not rotary: kept passages cannot be moved", "use --blend off"
        )


def _copied_ranges(
    model: PagedModel, cache: Cache, tokens: Sequence[int], span: PassageSpan, deviate: float
) -> list[tuple[int, int]]:
    """Returns the ranges [start, stop) of ``span`` to copy after the tokens in ``cache``. The share ``deviate`` of the
    blocks, those that deviate most, is left out.
    """
    start, stop = cache.length, span.stop
    if start >= stop or not deviate:
        return [(start, stop)] if start < stop else []
    deviations = _deviation(model, cache, tokens, replace(span, start=start, at=span.at + start - span.start))
    worst = set(deviations.topk(round(deviate * len(deviations))).indices.tolist())
    runs = [list(run) for copied, run in groupby(range(len(deviations)), lambda i: i not in worst) if copied]
    return [(start + run[0] * BLOCK, min(start + (run[-1] + 1) * BLOCK, stop)) for run in runs]


def _pieces(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the ranges, split into pieces of at most MAX_COPIED tokens."""
    return [(at, min(stop, at + MAX_COPIED)) for start, stop in ranges for at in range(start, stop, MAX_COPIED)]


def _deviation(model: PagedModel, cache: Cache, tokens: Sequence[int], span: PassageSpan) -> Tensor:
    """Returns for each BLOCK of ``span`` [blocks] the mean squared distance, in one layer, between the cached keys and
    values and the ones that prefill would compute. ``span`` begins where ``cache`` ends.
    """
    layer = min(DEVIATION_LAYER, len(model.shape.layers) - 1)
    computed = model.probe_layer(tokens[span.start : span.stop], cache, layer)
    kept = rerotated_to_follow(cache, span.passage.cache, layer, span.at, span.at + span.stop - span.start)
    gap = sum((a.float() - b).square().sum((0, 2)) for a, b in zip(computed, kept, strict=True))
    assert isinstance(gap, Tensor)
    return torch.stack([block.mean() for block in gap.split(BLOCK)])
