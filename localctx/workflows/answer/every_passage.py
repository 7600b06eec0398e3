"""Helps to ask a question about every passage of documents: estimates the cost, names the passages' caches, and offers
the user to read documents whole.

Search uses the same passages, so no text is prefilled twice.
"""

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from localctx.engine.events import WholeOffered
from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import RANKING
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.runtime import Runtime
from localctx.library.search.search import Passage
from localctx.store.caches import cache_id
from localctx.store.documents import DocumentRow, StoredDocument
from localctx.store.search_index import ChunkRow
from localctx.store.store import Store
from localctx.workflows.answer.question_kind import asks_for_summary, asks_in_many_places
from localctx.workflows.summary_time import estimate_summary_seconds

MAY_ASK_ABOUT_WHOLE = "this may ask about the whole, but only the best passages are read"
RATE = "passages asked"  # name of the rate of asking kept passages, in passages per second
MAX_SAMPLE = 8  # passages that are tokenized to estimate the others


@dataclass(frozen=True)
class EverywhereCost:
    """The cost of asking a question about every passage: the number of passages, the number of tokens, and the time.

    ``tokens`` is the number of tokens of all prompts, and ``reused`` is how many of them have kept pages. ``seconds``
    is None if nothing was measured yet.
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
    """Open the session's store while the block runs. If ``persist`` is False, open a temporary, empty store instead."""
    if persist:
        yield runtime.store
        return
    with tempfile.TemporaryDirectory() as home, closing(Store(Path(home))) as store:
        yield store


def current_documents(store: Store) -> list[DocumentRow]:
    """Returns the documents of the library, without older versions."""
    return [row for row in store.documents.all() if not row.superseded]


def part_of(passages: Sequence[Passage | ChunkRow]) -> str:
    """Returns the name under which the pages of these passages are kept; it names a part of a document (see
    ``cache_id``).
    """
    return "+".join(f"{p.document}:{p.start}-{p.end}" for p in passages)


def cache_ids(fingerprint: bytes, passages: Sequence[Passage | ChunkRow]) -> list[str]:
    """Returns the id of the cache of each passage, for the model and codec of ``fingerprint``."""
    return [cache_id(fingerprint, [p.document], part=part_of([p])) for p in passages]


def estimate_cost(
    builder: RequestBuilder, store: Store, passages: Sequence[Passage | ChunkRow], sample: Sequence[str], question: str
) -> EverywhereCost:
    """Estimate the cost of asking ``question`` about each of ``passages``.

    The tokens of passages with kept pages are known. The tokens of the other passages are estimated from ``sample``,
    the texts of some passages.
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


def offer_whole(
    builder: RequestBuilder,
    store: Store,
    documents: Sequence[StoredDocument] | None,
    sample: Sequence[str],
    question: str,
) -> WholeOffered | None:
    """Returns an offer to read ``documents`` (None: the library) completely for ``question``, with the time that this
    would take, if known. Returns None if passages are enough for the question.

    ``sample`` are the texts of some passages, from which the cost is estimated.
    """
    if asks_for_summary(question):
        return _offer_summary(builder, documents)
    if asks_in_many_places(question):
        return _offer_everywhere(builder, store, documents, sample, question)
    return None


def _offer_summary(builder: RequestBuilder, documents: Sequence[StoredDocument] | None) -> WholeOffered:
    if documents is None:
        return WholeOffered(f"{MAY_ASK_ABOUT_WHOLE}: localctx summarize reads all of a document")
    seconds = estimate_summary_seconds(builder, documents)
    time = f" (about {format_seconds(seconds)})" if seconds is not None else ""
    command = f"localctx summarize {shlex.join(document.name for document in documents)}"
    return WholeOffered(f"{MAY_ASK_ABOUT_WHOLE}: {command}{time} reads all of it", {"summarize": seconds})


def _offer_everywhere(
    builder: RequestBuilder,
    store: Store,
    documents: Sequence[StoredDocument] | None,
    sample: Sequence[str],
    question: str,
) -> WholeOffered:
    ids = [d.id for d in documents] if documents is not None else [d.id for d in current_documents(store)]
    ends = {document.id: len(document.text) for document in documents or ()}
    chunks = [c for d in ids for c in store.index.of_document(d) if c.start < ends.get(d, c.end)]
    cost = estimate_cost(builder, store, chunks, sample, question)
    offered = f"{MAY_ASK_ABOUT_WHOLE}: --mode everywhere asks each of {cost}"
    return WholeOffered(offered, {"everywhere": cost.seconds})


def _seconds(passages: int, unread: int, asking: int, tokens_rate: float | None, rate: float | None) -> float | None:
    """Returns the seconds to prefill ``unread`` tokens and to ask about all passages. ``asking`` is the number of
    tokens to ask about one passage. Returns None if the rates were not measured.
    """
    if unread and not tokens_rate:
        return None
    reading = unread / tokens_rate if tokens_rate else 0.0
    if rate:
        return reading + passages / rate
    return reading + passages * asking / tokens_rate if tokens_rate else None


def format_seconds(seconds: float) -> str:
    """Returns an expected time as ``40 s`` or ``3 minutes``."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
