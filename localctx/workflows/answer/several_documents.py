"""Reads several documents whole in one prompt: chooses their order, and reuses pages that were read alone.

Blending puts the pages of documents that were read alone together, and prefills again only a part of each.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from localctx.engine.blending import Blending, CachedPassage, blend, choose_blending, no_blending
from localctx.engine.coroutine import EngineCoroutine
from localctx.engine.prompt import Conversation
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import close_request
from localctx.store.documents import StoredDocument
from localctx.store.store import Store
from localctx.workflows.answer.document_order import kept_alone, order_by_kept

MIN_SAVED = 0.1  # share of the prompt that blending must save to be used, because it is not exact


def measured_blending(builder: RequestBuilder) -> Blending | None:
    """Returns the blending that ``choose_blending`` selects, or None if everything is to be prefilled again.

    It is None for a model whose layers do not keep every token (``Runtime.can_blend``). Raises UsageError if the
    setting demands blending for such a model.
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
    """Returns the documents in the order with the most kept tokens. A chat that has begun keeps its order.

    Raises TooLong.
    """
    if len(documents) < 2 or conversation.history:
        return documents
    builder.prompt([document.text for document in documents], question, conversation)  # scales RoPE for the fingerprint
    fingerprint = builder.fingerprint
    return builder.runtime.read_store(lambda store: order_by_kept(store, fingerprint, documents)) or documents


def begin_together(builder: RequestBuilder, given: Sequence[StoredDocument], request: Request) -> EngineCoroutine[None]:
    """Yields the plan of ``request``, and begins to persist its pages.

    The plan explains the order of the ``given`` documents and what is prefilled again. If a blending is selected and
    saves enough, the cache is filled from each document's own pages. Raises Cancelled, with the request closed.
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
            cached = [CachedPassage(one.prompt.tokens[: one.cache.length], one.paged_cache) for one in alone]
            cached = [passage for passage in cached if passage.tokens]
            model, tokens = builder.runtime.paged_model, request.prompt.tokens
            reused = yield from blend(model, request.paged_cache, tokens, cached, blending, chunk=request.recovery)
            request.plan = replace(request.plan, reused=reused)
    except BaseException:
        close_request(request)
        raise
    finally:
        for one in alone:
            one.cache.drop()


def _explain(builder: RequestBuilder, given: Sequence[StoredDocument], request: Request, saved: int) -> None:
    """Add to the plan which document comes first because it was read, and which are prefilled again and why. Blending
    saves ``saved`` tokens.
    """
    first, *others = request.prompt.documents
    told = [] if first.id == given[0].id else [f"{first.name} comes first, because it was read before"]
    ends = [*request.prompt.document_ends, request.prompt.boundary]
    unread = [document.id for document, end in zip(others, ends[1:], strict=True) if request.plan.reused < end]

    def read_alone(store: Store) -> set[str]:
        return {document for document in unread if kept_alone(store, builder.fingerprint, document)}

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
    """Returns True for several documents in the trained window, under the full keeper, on a torch model with RoPE, with
    pages persisted.
    """
    paged = builder.model.engine == "torch" and builder.runtime.paged_model.rope is not None
    plain = request.plan.window <= builder.model.trained and request.plan.keeper == "full"
    return len(request.prompt.documents) > 1 and request.persister is not None and paged and plain


def _saved(request: Request, alone: Sequence[Request], blending: Blending) -> int:
    """Returns how many tokens blending saves from prefill."""
    ends = [0, *request.prompt.document_ends, request.prompt.boundary]
    saved = 0
    for (start, end), one in zip(pairwise(ends), alone, strict=True):
        have = max(0, min(request.plan.reused, end) - start)
        saved += max(0, min(one.cache.length, end - start) - blending.recompute - have)
    return round(saved * (1 - blending.deviate))
