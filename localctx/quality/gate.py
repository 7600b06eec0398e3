"""The quality gate: measures KV codecs and keepers against full precision on one text, and decides which pass."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from localctx.engine.events import Progress
from localctx.errors import DocumentError
from localctx.kv.cache import Cache
from localctx.models.base import PagedModel
from localctx.quality.compare import EVEN, MIN_TOKENS, Divergence, Forward, compare, score, split
from localctx.quality.needles import DEPTHS, ROOM, decode_tokens, find_needles, prefill_all
from localctx.quality.variants import Setup, Variant, cache_nbytes, fork_for, group_by_prefill
from localctx.store.store import Store, store_errors

MAX_KL = 0.02  # nats, mean
MIN_TOP1 = 0.90
_CHARACTERS = 32  # most characters tokenized per needed token; the rest of a long text is ignored

NeedlesFound = tuple[bool, ...]  # for each of DEPTHS: True if the needle was found


@dataclass(frozen=True)
class QualityResult:
    """The measured quality of one variant. ``needles`` maps a text length in tokens to the needles found.

    ``bytes_per_token`` is the size of the variant's cache after prefill, including the open page. ``seconds`` counts
    from the start of the variants that share one prefill.
    """

    variant: Variant
    bytes_per_token: int
    divergence: Divergence
    needles: dict[int, NeedlesFound]
    passed: bool
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Returns the result as ``--json`` prints it and the store saves it."""
        found = {str(n): dict(zip(map(str, DEPTHS), f, strict=True)) for n, f in self.needles.items()}
        own = {"bytes_per_token": self.bytes_per_token, "needles": found, "passed": self.passed}
        return {**asdict(self.variant), **asdict(self.divergence), **own, "seconds": round(self.seconds, 1)}


def meets_quality_bar(divergence: Divergence, found: int, by_reference: int) -> bool:
    """Returns True for a mean KL divergence of at most MAX_KL nats, a top-1 agreement of at least MIN_TOP1, and at
    least as many needles ``found`` as ``by_reference``, the number that full precision found.
    """
    return divergence.kl_mean <= MAX_KL and divergence.top1 >= MIN_TOP1 and found >= by_reference


def first_tokens(model: PagedModel, text: str, tokens: int) -> list[int]:
    """Returns the first ``tokens`` tokens of the text and one more. Returns fewer if the text or the context window
    ends earlier.

    Raises DocumentError if there are fewer than MIN_TOKENS.
    """
    encoded = model.tokenizer.encode(text[: _CHARACTERS * (tokens + 1)])
    tokens = min(tokens, len(encoded) - 1, model.context - ROOM) // EVEN * EVEN
    if tokens < MIN_TOKENS:
        raise DocumentError(
            f"{max(0, tokens):,} tokens are too few to measure on",
            f"take {MIN_TOKENS} or more",
        )
    return encoded[: tokens + 1]


def store_result(store: Store, model: PagedModel, name: str, result: QualityResult, tokens: int) -> None:
    """Save ``result`` in the store. It was measured on ``tokens`` tokens with ``model``, which the settings call
    ``name``.
    """
    variant = result.variant
    key = variant.key(model.with_prefill_loss(0).fingerprint(variant.codec))
    with store_errors(store.home):
        store.quality_results.note(key, name, variant.name, result.passed, {"tokens": tokens, **result.to_json()})


class QualityGate:
    """Measures variants on ``tokens``. The last token is only predicted, not read.

    Needles are planted in the first n tokens, for each n of ``lengths``. ``on_progress`` is called with the number of
    tokens read.
    """

    def __init__(
        self,
        setup: Setup,
        tokens: Sequence[int],
        lengths: Sequence[int],
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.setup, self.tokens, self._on_progress = setup, tokens[:-1], on_progress
        self.lengths = sorted({min(n, len(self.tokens)) for n in lengths})
        self.first, self._next = split(len(self.tokens)), tokens[1:]
        self._reference: list[Tensor] = []
        self._reference_needles: int | None = None  # number of needles the reference found

    def run(self, variants: Sequence[Variant]) -> Iterator[QualityResult]:
        """Yield the result of each variant as soon as it is known. The first variant is the reference for all."""
        for group in group_by_prefill(variants):
            start, read = time.perf_counter(), self._token_counter(group[0])
            measured = self._divergence(group, read)
            needles = {n: self._retrieve(group, n, read) for n in self.lengths}
            for variant in group:
                own_needles = {n: found[variant] for n, found in needles.items()}
                yield self._result(variant, *measured[variant], own_needles, time.perf_counter() - start)

    def compare(self, forward: Forward) -> Divergence:
        """Returns the divergence of a model's predictions from the reference. The first call sets the reference. The
        model must have read ``tokens[:first]`` before.
        """
        logs = score(forward, self.tokens, self.first)
        self._reference = self._reference or logs
        return compare(self._reference, logs, self._next[self.first :])

    def _divergence(
        self, group: Sequence[Variant], read: Callable[[int], None]
    ) -> dict[Variant, tuple[int, Divergence]]:
        cache = self.setup.new_cache(group[0], len(self.tokens))
        prefill_all(self.setup, cache, self.tokens[: self.first], read)
        measured = {variant: self._measure(fork_for(cache, variant, len(self.tokens)), read) for variant in group}
        read(len(self.tokens) - cache.length)
        cache.drop()
        return measured

    def _measure(self, cache: Cache, read: Callable[[int], None]) -> tuple[int, Divergence]:
        def forward(tokens: Sequence[int], keep: int) -> Tensor:
            read(0)  # the progress callback may raise Cancelled
            logits = self.setup.model.forward(tokens, cache, keep)
            if cache.phase == "asking":  # the first step is the question
                cache.finish_prefill()
            return logits

        divergence = self.compare(forward)
        nbytes = cache_nbytes(cache) // len(self.tokens)  # per token
        cache.drop()
        return nbytes, divergence

    def _retrieve(
        self, group: Sequence[Variant], length: int, read: Callable[[int], None]
    ) -> dict[Variant, NeedlesFound]:
        text = decode_tokens(self.setup.model.tokenizer, self.tokens[:length])
        return find_needles(self.setup, group, text, read)

    def _result(
        self, variant: Variant, nbytes: int, divergence: Divergence, needles: dict[int, NeedlesFound], seconds: float
    ) -> QualityResult:
        found = sum(map(sum, needles.values()))
        self._reference_needles = found if self._reference_needles is None else self._reference_needles
        passed = meets_quality_bar(divergence, found, self._reference_needles)
        return QualityResult(variant, nbytes, divergence, needles, passed, seconds)

    def _token_counter(self, variant: Variant) -> Callable[[int], None]:
        """Returns a function that adds tokens to the progress of a group of variants."""
        done, readings = 0, sum(1 - d for d in DEPTHS[:-1]) + 1 if variant.shares_prefill else len(DEPTHS)
        total = len(self.tokens) + int(readings * sum(self.lengths))

        def read(tokens: int) -> None:
            nonlocal done
            done += tokens
            self._on_progress(Progress(f"reading {variant.name}", min(done, total), total))

        return read
