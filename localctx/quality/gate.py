"""The gate: each variant against full precision on one text in one run, and the rule by which a codec passes."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from localctx.engine.events import Progress
from localctx.errors import DocumentError
from localctx.kv.cache import Cache
from localctx.kv.snapkv import compress_with_snapkv
from localctx.models.base import Model
from localctx.quality.compare import EVEN, MIN_TOKENS, Divergence, Forward, compare, score, split
from localctx.quality.needles import DEPTHS, ROOM, head_of, read_all, retrieve
from localctx.quality.variants import Setup, Variant, fork_for, groups, held_bytes
from localctx.store.store import Store, store_errors

MAX_KL = 0.02  # nats, mean
MIN_TOP1 = 0.90
_CHARACTERS = 32  # for each token asked for; what follows in a longer text is not even tokenized

Marks = tuple[bool, ...]  # of each of DEPTHS: was the needle found?


@dataclass(frozen=True)
class Result:
    """What one variant gave. ``needles`` are the marks for each length of text, in tokens; ``bytes_per_token`` is what
    its cache held after reading, the open page included; ``seconds`` are those of its group."""

    variant: Variant
    bytes_per_token: int
    divergence: Divergence
    needles: dict[int, Marks]
    passed: bool
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it and the store keeps it."""
        marks = {str(n): dict(zip(map(str, DEPTHS), m, strict=True)) for n, m in self.needles.items()}
        own = {"bytes_per_token": self.bytes_per_token, "needles": marks, "passed": self.passed}
        return {**asdict(self.variant), **asdict(self.divergence), **own, "seconds": round(self.seconds, 1)}


def good_enough(divergence: Divergence, found: int, by_reference: int) -> bool:
    """The rule: a mean divergence of at most 0.02 nats, the same likeliest token in at least 90 of 100 places, and not
    fewer needles than full precision finds."""
    return divergence.kl_mean <= MAX_KL and divergence.top1 >= MIN_TOP1 and found >= by_reference


def take_tokens(model: Model, text: str, tokens: int) -> list[int]:
    """The first ``tokens`` of the text and the one after them; fewer where it, or the model's window, ends.

    Raises DocumentError.
    """
    taken = model.tokenizer.encode(text[: _CHARACTERS * (tokens + 1)])
    tokens = min(tokens, len(taken) - 1, model.context - ROOM) // EVEN * EVEN
    if tokens < MIN_TOKENS:
        raise DocumentError(
            f"{max(0, tokens):,} tokens are too few to measure on",
            f"take {MIN_TOKENS} or more",
        )
    return taken[: tokens + 1]


def remember(store: Store, model: Model, name: str, result: Result, tokens: int) -> None:
    """Keep the verdict of ``result``, measured on ``tokens`` of a text with ``model``, called ``name``."""
    variant = result.variant
    key = variant.key(model.fingerprint(variant.codec))
    with store_errors(store.home):
        store.verdicts.note(key, name, variant.name, result.passed, {"tokens": tokens, **result.to_json()})


class QualityGate:
    """Measures variants on ``tokens``, of which the last is only predicted.

    Needles are planted in their first n, for each n of ``lengths``.

    ``hear`` is told of the tokens read.
    """

    def __init__(
        self,
        on: Setup,
        tokens: Sequence[int],
        lengths: Sequence[int],
        *,
        hear: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        self.on, self.tokens, self._hear = on, tokens[:-1], hear
        self.lengths = sorted({min(n, len(self.tokens)) for n in lengths})
        self.first, self._next = split(len(self.tokens)), tokens[1:]
        self._reference: list[Tensor] = []
        self._found: int | None = None  # needles, by the reference

    def run(self, variants: Sequence[Variant]) -> Iterator[Result]:
        """Results as they come; the first variant is the reference of all."""
        for group in groups(variants):
            start, read = time.perf_counter(), self._counter(group[0])
            measured = self._diverge(group, read)
            needles = {n: self._retrieve(group, n, read) for n in self.lengths}
            for variant in group:
                marks = {n: found[variant] for n, found in needles.items()}
                yield self._judge(variant, *measured[variant], marks, time.perf_counter() - start)

    def compare(self, forward: Forward) -> Divergence:
        """The divergence of a reader that has read ``tokens[:first]``; the first compared is the reference."""
        logs = score(forward, self.tokens, self.first)
        self._reference = self._reference or logs
        return compare(self._reference, logs, self._next[self.first :])

    def _diverge(self, group: Sequence[Variant], read: Callable[[int], None]) -> dict[Variant, tuple[int, Divergence]]:
        cache = self.on.new_cache(group[0], len(self.tokens))
        read_all(self.on, cache, self.tokens[: self.first], read)
        measured = {variant: self._measure(fork_for(cache, variant, len(self.tokens)), read) for variant in group}
        read(len(self.tokens) - cache.length)
        cache.drop()
        return measured

    def _measure(self, cache: Cache, read: Callable[[int], None]) -> tuple[int, Divergence]:
        def forward(tokens: Sequence[int], keep: int) -> Tensor:
            read(0)  # who hears of it may stop it
            logits = self.on.model.forward(tokens, cache, keep)
            if cache.keeper.compresses and cache.phase == "asking":  # the first step is the question
                compress_with_snapkv(cache)
                cache.phase = "answering"
            return logits

        divergence = self.compare(forward)
        nbytes = held_bytes(cache) // len(self.tokens)
        cache.drop()
        return nbytes, divergence

    def _retrieve(self, group: Sequence[Variant], length: int, read: Callable[[int], None]) -> dict[Variant, Marks]:
        text = head_of(self.on.model.tokenizer, self.tokens[:length])
        return retrieve(self.on, group, text, read)

    def _judge(
        self, variant: Variant, nbytes: int, divergence: Divergence, marks: dict[int, Marks], seconds: float
    ) -> Result:
        found = sum(map(sum, marks.values()))
        self._found = found if self._found is None else self._found
        passed = good_enough(divergence, found, self._found)
        return Result(variant, nbytes, divergence, marks, passed, seconds)

    def _counter(self, variant: Variant) -> Callable[[int], None]:
        """A function to tell of tokens read, for one bar over all that a group reads."""
        done, readings = 0, sum(1 - d for d in DEPTHS[:-1]) + 1 if variant.late else len(DEPTHS)
        total = len(self.tokens) + int(readings * sum(self.lengths))

        def read(tokens: int) -> None:
            nonlocal done
            done += tokens
            self._hear(Progress(f"reading {variant.name}", min(done, total), total))

        return read
