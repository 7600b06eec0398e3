"""Shelving: what is done with the library beside asking it. Files are read into it and indexed, passages are found,
documents prepared elsewhere are taken in. The command and the window both do it through here.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property

from localctx.budget import measure_store_budget
from localctx.engine.events import Progress
from localctx.engine.request_builder import RequestBuilder
from localctx.kv.pages import pack_tokens
from localctx.library.add import Added, add_documents
from localctx.library.search import SearchResult, index_all, search, try_with_embedder
from localctx.models.embedder import Embedder, load_embedder
from localctx.settings import Settings
from localctx.shape import FORMATS, PAGE, SINKS
from localctx.store.bundle import Bundle, BundleCache, import_document
from localctx.store.store import Store, store_errors


class LibraryWorkflow:
    """The library of one session. ``progress`` hears of files, of the embedder and of indexing.

    Everything raises StoreError, and Cancelled within a second of ``cancelled``.
    """

    def __init__(
        self,
        settings: Settings,
        open_store: Callable[[], Store],
        open_opener: Callable[[], RequestBuilder],
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self._settings, self._open_store, self._open_opener = settings, open_store, open_opener
        self._progress, self._cancelled = progress, cancelled

    def add(self, sources: Iterable[str], ocr: str | None = None) -> Iterator[Added]:
        """Read and keep the files ``sources``, one by one; what was yielded is durable. ``ocr``: None is as set."""
        store = self._open_store()
        with store_errors(store.home):
            yield from add_documents(store, sources, self._turning, ocr or self._settings.ocr, self._cancelled)

    def index(self, documents: Container[str] | None = None) -> str | None:
        """Make these documents (ids), or all, searchable; why by their words alone, where vectors cannot be had."""
        store = self._open_store()
        with store_errors(store.home):
            _, why = try_with_embedder(lambda: self._embedder, lambda embedder: self._index(store, embedder, documents))
        return why

    def search(
        self, words: str, documents: Sequence[str] | None = None, top: int = 10
    ) -> tuple[SearchResult, str | None]:
        """The ``top`` passages for ``words`` in these documents (ids), or in all; and what ``index`` says.

        What was not searched before is indexed first.
        """
        store = self._open_store()

        def find(embedder: Embedder | None) -> SearchResult:
            self._index(store, embedder, documents)
            return search(store, words, embedder, documents, top)

        with store_errors(store.home):
            return try_with_embedder(lambda: self._embedder, find)

    def usable(self, bundle: Bundle) -> list[BundleCache]:
        """The caches of a document prepared elsewhere that this session's model can use. Loads the model."""
        return [cache for cache in bundle.caches if _fits(self._open_opener(), bundle.text, cache)]

    def take_in(self, bundle: Bundle, caches: Sequence[BundleCache]) -> int:
        """Keep a document prepared elsewhere with these of its caches; how many pages came with it.

        Raises DocumentError for a damaged page.
        """
        store, s = self._open_store(), self._settings
        with store_errors(store.home):
            budget = measure_store_budget(s.home, store.pages.nbytes(), s.caps["disk"])
            return import_document(store, bundle, caches.__contains__, budget)

    @cached_property
    def _embedder(self) -> Embedder | None:
        s = self._settings
        return load_embedder(s.embedder, s.models, self._tell)

    def _index(self, store: Store, embedder: Embedder | None, documents: Container[str] | None) -> None:
        index_all(store, embedder, documents, self._tell, self._cancelled)

    def _tell(self, phase: str, done: int, total: int) -> None:
        self._progress(Progress(phase, done, total))

    def _turning(self, source: str, done: int, total: int) -> None:
        self._tell(f"pages of {source}" if total else source, done, total)


def _fits(opener: RequestBuilder, text: str, kept: BundleCache) -> bool:
    """Whether pages made elsewhere have the fingerprint, tokens and sizes that this ``text`` has here."""
    model, prompt, count = opener.model, opener.prompt([text], ""), len(kept.pages)
    shape, tokens = model.shape, prompt.tokens[: prompt.shared]
    sizes = [shape.page_bytes(kept.codec, sinks=i < SINKS) for i in range(count)] if kept.codec in FORMATS else []
    if opened := count and len(tokens[(count - 1) * PAGE :][:PAGE]) % PAGE:
        sizes[-1:] = [shape.tail_bytes(model.dtype.itemsize) // PAGE * opened]
    return (
        [page.nbytes for page in kept.pages] == sizes
        and kept.fingerprint == model.fingerprint(kept.codec)
        and kept.slot_bytes == shape.slot_bytes(kept.codec)
        and b"".join(page.tokens for page in kept.pages) == pack_tokens(tokens[: count * PAGE])
        and kept.tokens == len(tokens)
    )
