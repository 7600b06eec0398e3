"""Loads models, and shares a loaded model among sessions."""

import gc
import time
from collections.abc import Callable, Sequence
from threading import Thread

from torch import Tensor

from localctx.engine.events import PREPARING, Progress
from localctx.engine.planning.cache_plan import PoolSet
from localctx.engine.planning.plan import refuse_big_gguf, refuse_for_gguf, refuse_sparse_reading, refuse_too_big
from localctx.kernels.cpu.warmup import compiled, warm, warm_sparse_prefill
from localctx.models.base import ForwardRequest, Model
from localctx.models.choice.default_model import choose_model
from localctx.models.choice.device_choice import pick_device
from localctx.models.choice.engine_choice import choose_engine
from localctx.models.hub.resolve import resolve_gguf, resolve_model
from localctx.models.llama_cpp.model import load_llama_model
from localctx.models.load import load_model
from localctx.settings import Settings, prefill_loss

LOADED_BY = ("model", "engine", "home", "device", "dtype", "weights", "threads", "rope", "reading")
"""Settings that decide which model is loaded, and how."""

_SECOND = 1.0  # between two reports, so that a terminal shows the seconds that passed


class ModelLoader:
    """Loads models, and keeps the last loaded model with the ``pools`` of its caches. Several sessions share it: each
    gets a view of the model with a context window of its own.
    """

    def __init__(self) -> None:
        self.pools = PoolSet()
        self._model: Model | None = None
        self._settings: Settings | None = None

    def load(self, settings: Settings, progress: Callable[[Progress], None]) -> tuple[Model, float]:
        """Load the model that ``settings`` name, downloading it if needed. Returns the model and the seconds that
        loading took.

        Raises ModelError.
        """
        start, settings = time.perf_counter(), choose_model(settings)
        if self._model is None or self._settings is None or not same_model(self._settings, settings):
            if self._model:  # free its memory first; cyclic garbage would be frozen with the next model
                self._model, self.pools = None, PoolSet()
                gc.collect()
            self._model, self._settings = _load(settings, progress), settings
        return self._model.view(), time.perf_counter() - start

    def forward_each(self, requests: Sequence[ForwardRequest], cancelled: Callable[[], bool]) -> list[Tensor]:
        """Compute one forward pass over sequences of several sessions. Returns for each request the logits of its last
        tokens. If it raises an exception, every cache is unchanged.
        """
        assert self._model, "a session with a sequence has loaded the model"
        return self._model.forward_each(requests, cancelled)


class ProcessorPreparation:
    """Compiles the CPU kernels in a background thread. It does nothing if an earlier run did that, or if ``needed`` is
    False because a GPU computes.

    A command that ends during the compilation does not wait for this thread. It only waits for the last kernels, those
    for decoding, if their compilation has begun: numba caches them for the next run.
    """

    def __init__(self, needed: bool = True) -> None:
        self._thread = None if compiled() or not needed else Thread(target=warm, daemon=True)
        if self._thread:
            self._thread.start()

    def wait(self, report: Callable[[], None]) -> None:
        """Wait for the compilation, and call ``report`` every second meanwhile. An error of the compilation is not
        raised here: it occurs again when the model is loaded.
        """
        while self._thread and self._thread.is_alive():
            report()
            self._thread.join(_SECOND)


def same_model(a: Settings, b: Settings) -> bool:
    """Returns True if both settings name the same model and load it in the same way (device, precision, threads and so
    on).
    """
    return all(getattr(a, name) == getattr(b, name) for name in LOADED_BY)


def _load(s: Settings, progress: Callable[[Progress], None]) -> Model:
    gc.disable()  # loading makes a million objects that stay: scanning them takes a fifth of the time
    try:
        if choose_engine(s.model, s.engine) == "llama.cpp":
            return _load_gguf(s, progress)
        refuse_sparse_reading(s)
        preparation = ProcessorPreparation(needed=pick_device(s.device).type == "cpu")
        folder = resolve_model(s.model, s.models, lambda phase, done, total: progress(Progress(phase, done, total)))
        refuse_too_big(folder, s)
        preparation.wait(lambda: progress(Progress(PREPARING, 0, 0)))
        progress(Progress("loading", 0, 0))
        model = load_model(folder, s.model, s.device, s.dtype, s.threads, s.rope, s.weights)
        if s.reading != "full":
            warm_sparse_prefill()
        return model.with_prefill_loss(prefill_loss(s.reading))
    finally:
        gc.freeze()
        gc.enable()


def _load_gguf(s: Settings, progress: Callable[[Progress], None]) -> Model:
    refuse_for_gguf(s)
    gguf = resolve_gguf(s.model, s.models, lambda phase, done, total: progress(Progress(phase, done, total)))
    refuse_big_gguf(gguf, s)
    progress(Progress("loading", 0, 0))
    tried = s.home / "tried"
    return load_llama_model(gguf, s.model, tried, device=s.device, threads=s.threads, chunk=s.chunk, rope=s.rope)
