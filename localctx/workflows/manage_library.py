"""Manages the library: adds and indexes files, searches passages, and imports prepared documents."""

import sqlite3
from collections.abc import Container, Iterable, Iterator, Sequence

from localctx.budget import measure_store_budget
from localctx.engine.request_builder import RequestBuilder
from localctx.kv.pages import pack_tokens
from localctx.library.add import Added, add_documents
from localctx.library.search.search import SearchResult, index_all, search, search_library, try_with_embedder
from localctx.models.embedder import Embedder
from localctx.shape import FORMATS, PAGE, SINK_PAGES
from localctx.store.bundle import Bundle, BundleCache, import_document
from localctx.store.store import store_errors
from localctx.workflows.check_bundle import CHECKED_PAGES, CheckedPages, check_pages


class LibraryWorkflow:
    """Adds to the library of one session, and searches it, inside ``Runtime.running``.

    All methods raise StoreError, and Cancelled within a second of a cancel.
    """

    def __init__(self, builder: RequestBuilder) -> None:
        self._builder, self._runtime = builder, builder.runtime

    def add(self, sources: Iterable[str], ocr: str | None = None) -> Iterator[Added]:
        """Parse and store the files ``sources`` one by one; each is durable once its result is yielded.

        ``ocr``: None takes the setting.
        """
        runtime = self._runtime
        with store_errors(runtime.store.home):
            mode = ocr or runtime.settings.ocr
            disk = runtime.settings.caps["disk"]
            yield from add_documents(runtime.store, sources, self._report_pages, mode, runtime.cancelled, disk)

    def index(self, documents: Container[str] | None = None) -> str | None:
        """Make these documents (ids), or all, searchable; returns a warning if there is no embedder, so that search
        finds words only.
        """
        with store_errors(self._runtime.store.home):
            _, warning = try_with_embedder(
                lambda: self._runtime.embedder, lambda embedder: self._index(embedder, documents)
            )
        return warning

    def search(
        self, words: str, documents: Sequence[str] | None = None, top: int = 10
    ) -> tuple[SearchResult, str | None]:
        """Returns the ``top`` passages for ``words`` in these documents (ids) or in all, and the warning of ``index``.

        Documents not indexed yet are indexed first, if the disk has room.
        """
        store, unindexed = self._runtime.store, list[str]()

        def find(embedder: Embedder | None) -> SearchResult:
            try:
                self._index(embedder, documents)
            except (sqlite3.OperationalError, OSError) as e:
                unindexed.append(f"new documents were not searched ({e}); free some disk space")
            if documents is None:
                return search_library(store, words, embedder, top)
            return search(store, words, embedder, documents, top)

        with store_errors(store.home):
            result, warning = try_with_embedder(lambda: self._runtime.embedder, find)
        return result, "; ".join(filter(None, [*unindexed[:1], warning])) or None

    def usable_caches(self, bundle: Bundle) -> list[BundleCache]:
        """Returns the caches of an exported document that this session's model can use. Loads the model."""
        return [cache for cache in bundle.caches if _is_usable(self._builder, bundle.text, cache)]

    def check_bundle(
        self, bundle: Bundle, caches: Sequence[BundleCache], count: int | None = CHECKED_PAGES
    ) -> CheckedPages:
        """Recompute ``count`` random pages of these caches (None: all). Raises DocumentError if one differs: the file
        was altered, and its pages must not be imported.
        """
        return check_pages(
            self._runtime,
            bundle,
            caches,
            count,
            lambda done, total: self._runtime.report("checking pages", done, total),
        )

    def import_bundle(self, bundle: Bundle, caches: Sequence[BundleCache]) -> int:
        """Store an exported document with these caches, which ``check_bundle`` checked; returns the number of imported
        pages.

        Raises DocumentError for a damaged page.
        """
        store, settings = self._runtime.store, self._runtime.settings
        with store_errors(store.home):
            budget = measure_store_budget(settings.home, store.disk_bytes(), settings.caps["disk"])
            return import_document(store, bundle, caches.__contains__, budget)

    def _index(self, embedder: Embedder | None, documents: Container[str] | None) -> None:
        index_all(self._runtime.store, embedder, documents, self._runtime.report, self._runtime.cancelled)

    def _report_pages(self, source: str, done: int, total: int) -> None:
        self._runtime.report(f"pages of {source}" if total else source, done, total)


def _is_usable(builder: RequestBuilder, text: str, cache: BundleCache) -> bool:
    """Returns True if the pages of an exported cache have the fingerprint, tokens and sizes of ``text`` here."""
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
