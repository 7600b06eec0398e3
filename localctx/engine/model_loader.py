"""Loading: models in memory, which sessions may share."""

import gc
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from localctx.engine.cache_plan import PoolSet
from localctx.engine.events import Progress
from localctx.engine.plan import refuse_too_big
from localctx.models.base import ForwardRequest, Model
from localctx.models.load import load_model
from localctx.models.resolve import resolve_model
from localctx.settings import Settings

LOADED_BY = ("model", "home", "device", "dtype", "weights", "threads", "rope")  # which model, and how


class ModelLoader:
    """Has the model that was loaded last; each session gets a view of it, with a window of its own. Their caches are in
    the same ``pools``.
    """

    def __init__(self) -> None:
        self.pools = PoolSet()
        self._model: Model | None = None
        self._of: Settings | None = None

    def load(self, settings: Settings, progress: Callable[[Progress], None]) -> tuple[Model, float]:
        """The model that ``settings`` name, fetched and loaded where it is not here, and the seconds it took.

        Raises ModelError.
        """
        start = time.perf_counter()
        if self._model is None or self._of is None or not same_model(self._of, settings):
            if self._model:  # another takes its room; what is in cycles would be frozen with the rest, for ever
                self._model, self.pools = None, PoolSet()
                gc.collect()
            self._model, self._of = _load(settings, progress), settings
        return self._model.view(), time.perf_counter() - start

    def compute(self, feeds: Sequence[ForwardRequest], cancelled: Callable[[], bool]) -> list[Tensor]:
        """One pass of the model over sequences of sessions that share it."""
        assert self._model, "who has a sequence has loaded the model"
        return self._model.forward_each(feeds, cancelled)


def same_model(a: Settings, b: Settings) -> bool:
    """Whether two settings name one model, loaded alike."""
    return all(getattr(a, name) == getattr(b, name) for name in LOADED_BY)


def _load(s: Settings, progress: Callable[[Progress], None]) -> Model:
    gc.disable()  # loading makes a million objects that stay: looking through them takes a fifth of the time
    try:
        folder = resolve_model(s.model, s.models, lambda phase, done, total: progress(Progress(phase, done, total)))
        refuse_too_big(folder, s)
        progress(Progress("loading", 0, 0))
        return load_model(folder, s.model, s.device, s.dtype, s.threads, s.rope, s.weights)
    finally:
        gc.freeze()
        gc.enable()
