"""Decides whether documents are read whole, or answers come from passages of them."""

from collections.abc import Sequence

from localctx.engine.prompt import estimate_tokens
from localctx.engine.request_builder import RequestBuilder
from localctx.errors import TooLong
from localctx.store.documents import StoredDocument


def why_passages(builder: RequestBuilder, documents: Sequence[StoredDocument] | None) -> str | None:
    """Returns the reason why answers come from passages of ``documents`` (None: of the whole library), or None if the
    documents are read whole.

    This does not check whether the documents fit into the context window; that is checked later.
    """
    settings = builder.runtime.settings
    if documents is None:
        return "the whole library was asked"
    if settings.mode == "full" or not documents:
        return None
    if settings.mode in ("retrieve", "everywhere"):
        return "passages were asked for"
    return None if settings.keep != "full" else _why_too_long(builder, documents)


def fits_alone(builder: RequestBuilder, documents: Sequence[StoredDocument], question: str) -> bool:
    """Returns True if the documents and the question, without a history, fit into the context window."""
    texts = [document.text for document in documents]
    try:
        builder.build(documents, texts, question, persist=False).cache.drop()
    except TooLong:
        return False
    return True


def _why_too_long(builder: RequestBuilder, documents: Sequence[StoredDocument]) -> str | None:
    """Returns a reason if ``documents`` are longer than the text from which the model answers well. Returns None if
    they are not.
    """
    model, effective = builder.model, builder.runtime.effective_context
    texts = [document.text for document in documents]
    tokens = estimate_tokens(model.tokenizer, texts, effective.whole, builder.runtime.cancelled)
    if tokens <= effective.whole:
        return None
    best = f"{model.name} answers best from up to {effective.description}"
    return f"passages, because {best}, and the documents have about {tokens:,}"
