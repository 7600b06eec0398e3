"""Measures streaming: reads a text of any length through one cache, and reports perplexity and process memory.

As in StreamingLLM (arXiv:2309.17453), the perplexity should equal that of a recomputed window, and memory should not
grow.
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
from localctx.models.base import PagedModel
from localctx.quality.compare import MIN_TOKENS, negative_log_likelihood
from localctx.quality.variants import REFERENCE, Setup, Variant, cache_nbytes

LAST = 10_000  # tokens at the end that are scored
WINDOW = 2_048  # tokens of a recomputed window before a block
BLOCK = 64  # tokens scored at a time
SAMPLES = 20  # blocks that are also scored after a recomputed window


@dataclass(frozen=True)
class StreamingResult:
    """The result of streaming. ``early`` and ``end`` are the process's memory after a tenth of the tokens and after all
    tokens.

    ``perplexity`` is measured on the last ``scored`` tokens. ``sampled`` and ``fresh`` are measured on the same
    ``blocks`` blocks of these tokens: ``sampled`` as they were streamed, ``fresh`` after a recomputed window of
    ``window`` tokens.
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
        """Returns the report that ``--json`` prints."""
        return asdict(self)


def measure_streaming(
    setup: Setup,
    text: str,
    tokens: int,
    variant: Variant,
    *,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> StreamingResult:
    """Read ``tokens`` tokens of the text through one cache, repeating the text if needed. Raises DocumentError."""
    encoded = setup.model.tokenizer.encode(text)
    if not encoded or tokens < MIN_TOKENS:
        raise DocumentError(f"{tokens:,} tokens are too few to stream", f"take {MIN_TOKENS} or more")
    tokens_read = list(islice(cycle(encoded), tokens + 1))  # the last is only predicted
    first, cache = tokens - min(LAST, tokens // 2), setup.new_cache(variant, tokens)

    def report(at: int) -> None:
        on_progress(Progress(f"reading {variant.name}", at, tokens))

    early = None
    for at in _read(setup, cache, tokens_read, first):
        report(at)
        early = early or (measure_process() if at >= tokens // 10 else None)
    nll = _score(setup.model, cache, tokens_read, first, tokens, report)
    end, nbytes = measure_process(), cache_nbytes(cache)
    cache.drop()
    window, blocks = min(WINDOW, first), _blocks(first, tokens)
    fresh = []
    for i, at in enumerate(blocks):
        on_progress(Progress("reading fresh windows", i * (window + BLOCK), len(blocks) * (window + BLOCK)))
        fresh.append(_fresh(setup, tokens_read, at, window))
    sampled = torch.cat([nll[at - first : at - first + BLOCK] for at in blocks])
    return StreamingResult(
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


def _read(setup: Setup, cache: Cache, tokens_read: Sequence[int], stop: int) -> Iterator[int]:
    for at in range(0, stop, setup.chunk):
        end = min(at + setup.chunk, stop)
        setup.model.forward(tokens_read[at:end], cache)
        yield end


def _score(
    model: PagedModel,
    cache: Cache,
    tokens_read: Sequence[int],
    start: int,
    stop: int,
    on_progress: Callable[[int], None],
) -> Tensor:
    """Returns -log p of ``tokens_read[start + 1 : stop + 1]``.

    The tokens are read block by block, because the logits of a whole chunk would set the memory peak. The result is
    allocated once, because small tensors allocated between logits fragment the heap (3.4 GB after 10,000 tokens).
    """
    nll = torch.empty(stop - start, dtype=torch.float64)
    for at in range(start, stop, BLOCK):
        end = min(at + BLOCK, stop)
        logits = model.forward(tokens_read[at:end], cache, end - at)
        nll[at - start : end - start] = negative_log_likelihood([logits.log_softmax(-1)], tokens_read[at + 1 : end + 1])
        on_progress(end)
    return nll


def _fresh(setup: Setup, tokens_read: Sequence[int], at: int, window: int) -> Tensor:
    """Returns -log p of the block at ``at`` after only the ``window`` tokens before it, in full precision."""
    cache = setup.new_cache(Variant(REFERENCE), window)
    for _ in _read(setup, cache, tokens_read[at - window : at], window):
        pass
    return _score(setup.model, cache, tokens_read, at, at + BLOCK, lambda at: None)


def _blocks(first: int, stop: int) -> list[int]:
    """Returns the starts of up to SAMPLES blocks, evenly spaced in the tokens ``first..stop``."""
    last = stop - BLOCK
    count = min(SAMPLES, (stop - first) // BLOCK)
    return [first + (last - first) * i // max(1, count - 1) for i in range(count)]
