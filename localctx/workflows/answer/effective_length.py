"""Compares the length of documents with the effective context: the length up to which the model answers well."""

from collections.abc import Sequence

from localctx.engine.planning.effective_context import MEASURED, EffectiveContext, effective_context
from localctx.engine.prompt import estimate_tokens
from localctx.engine.request_builder import RequestBuilder
from localctx.store.documents import StoredDocument


def effective_context_of(builder: RequestBuilder) -> EffectiveContext:
    """Returns the effective context of the model in use."""
    runtime = builder.runtime
    name = runtime.settings.model
    measured = lambda: runtime.read_store(lambda store: store.quality_results.of_model(name).get(MEASURED))  # noqa: E731
    return effective_context(runtime.settings, builder.model, measured, runtime.adapter)


def longer_than_effective(builder: RequestBuilder, documents: Sequence[StoredDocument]) -> str | None:
    """Returns the reason why answers come from passages of ``documents``, or None if they can be read whole.

    The reason is that they are longer than the length up to which documents are read whole.
    """
    model, effective = builder.model, effective_context_of(builder)
    texts = [document.text for document in documents]
    tokens = estimate_tokens(model.tokenizer, texts, effective.whole, builder.runtime.cancelled)
    if tokens <= effective.whole:
        return None
    best = f"{model.name} answers best from up to {effective.description}"
    return f"passages, because {best}, and the documents have about {tokens:,}"
