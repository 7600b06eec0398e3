"""The runtime: the handles that all requests of a session share, such as store and model. Each handle is opened when it
is first needed.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from localctx.engine.decoding.confidence import calibrations
from localctx.engine.events import InUse, Note, Progress
from localctx.engine.model_loader import ModelLoader, same_model
from localctx.engine.planning.cache_plan import PoolSet
from localctx.engine.planning.effective_context import MEASURED, EffectiveContext, effective_context
from localctx.errors import Cancelled, ModelError, UsageError
from localctx.models.adapter import Adapter, load_adapter
from localctx.models.adapter_folders import find_adapter
from localctx.models.base import Model, PagedModel
from localctx.models.catalog import DEFAULT, FALLBACK, title_of
from localctx.models.choice.default_model import choose_model
from localctx.models.embedder import Embedder, load_embedder
from localctx.models.hub.resolve import Unavailable
from localctx.models.llama_cpp.model import LlamaModel
from localctx.settings import Settings
from localctx.store.remote.remote_sync import finish_uploads
from localctx.store.store import Store, read_store

Value = TypeVar("Value")


class Runtime:
    """Holds settings, store, model, embedder, pools of KV pages, progress and cancellation of one session.

    ``on_progress`` is called with a Progress while something is downloaded, loaded or indexed, and with a Note if the
    default model cannot be fetched. Runtimes that share a ``loader`` share the model's weights and the pools. One
    thread uses a runtime at a time; any thread may call ``cancel``.
    """

    def __init__(
        self, settings: Settings, on_progress: Callable[[Any], None], loader: ModelLoader | None = None
    ) -> None:
        self.settings, self.on_progress = choose_model(settings), on_progress
        self._loader = loader or ModelLoader()
        self._store: Store | None = None
        self._model: Model | None = None
        self._adapter: tuple[tuple[str, str], Adapter | None] | None = None
        self._embedder: tuple[str, Embedder | None] | None = None
        self._cancel = threading.Event()
        self._cancellable = False
        self._load_seconds = 0.0

    @property
    def store(self) -> Store:
        """The data folder's store. Raises StoreError."""
        if self._store is None:
            self._store = Store(self.settings.home)
        return self._store

    @property
    def model(self) -> Model:
        """The model, downloaded and loaded when first needed. Raises ModelError."""
        if self._model is None:
            try:
                self._model, self._load_seconds = self._loader.load(self.settings, self.on_progress)
            except Unavailable as e:
                if self.settings.model != DEFAULT:
                    raise
                self._fall_back(e.problem)
        assert self._model
        return self._model

    @property
    def paged_model(self) -> PagedModel:
        """The model, if its keys and values are in our own pages. Raises ModelError. Raises UsageError if the engine is
        llama.cpp.
        """
        if self.model.engine != "torch":
            raise UsageError("llama.cpp cannot do this: it holds keys and values itself", "use --engine torch")
        return cast(PagedModel, self.model)

    @property
    def has_states(self) -> bool:
        """True if some layers of the model have recurrent states, which are stored as snapshots beside the pages."""
        return self.model.engine == "torch" and bool(self.paged_model.shape.states)

    @property
    def can_blend(self) -> bool:
        """True if the model keeps keys and values of every token, as blending needs: it has no recurrent states and no
        sliding-window layers. Also True for llama.cpp, because its engine refuses blending itself.
        """
        return self.model.engine != "torch" or not self.paged_model.shape.snapshots

    @property
    def llama_model(self) -> LlamaModel:
        """The model, run by llama.cpp. Raises ModelError."""
        assert self.model.engine == "llama.cpp", "the engine is that of the model"
        return cast(LlamaModel, self.model)

    @property
    def adapter(self) -> Adapter | None:
        """The LoRA adapter that the settings name, added to the model. None if they name none, or if ``auto`` finds
        none for this model. Raises ModelError.
        """
        wanted = self.settings.adapter, self.settings.model
        if self.settings.adapter == "auto" and self.model.engine != "torch":
            return None
        if self._adapter is None or self._adapter[0] != wanted:
            folder = find_adapter(*wanted)
            self._adapter = wanted, _load_adapter(folder) if folder else None
        if adapter := self._adapter[1]:
            try:
                self.model.add_adapter(adapter)
            except ModelError:
                if self.settings.adapter != "auto":
                    raise
                self._adapter = wanted, None  # the folder of the catalogue's model holds other weights
        return self._adapter[1]

    @property
    def effective_context(self) -> EffectiveContext:
        """The effective context of the model in use: the length up to which documents are read whole. Raises
        ModelError.
        """
        name = self.settings.model

        def measured() -> dict[str, Any] | None:
            return self.read_store(lambda store: store.quality_results.of_model(name).get(MEASURED))

        return effective_context(self.settings, self.model, measured, self.adapter)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder that the settings name, None if the setting is ``none``. Raises ModelError."""
        s = self.settings
        if self._embedder is None or self._embedder[0] != s.embedder:
            self._embedder = s.embedder, load_embedder(s.embedder, s.models, self.report, s.home / "tried")
        return self._embedder[1]

    @property
    def pools(self) -> PoolSet:
        """The pools that hold the caches of this model."""
        return self._loader.pools

    @property
    def in_use(self) -> InUse:
        """The memory in use now, in bytes; all sizes are 0 while no model is loaded."""
        if self._model is None:
            return InUse()
        adapter = self._adapter[1] if self._adapter else None
        kv = {**self.pools.nbytes, **self._model.kv_nbytes}
        return InUse(str(self._model.device), self._model.nbytes, adapter.nbytes if adapter else 0, kv)

    def read_store(self, read: Callable[[Store], Value]) -> Value | None:
        """Call ``read`` with the store and return its result. Returns None if there is no store, or if it cannot be
        read.
        """
        return read_store(self.settings.home, lambda: self.store, read)

    def report(self, phase: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total`` units of a ``phase`` are done (``total`` 0: unknown)."""
        self.on_progress(Progress(phase, done, total))

    def load(self) -> float:
        """Load the model and its adapter. From then on a cancel is accepted. Returns the seconds that loading the model
        took, 0 if it was loaded already.
        """
        self.model, self.adapter  # noqa: B018 (loads)
        self._cancellable = True
        seconds, self._load_seconds = self._load_seconds, 0.0
        return seconds

    def _fall_back(self, problem: str) -> None:
        """Load the smaller model, because the default model cannot be fetched (``problem`` says why), and tell the
        user. Raises ModelError.
        """
        smaller = choose_model(replace(self.settings, model=FALLBACK, weights="auto"))
        self._model, self._load_seconds = self._loader.load(smaller, self.on_progress)
        self.settings = smaller
        self.on_progress(Note(f"{problem}: the smaller {title_of(FALLBACK)} answers, which is often wrong"))

    @contextmanager
    def running(self, cancellable: bool = False) -> Iterator[None]:
        """Forget earlier cancels, and accept a new cancel while the block runs. If ``cancellable``, it is accepted from
        the start of the block; otherwise only after the model is loaded.
        """
        self._cancel.clear()
        self._cancellable = cancellable
        try:
            yield
        finally:
            self._cancellable = False

    def cancel(self) -> bool:
        """Stop the running work, at the latest after the forward pass of one layer. This method may be called from any
        thread or from a signal handler.

        Returns False if nothing that can be cancelled is running (loading a model cannot be), or if it was cancelled
        already.
        """
        accepted = self._cancellable and not self._cancel.is_set()
        self._cancel.set()
        return accepted

    def cancelled(self) -> bool:
        """Returns True after ``cancel``, until the next work begins."""
        return self._cancel.is_set()

    def check_cancelled(self) -> None:
        """Raise Cancelled after ``cancel``."""
        if self._cancel.is_set():
            raise Cancelled

    def change(self, settings: Settings) -> None:
        """Continue with other settings. The model stays loaded if both settings name the same one."""
        old, self.settings = self.settings, choose_model(settings)
        if not same_model(old, self.settings):
            self._model = None
        if old.home != settings.home:
            self.close()

    def close(self) -> None:
        """Wait for uploads to a remote store, then close the local store."""
        finish_uploads()
        if self._store:
            self._store.close()
            self._store = None


def _load_adapter(folder: Path) -> Adapter:
    """Load an adapter, and refuse damaged calibrations before any work. Raises ModelError."""
    adapter = load_adapter(folder)
    calibrations(adapter)
    return adapter
