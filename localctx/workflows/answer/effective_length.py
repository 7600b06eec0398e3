"""Compares documents with the length from which the model answers well when it reads them whole."""

from collections.abc import Sequence

from localctx.engine.planning.effective_context import MEASURED, effective_context
from localctx.engine.prompt import estimate_tokens
from localctx.engine.request_builder import RequestBuilder
from localctx.store.documents import StoredDocument


def longer_than_effective(builder: RequestBuilder, documents: Sequence[StoredDocument]) -> str | None:
    """Returns why answers come from passages of ``documents``: they exceed the model's effective context. None if they
    do not.
    """
    model, runtime = builder.model, builder.runtime
    name = runtime.settings.model
    measured = lambda: runtime.read_store(lambda store: store.quality_results.of_model(name).get(MEASURED))  # noqa: E731
    effective = effective_context(runtime.settings, model, measured, runtime.adapter)
    texts = [document.text for document in documents]
    tokens = estimate_tokens(model.tokenizer, texts, effective.tokens, runtime.cancelled)
    if tokens <= effective.tokens:
        return None
    best = f"{model.name} answers best from up to {effective.description}"
    return f"passages, because {best}, and here are about {tokens:,}"
