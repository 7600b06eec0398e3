"""Streaming: a text of any length through one cache, with the memory it takes and what a fresh window would predict.

The measure of StreamingLLM (arXiv:2309.17453): perplexity stays that of a recomputed window, memory stays.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from localctx.budget import Process, measure_process
from localctx.engine.events import Progress
from localctx.errors import DocumentError
from localctx.kv.cache import Cache
from localctx.models.base import Model
from localctx.quality.compare import MIN_TOKENS, surprise
from localctx.quality.variants import REFERENCE, Setup, Variant, held_bytes

LAST = 10_000  # tokens scored at the end
WINDOW = 2_048  # tokens a fresh window reads before a block
BLOCK = 64  # tokens scored after each
SAMPLES = 20


@dataclass(frozen=True)
class Streamed:
    """What streaming gave. ``early`` and ``end``: the process after a tenth of the tokens and after all, in bytes.

    ``perplexity`` is over the last tokens; ``sampled`` and ``fresh`` are over the same blocks of them, as streamed and
    after a fresh window of ``window`` tokens.
    """

    variant: Variant
    tokens: int
    cache_bytes: int
    early: Process
    end: Process
    perplexity: float
    sampled: float
    fresh: float
    window: int
    scored: int
    blocks: int

    def to_json(self) -> dict[str, Any]:
        """The report that ``--json`` prints."""
        return asdict(self)


def stream(
    on: Setup,
    text: str,
    tokens: int,
    variant: Variant,
    *,
    hear: Callable[[Progress], None] = lambda progress: None,
) -> Streamed:
    """Read ``tokens`` tokens of the text, from its beginning again where it ends. Raises DocumentError."""
    once = on.model.tokenizer.encode(text)
    if not once or tokens < MIN_TOKENS:
        raise DocumentError(f"{tokens:,} tokens are too few to stream", f"take {MIN_TOKENS} or more")
    line = list(islice(cycle(once), tokens + 1))  # the last is only predicted
    first, cache = tokens - min(LAST, tokens // 2), on.new_cache(variant, tokens)

    def tell(at: int) -> None:
        hear(Progress(f"reading {variant.name}", at, tokens))

    early = None
    for at in _read(on, cache, line, first):
        tell(at)
        early = early or (measure_process() if at >= tokens // 10 else None)
    nll = _score(on.model, cache, line, first, tokens, tell)
    end, nbytes = measure_process(), held_bytes(cache)
    cache.drop()
    window, blocks = min(WINDOW, first), _blocks(first, tokens)
    fresh = []
    for i, at in enumerate(blocks):
        hear(Progress("reading fresh windows", i * (window + BLOCK), len(blocks) * (window + BLOCK)))
        fresh.append(_fresh(on, line, at, window))
    sampled = torch.cat([nll[at - first : at - first + BLOCK] for at in blocks])
    return Streamed(
        variant=variant,
        tokens=tokens,
        cache_bytes=nbytes,
        early=early or end,
        end=end,
        perplexity=math.exp(nll.mean()),
        sampled=math.exp(sampled.mean()),
        fresh=math.exp(torch.cat(fresh).mean()),
        window=window,
        scored=len(nll),
        blocks=len(blocks),
    )


def _read(on: Setup, cache: Cache, line: Sequence[int], stop: int) -> Iterator[int]:
    for at in range(0, stop, on.chunk):
        end = min(at + on.chunk, stop)
        on.model.forward(line[at:end], cache)
        yield end


def _score(
    model: Model, cache: Cache, line: Sequence[int], start: int, stop: int, hear: Callable[[int], None]
) -> Tensor:
    """-log p of ``line[start + 1 : stop + 1]``, read block by block: the logits of a whole chunk would be the peak.

    Written into one tensor made before: small ones kept among the freed logits would leave the heap in holes that no
    later logits fit (3.4 GB after 10,000 tokens).
    """
    nll = torch.empty(stop - start, dtype=torch.float64)
    for at in range(start, stop, BLOCK):
        end = min(at + BLOCK, stop)
        logits = model.forward(line[at:end], cache, end - at)
        nll[at - start : end - start] = surprise([logits.log_softmax(-1)], line[at + 1 : end + 1])
        hear(end)
    return nll


def _fresh(on: Setup, line: Sequence[int], at: int, window: int) -> Tensor:
    """-log p of the block at ``at`` after only the ``window`` tokens before it, at full precision."""
    cache = on.new_cache(Variant(REFERENCE), window)
    for _ in _read(on, cache, line[at - window : at], window):
        pass
    return _score(on.model, cache, line, at, at + BLOCK, lambda at: None)


def _blocks(first: int, stop: int) -> list[int]:
    """Where the sampled blocks begin: SAMPLES of them, evenly from ``first`` on, each of the tokens streamed."""
    last = stop - BLOCK
    count = min(SAMPLES, (stop - first) // BLOCK)
    return [first + (last - first) * i // max(1, count - 1) for i in range(count)]
