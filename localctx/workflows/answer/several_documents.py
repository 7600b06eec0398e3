"""Reads several documents whole in one prompt: chooses their order, and can reuse the pages of documents that were read
alone.

Blending joins the pages of documents that were read alone, and prefills only some tokens of each document again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from localctx.engine.blending import Blending, CachedPassage, blend, choose_blending, no_blending
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.prompt import Conversation
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import close_request
from localctx.store.caches import cache_id
from localctx.store.documents import StoredDocument
from localctx.store.store import Store

MIN_SAVED = 0.1  # share of the prompt; blending is used only if it saves more, because it is not exact


def measured_blending(builder: RequestBuilder) -> Blending | None:
    """Returns the blending that the setting ``blend`` and the measured quality select. Returns None if there is no
    blending: then all documents but the first are prefilled again.

    There is no blending for a model with recurrent states or sliding windows, because their layers do not keep every
    token. Raises UsageError if the setting demands blending for such a model.
    """
    runtime = builder.runtime
    if not runtime.can_blend:
        if runtime.settings.blend == "on":
            raise no_blending(builder.model.name)
        return None

    def passed(blending: Blending) -> bool | None:
        key = blending.key(builder.fingerprint)
        return runtime.read_store(lambda store: store.quality_results.passed(key))

    return choose_blending(runtime.settings.blend, passed)


def in_best_order(
    builder: RequestBuilder, documents: Sequence[StoredDocument], question: str, conversation: Conversation
) -> Sequence[StoredDocument]:
    """Returns the documents in the order in which most kept tokens can be reused. If ``conversation`` has a history,
    the order is not changed.

    Raises TooLong.
    """
    if len(documents) < 2 or conversation.history:
        return documents
    # sets the RoPE scaling, on which the fingerprint depends
    builder.prompt([document.text for document in documents], question, conversation)
    fingerprint = builder.fingerprint
    return builder.runtime.read_store(lambda store: _order_by_kept(store, fingerprint, documents)) or documents


def begin_together(builder: RequestBuilder, given: Sequence[StoredDocument], request: Request) -> EngineCoroutine[None]:
    """Yield the plan of ``request``, begin to persist the pages, and blend if that saves enough.

    The plan explains the order of the ``given`` documents and what is prefilled again. Blending fills the cache with
    the pages of documents that were read alone. After an error, such as Cancelled, the request is closed.
    """
    alone = list[Request]()
    try:
        blending = measured_blending(builder) if _can_blend(builder, request) else None
        if blending:
            alone += (builder.build([d], [d.text], None, persist=True) for d in request.prompt.documents)
        saved = _saved(request, alone, blending) if blending else 0
        if saved < MIN_SAVED * len(request.prompt.tokens):
            blending, saved = None, 0
        _explain(builder, given, request, saved)
        yield request.plan
        request.begin_persisting()
        if blending:
            yield from combine(builder, request, alone, blending)
    except BaseException:
        close_request(request)
        raise
    finally:
        for one in alone:
            one.cache.drop()


def combine(
    builder: RequestBuilder, request: Request, apart: Sequence[Request], blending: Blending
) -> EngineCoroutine[None]:
    """Fill the cache of ``request`` by blending the caches of the requests ``apart``, each of which read one document
    (or passage) alone. ``blending`` says which tokens are prefilled again.
    """
    cached = [CachedPassage(one.prompt.tokens[: one.cache.length], one.paged_cache) for one in apart]
    cached = [passage for passage in cached if passage.tokens]
    model, tokens = builder.runtime.paged_model, request.prompt.tokens
    reused = yield from blend(model, request.paged_cache, tokens, cached, blending, chunk=request.recovery)
    request.plan = replace(request.plan, reused=reused)


def _explain(builder: RequestBuilder, given: Sequence[StoredDocument], request: Request, saved: int) -> None:
    """Explain in the plan which document comes first because it was read before, and which documents are prefilled
    again, and why. ``saved`` is the number of tokens that blending saves.
    """
    first, *others = request.prompt.documents
    told = [] if first.id == given[0].id else [f"{first.name} comes first, because it was read before"]
    ends = [*request.prompt.document_ends, request.prompt.boundary]
    unread = [document.id for document, end in zip(others, ends[1:], strict=True) if request.plan.reused < end]

    def read_alone(store: Store) -> set[str]:
        return {document for document in unread if _kept_alone(store, builder.fingerprint, document)}

    alone = builder.runtime.read_store(read_alone) or set()
    again = " and ".join(document.name for document in others if document.id in alone)
    if saved:
        plan, left = request.plan, len(request.prompt.tokens) - request.plan.reused
        seconds = plan.seconds and plan.seconds * (left - saved) / left
        request.plan = replace(plan, reused=plan.reused + saved, seconds=seconds)
        told.append("what was read of each document alone is put together")
    elif again:
        told.append(f"read again after {first.name}, because what is read depends on what stands before it: {again}")
    if told:
        request.plan = replace(request.plan, reason="; ".join([request.plan.reason, *told]), unusual=True)


def _can_blend(builder: RequestBuilder, request: Request) -> bool:
    """Returns True if blending is possible: there are several documents, the prompt fits the trained window, the keeper
    is ``full``, the model runs on torch and has RoPE, and pages are persisted.
    """
    paged = builder.model.engine == "torch" and builder.runtime.paged_model.rope is not None
    plain = request.plan.window <= builder.model.trained and request.plan.keeper == "full"
    return len(request.prompt.documents) > 1 and request.persister is not None and paged and plain


def _saved(request: Request, alone: Sequence[Request], blending: Blending) -> int:
    """Returns how many tokens need no prefill because of blending."""
    ends = [0, *request.prompt.document_ends, request.prompt.boundary]
    saved = 0
    for (start, end), one in zip(pairwise(ends), alone, strict=True):
        have = max(0, min(request.plan.reused, end) - start)
        saved += max(0, min(one.cache.length, end - start) - blending.recompute - have)
    return round(saved * (1 - blending.deviate))


@dataclass(frozen=True)
class _KeptSequence:
    """A stored cache of documents (ids) that were read together, in this order. ``kept`` of its ``tokens`` are
    stored.
    """

    documents: tuple[str, ...]
    tokens: int
    kept: int


def _order_by_kept(store: Store, fingerprint: bytes, documents: Sequence[StoredDocument]) -> list[StoredDocument]:
    """Returns ``documents`` in the order whose prompt has the longest kept prefix under ``fingerprint``.

    The order is not changed if no other order has a longer prefix.
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


def _kept_alone(store: Store, fingerprint: bytes, document: str) -> int:
    """Returns the number of stored tokens of a document that was read alone."""
    alone = cache_id(fingerprint, [document])
    return next((cache.kept for cache in store.caches.of_document(document) if cache.id == alone), 0)


def _kept_sequences(store: Store, fingerprint: bytes, documents: Sequence[str]) -> list[_KeptSequence]:
    """Returns the kept sequences that contain any of these documents. Caches of chats are left out."""
    found = set[_KeptSequence]()
    for cache in (cache for document in documents for cache in store.caches.of_document(document) if cache.kept):
        sequence = tuple(store.caches.documents(cache.id))
        if cache.id == cache_id(fingerprint, sequence):
            found.add(_KeptSequence(sequence, cache.tokens, cache.kept))
    return sorted(found, key=lambda sequence: sequence.documents)


def _kept_tokens(sequence: _KeptSequence, order: Sequence[str], lengths: dict[str, int]) -> int:
    """Estimates how many kept tokens of a sequence can be reused for a prompt with documents in this ``order``. The
    estimate uses the documents' ``lengths`` in characters.
    """
    pairs = zip(sequence.documents, order, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if same == len(sequence.documents):
        return sequence.kept
    share = sum(lengths[d] for d in sequence.documents[:same]) / sum(lengths[d] for d in sequence.documents)
    return min(sequence.kept, round(share * sequence.tokens))
