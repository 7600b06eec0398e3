"""Offers to read whole documents when only passages are read, but the question may be about all of the text."""

import shlex
from collections.abc import Sequence

from localctx.engine.events import WholeOffered
from localctx.engine.request_builder import RequestBuilder
from localctx.store.documents import StoredDocument
from localctx.store.store import Store
from localctx.workflows.answer.every_passage import current_documents, estimate_cost, format_seconds
from localctx.workflows.answer.question_kind import asks_for_summary, asks_in_many_places
from localctx.workflows.summary_time import estimate_summary_seconds

MAY_ASK_ABOUT_WHOLE = "this may ask about the whole, but only the best passages are read"


def offer_whole(
    builder: RequestBuilder,
    store: Store,
    documents: Sequence[StoredDocument] | None,
    sample: Sequence[str],
    question: str,
) -> WholeOffered | None:
    """Returns an offer to read all of ``documents`` (None: of the library) for ``question``, or None.

    The offer has the time that it takes. It is None if passages are enough. ``sample`` are the texts of some passages,
    from which the cost is estimated.
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
