"""Estimates how long a summary takes, from the last summary made on this machine, or else from the model's measured
rates.
"""

from collections.abc import Sequence

from localctx.engine.prompt import estimate_tokens
from localctx.engine.request_builder import RequestBuilder
from localctx.errors import StoreError
from localctx.store.caches import ANSWER_RATE
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, store_errors
from localctx.workflows.summary_task import LENGTHS, MAX_SECTION, SECTION_LENGTH, SummaryTask

MAX_UNASKED = 60  # seconds that a written summary may take if the user did not choose it
MIN_RATED = 5_000  # characters; a shorter document says little about speed
_LENGTH = LENGTHS["medium"][1]


def estimate_summary_seconds(builder: RequestBuilder, documents: Sequence[StoredDocument]) -> float | None:
    """Returns the number of seconds to summarize ``documents``, or None if nothing comparable was measured."""
    runtime, fingerprint = builder.runtime, builder.fingerprint
    rate = runtime.read_store(lambda store: store.caches.rate(fingerprint, _rate_name(builder)))
    if rate:
        return sum(len(document.text) for document in documents) / rate
    if SummaryTask().method(runtime.settings).extracts:
        return None
    read = runtime.read_store(lambda store: store.caches.rate(fingerprint))
    write = runtime.read_store(lambda store: store.caches.rate(fingerprint, ANSWER_RATE))
    if not read or not write:
        return None
    return sum(_model_seconds(builder, document, read, write) for document in documents)


def note_summary_seconds(builder: RequestBuilder, document: StoredDocument, seconds: float) -> None:
    """Store the rate at which ``document`` was summarized, in ``seconds`` seconds, for the next estimate.

    Does nothing if the store cannot be written.
    """

    def write(store: Store) -> None:
        store.caches.note_rate(builder.fingerprint, len(document.text) / seconds, _rate_name(builder))

    if len(document.text) >= MIN_RATED and seconds > 0:
        try:
            with store_errors(builder.runtime.store.home):
                write(builder.runtime.store)
        except StoreError:
            return


def _model_seconds(builder: RequestBuilder, document: StoredDocument, read: float, write: float) -> float:
    """Estimates the seconds for a summary that the model writes, from the rates ``read`` and ``write`` in tokens per
    second. A long document is read in sections, and their summaries are merged.
    """
    tokens = estimate_tokens(builder.model.tokenizer, [document.text], 0, builder.runtime.cancelled)
    if tokens + _LENGTH < builder.model.trained:
        return tokens / read + _LENGTH / write
    section = min(MAX_SECTION, builder.model.trained // 2)
    sections, written = -(-tokens // section), min(SECTION_LENGTH[1], section // 2)
    again = sections * written  # to merge the summaries, the model reads them
    joined = -(-again // section)
    return (tokens + again) / read + (sections * written + joined * _LENGTH) / write


def _rate_name(builder: RequestBuilder) -> str:
    method = SummaryTask().method(builder.runtime.settings).name
    return f"characters summarized ({method})"
