"""Orders several documents in a prompt so that the longest kept prefix is reused.

Documents that were read first in an earlier prompt come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from localctx.store.caches import cache_id
from localctx.store.documents import StoredDocument
from localctx.store.store import Store


@dataclass(frozen=True)
class _KeptSequence:
    """Documents (ids) that were read together, in this order; ``kept`` of their ``tokens`` are stored."""

    documents: tuple[str, ...]
    tokens: int
    kept: int


def order_by_kept(store: Store, fingerprint: bytes, documents: Sequence[StoredDocument]) -> list[StoredDocument]:
    """Returns ``documents`` in the order with the longest kept prefix under ``fingerprint``.

    The given order stays if no other has a longer prefix.
    """
    given = {document.id: document for document in documents}
    sequences = _kept_sequences(store, fingerprint, list(given))
    lengths = {row.id: row.chars for row in store.documents.all()} | {d.id: len(d.text) for d in documents}

    def kept_by(order: Sequence[str]) -> int:
        return max((_kept_tokens(sequence, order, lengths) for sequence in sequences), default=0)

    best, most = tuple(given), kept_by(tuple(given))
    for sequence in sequences:
        begins = tuple(takewhile(given.__contains__, sequence.documents))
        order = (*begins, *(document for document in given if document not in begins))
        if (kept := kept_by(order)) > most:
            best, most = order, kept
    return [given[document] for document in best]


def kept_alone(store: Store, fingerprint: bytes, document: str) -> int:
    """Returns the number of stored tokens of a document that was read alone."""
    alone = cache_id(fingerprint, [document])
    return next((cache.kept for cache in store.caches.of_document(document) if cache.id == alone), 0)


def _kept_sequences(store: Store, fingerprint: bytes, documents: Sequence[str]) -> list[_KeptSequence]:
    """Returns the kept sequences of these documents, alone or with others; caches of chats are left out."""
    found = set[_KeptSequence]()
    for cache in (cache for document in documents for cache in store.caches.of_document(document) if cache.kept):
        sequence = tuple(store.caches.documents(cache.id))
        if cache.id == cache_id(fingerprint, sequence):
            found.add(_KeptSequence(sequence, cache.tokens, cache.kept))
    return sorted(found, key=lambda sequence: sequence.documents)


def _kept_tokens(sequence: _KeptSequence, order: Sequence[str], lengths: dict[str, int]) -> int:
    """Returns about how many tokens a kept sequence shares with the beginning of a prompt in this ``order``, estimated
    by characters.
    """
    pairs = zip(sequence.documents, order, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if same == len(sequence.documents):
        return sequence.kept
    share = sum(lengths[d] for d in sequence.documents[:same]) / sum(lengths[d] for d in sequence.documents)
    return min(sequence.kept, round(share * sequence.tokens))
