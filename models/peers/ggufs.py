"""GGUF files for comparison with llama.cpp. A file is found, made once in the data folder, or downloaded on request."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from localctx.errors import Cancelled, UserError, format_bytes
from localctx.models.base import Model
from localctx.models.catalog import load_catalog
from localctx.models.fingerprint import hash_file
from localctx.models.hub.convert import ProgressCallback
from localctx.models.hub.resolve import resolve_gguf, resolve_model
from localctx.models.llama_cpp.library import llama_cpp_is_installed
from localctx.models.peers.llama_cpp import PUBLISHED
from localctx.models.peers.llama_gguf import quantize_gguf, write_gguf
from localctx.models.peers.published import fetch_published, published_file
from localctx.settings import Settings


@dataclass
class PeerGgufs:
    """Finds or makes the GGUF files of ``model`` for comparison with llama.cpp. There is a file in 16 bits (or the
    user's file ``own``), there are files quantized from it, and the published file that the model was converted from.

    Calls ``warn`` with a message about a file that cannot be found or made, and ``show`` with a message about a slow
    step.
    """

    model: Model
    settings: Settings
    own: Path | None = None
    threads: int = 1
    warn: Callable[[str], None] = lambda text: None
    show: ProgressCallback = lambda phase, done, total: None
    cancelled: Callable[[], bool] = lambda: False
    _found: dict[tuple[str, bool], Path | None] = field(default_factory=dict)

    def find(self, weights: str, fetch: bool = False) -> Path | None:
        """Returns the GGUF file with ``weights``: 16 bits (empty), PUBLISHED, or ``weights-`` and a format of
        GGUF_WEIGHTS. Returns None, usually after a warning, if there is no such file. The published file is downloaded
        only with ``fetch``. Raises Cancelled.
        """
        if (weights, fetch) not in self._found:
            self._found[weights, fetch] = self._find(weights, fetch)
        return self._found[weights, fetch]

    def _find(self, weights: str, fetch: bool) -> Path | None:
        if not llama_cpp_is_installed():
            self.warn("llama.cpp is not measured: pip install llama-cpp-python")
            return None
        try:
            if weights == PUBLISHED:
                return self._published(fetch)
            return self._quantized(weights.removeprefix("weights-")) if weights else self._full
        except UserError as e:
            self.warn(f"llama.cpp{weights and f' {weights}'} is not measured: {e}")
            return None

    @cached_property
    def _full(self) -> Path:
        """The user's file, or a 16-bit file converted once from the model."""
        if self.own or self.model.engine == "llama.cpp":
            return self.own or resolve_gguf(self.settings.model, self.settings.models, _no_progress)
        made = self._folder / f"{self.model.fingerprint('f32').hex()[:16]}.gguf"
        if not made.exists():
            self.show("making a GGUF for llama.cpp", 0, 0)
            write_gguf(resolve_model(self.settings.model, self.settings.models, _no_progress), made)
        return made

    def _quantized(self, weights: str) -> Path:
        """Returns a file that llama.cpp quantizes once from the 16-bit file. Raises Cancelled."""
        made = self._folder / f"{hash_file(self._full)[:16]}-{weights}.gguf"
        if not made.exists():
            self.show(f"llama.cpp makes {weights} weights", 0, 0)
            made.parent.mkdir(parents=True, exist_ok=True)
            quantize_gguf(self._full, made, weights, self.threads)
        if self.cancelled():
            raise Cancelled
        return made

    def _published(self, fetch: bool) -> Path | None:
        name = self.settings.model
        path = published_file(name, self.settings.models, self._folder)
        if path is None or path.exists():
            if path is None and fetch:
                self.warn(f"llama.cpp published is not measured: {name} was not published as a GGUF")
            return path
        if not fetch:
            size, file = format_bytes(load_catalog()[name].download_bytes), path.name.partition("-")[2]
            self.warn(f"{file} is not measured: --engines llama.cpp:{PUBLISHED} downloads it once ({size})")
            return None
        fetch_published(name, path, self._report)
        return path

    def _report(self, phase: str, done: int, total: int) -> None:
        if self.cancelled():
            raise Cancelled
        self.show(phase, done, total)

    @property
    def _folder(self) -> Path:
        return self.settings.home / "bench"


def _no_progress(phase: str, done: int, total: int) -> None:
    """Ignore progress: the model was loaded before, so nothing is downloaded."""
