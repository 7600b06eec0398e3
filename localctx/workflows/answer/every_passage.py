"""Lists all passages of documents, names their caches, and estimates the cost of asking each of them.

They are the passages that search finds, so no text is prefilled twice.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import RANKING
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.runtime import Runtime
from localctx.library.search.search import Passage
from localctx.store.caches import cache_id
from localctx.store.documents import DocumentRow
from localctx.store.search_index import ChunkRow
from localctx.store.store import Store

RATE = "passages asked"  # name of the rate of asking kept passages, in passages per second
MAX_SAMPLE = 8  # passages that are tokenized to estimate the others


@dataclass(frozen=True)
class EverywhereCost:
    """The cost of asking every passage: the numbers of passages and of tokens, and the time.

    ``tokens`` counts the tokens of all prompts; ``reused`` of them have kept pages. ``seconds`` is None if nothing was
    measured yet.
    """

    passages: int
    tokens: int
    reused: int
    seconds: float | None

    def __str__(self) -> str:
        time = f", about {format_seconds(self.seconds)}" if self.seconds is not None else ""
        return f"{self.passages:,} passages, {self.tokens - self.reused:,} tokens to read{time}"


@contextmanager
def open_store(runtime: Runtime, persist: bool) -> Iterator[Store]:
    """Open the session's store, or a temporary one if nothing is persisted."""
    if persist:
        yield runtime.store
        return
    with tempfile.TemporaryDirectory() as home, closing(Store(Path(home))) as store:
        yield store


def current_documents(store: Store) -> list[DocumentRow]:
    """Returns the documents of the library, without older versions."""
    return [row for row in store.documents.all() if not row.superseded]


def part_of(passages: Sequence[Passage | ChunkRow]) -> str:
    """Returns the name under which the pages of these passages are kept, as a part of their documents."""
    return "+".join(f"{p.document}:{p.start}-{p.end}" for p in passages)


def cache_ids(fingerprint: bytes, passages: Sequence[Passage | ChunkRow]) -> list[str]:
    """Returns the id of each passage's cache under ``fingerprint``."""
    return [cache_id(fingerprint, [p.document], part=part_of([p])) for p in passages]


def estimate_cost(
    builder: RequestBuilder, store: Store, passages: Sequence[Passage | ChunkRow], sample: Sequence[str], question: str
) -> EverywhereCost:
    """Estimate the cost of asking ``question`` of each of ``passages``.

    Tokens of kept passages are counted. The others are estimated from ``sample``, the texts of some passages.
    """
    template, fingerprint = builder.prompt([""], question, Conversation(form=RANKING)), builder.fingerprint
    asking = len(template.tokens) - template.shared + 1
    ids = cache_ids(fingerprint, passages)
    kept = store.caches.ready_tokens(ids)
    encode = builder.model.tokenizer.encode
    density = sum(len(encode(text)) for text in sample[:MAX_SAMPLE]) / max(1, sum(map(len, sample[:MAX_SAMPLE])))
    fresh = [p for p, cache in zip(passages, ids, strict=True) if cache not in kept]
    unread = sum(round((p.end - p.start) * density) + template.shared for p in fresh)
    reused = sum(kept.values())
    per_second = store.caches.rate(fingerprint), store.caches.rate(fingerprint, RATE)
    seconds = _seconds(len(passages), unread, asking, *per_second)
    return EverywhereCost(len(passages), reused + unread + asking * len(passages), reused, seconds)


def _seconds(passages: int, unread: int, asking: int, tokens_rate: float | None, rate: float | None) -> float | None:
    """Returns the seconds to prefill ``unread`` tokens and ask all passages, None if the rates were not measured."""
    if unread and not tokens_rate:
        return None
    reading = unread / tokens_rate if tokens_rate else 0.0
    if rate:
        return reading + passages / rate
    return reading + passages * asking / tokens_rate if tokens_rate else None


def format_seconds(seconds: float) -> str:
    """Returns an expected time as ``40 s`` or ``3 minutes``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
