"""Manages the library: adds and indexes files, searches passages, and imports prepared documents."""

import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from localctx.budget import measure_store_budget
from localctx.engine.coroutine import EngineCoroutine, Result, consume, drive
from localctx.engine.request_builder import RequestBuilder
from localctx.kv.pages import pack_tokens
from localctx.library.add import Added, add_document
from localctx.library.search.indexing import BATCH, Unsearchable, try_with_embedder, unsearchable
from localctx.library.search.search import SearchResult, search, search_library
from localctx.models.embedder import Embedder
from localctx.shape import FORMATS, PAGE, SINK_PAGES
from localctx.store.bundle import Bundle, BundleCache, import_document
from localctx.store.store import Store, store_errors
from localctx.workflows.check_bundle import CHECKED_PAGES, CheckedPages, check_pages
from localctx.workflows.index_documents import index_words, make_searchable
from localctx.workflows.read_sources import read_options

INSTANT = 200_000  # characters; the words of so much text are indexed in an instant


class LibraryWorkflow:
    """Adds documents to the library of a session, and searches it. Use it inside ``Runtime.running``.

    All methods raise StoreError. They raise Cancelled within a second of a cancel.
    """

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder, self._runtime = builder, builder.runtime

    def add(self, sources: Iterable[str], ocr: str | None = None) -> Iterator[Added]:
        """Parse and store the files ``sources`` one by one, and yield the result of each.

        When a result is yielded, the document is safely on disk. ``ocr`` is ``auto``, ``on`` or ``off`` (None: the
        setting).
        """
        runtime = self._runtime
        with store_errors(runtime.store.home):
            for source in sources:
                options = read_options(runtime, source, ocr)
                yield add_document(runtime.store, source, options, runtime.settings.caps["disk"])

    def index(self, documents: Collection[str]) -> str | None:
        """Make these documents (ids) searchable, and report the progress.

        Returns a warning if there is no embedder, so that search finds words only, else None.
        """
        return self._drive(self.index_steps(documents))

    def index_short(self, documents: Sequence[str] | None) -> None:
        """Index the words of the ``documents`` (ids; None: all) that are not indexed yet. Does nothing if those
        documents have more than INSTANT characters in total.
        """
        store = self._runtime.store
        with store_errors(store.home):
            new = [row for d in unsearchable(store, documents) if (row := store.documents.get(d.document))]
            if sum(row.chars for row in new) <= INSTANT:
                self._drive(index_words(self._runtime, store, [row.id for row in new]))

    def index_steps(self, documents: Collection[str] | None = None, batch: int = BATCH) -> EngineCoroutine[str | None]:
        """Make these documents (ids), or all, searchable, ``batch`` chunks at a time.

        Yields the progress after each step. Returns a warning if there is no embedder, so that search finds words only,
        else None.
        """
        store = self._runtime.store
        with store_errors(store.home):
            ids = {row.id for row in store.documents.all()} if documents is None else documents
            return (yield from make_searchable(self._runtime, store, ids, math.inf, batch))

    def search(
        self, words: str, documents: Sequence[str] | None = None, top: int = 10, wait: bool = True
    ) -> tuple[SearchResult, str | None]:
        """Returns the ``top`` passages for ``words`` in these documents (ids; None: in all), and a warning or None.

        The warning says that documents were not searched, or only by their words. If ``wait``, documents that are not
        indexed yet are indexed first, but vectors are not computed for very long texts (see ``make_searchable``).
        Otherwise only words are indexed, and only if these documents are short in total.
        """
        store, warnings = self._runtime.store, list[str | None]()
        with store_errors(store.home):
            try:
                if wait:
                    ids = documents if documents is not None else [row.id for row in store.documents.all()]
                    warnings.append(self._drive(make_searchable(self._runtime, store, ids)))
                else:
                    self.index_short(documents)
            except (sqlite3.OperationalError, OSError) as e:
                warnings.append(f"new documents were not searched ({e}); free some disk space")
            result, why = try_with_embedder(
                lambda: self._runtime.embedder, lambda embedder: _search(store, words, embedder, documents, top)
            )
            result = replace(result, unsearchable=tuple(unsearchable(store, documents)))
        warnings += [why, _not_searchable(result.unsearchable)]
        return result, "; ".join(dict.fromkeys(filter(None, warnings))) or None

    def usable_caches(self, bundle: Bundle) -> list[BundleCache]:
        """Returns the caches of an exported document that this session's model can use. Loads the model."""
        return [cache for cache in bundle.caches if _is_usable(self._builder, bundle.text, cache)]

    def check_bundle(
        self, bundle: Bundle, caches: Sequence[BundleCache], count: int | None = CHECKED_PAGES
    ) -> CheckedPages:
        """Compute ``count`` random pages of these ``caches`` of an exported document again (None: all pages), and
        compare them. Raises DocumentError if a page differs: the file was altered, and its pages must not be imported.
        """
        return check_pages(
            self._runtime,
            bundle,
            caches,
            count,
            lambda done, total: self._runtime.report("checking pages", done, total),
        )

    def import_bundle(self, bundle: Bundle, caches: Sequence[BundleCache]) -> int:
        """Store an exported document, with the pages of these ``caches``, which ``check_bundle`` has checked.

        Returns the number of imported pages. Raises DocumentError for a damaged page.
        """
        store, settings = self._runtime.store, self._runtime.settings
        with store_errors(store.home):
            budget = measure_store_budget(settings.home, store.disk_bytes(), settings.caps["disk"])
            return import_document(store, bundle, caches.__contains__, budget)

    def _drive(self, indexing: EngineCoroutine[Result]) -> Result:
        """Run an indexing coroutine until it ends, and report the progress."""
        return consume(drive(indexing, _compute_nothing), self._runtime.on_progress)


def _search(
    store: Store, words: str, embedder: Embedder | None, documents: Sequence[str] | None, top: int
) -> SearchResult:
    if documents is None:
        return search_library(store, words, embedder, top)
    return search(store, words, embedder, documents, top)


def _not_searchable(documents: Sequence[Unsearchable]) -> str | None:
    """Returns a line about documents that are not completely indexed, with the share of the least complete one. Returns
    None if there are none.
    """
    if not documents:
        return None
    share = f"{100 * min(document.share for document in documents):.0f} %"
    count = "1 document is" if len(documents) == 1 else f"{len(documents):,} documents are"
    return f"{count} not searchable yet ({share})"


def _is_usable(builder: RequestBuilder, text: str, cache: BundleCache) -> bool:
    """Returns True if the pages of an exported cache have the fingerprint, tokens and sizes that this session's model
    would give for ``text``.
    """
    if builder.model.engine != "torch":  # snapshots are not exported
        return False
    model, prompt, count = builder.runtime.paged_model, builder.prompt([text], ""), len(cache.pages)
    shape, tokens = model.shape, prompt.tokens[: prompt.shared]
    sizes = (
        [shape.page_bytes(cache.codec, sinks=i < SINK_PAGES) for i in range(count)] if cache.codec in FORMATS else []
    )
    if open_tokens := count and len(tokens[(count - 1) * PAGE :][:PAGE]) % PAGE:
        sizes[-1:] = [shape.tail_bytes(model.dtype.itemsize) // PAGE * open_tokens]
    return (
        [page.nbytes for page in cache.pages] == sizes
        and cache.fingerprint == model.fingerprint(cache.codec)
        and cache.slot_bytes == shape.slot_bytes(cache.codec)
        and b"".join(page.tokens for page in cache.pages) == pack_tokens(tokens[: count * PAGE])
        and cache.tokens == len(tokens)
    )


def _compute_nothing(forward: Any) -> Any:
    raise AssertionError("indexing computes nothing with the model")
