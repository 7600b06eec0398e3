"""llama.cpp, used through llama-cpp-python, as a peer in benchmarks."""

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from localctx.errors import Cancelled, ModelError
from localctx.models.files.gguf_file import open_gguf
from localctx.models.fingerprint import hash_file
from localctx.models.llama_cpp.library import llama_library
from localctx.models.llama_cpp.trial import can_repack
from localctx.models.peers.llama_gguf import GGUF_WEIGHTS

_CHUNK = 512  # tokens in a batch, llama.cpp's default


@dataclass(frozen=True)
class LlamaCppOptions:
    """Options of llama.cpp as a peer: the format of its KV cache (``f16`` or ``q8_0``), flash attention, and the format
    of its weights. ``weights`` is empty for 16 bits, PUBLISHED for the published file, or ``weights-`` and a format of
    ``GGUF_WEIGHTS``.
    """

    kv: str
    flash: bool
    weights: str = ""

    @property
    def name(self) -> str:
        """The name in reports, such as ``llama.cpp weights-q4_1 flash``."""
        return " ".join(filter(None, ("llama.cpp", self.weights, "flash" if self.flash else "")))


PUBLISHED = "published"
LLAMA_CPP_WEIGHTS = (PUBLISHED, *(f"weights-{name}" for name in GGUF_WEIGHTS))
LLAMA_CPP_VARIANTS = (
    *(LlamaCppOptions("f16", True), LlamaCppOptions("f16", False), LlamaCppOptions("q8_0", True)),
    *(LlamaCppOptions("f16", flash, weights) for weights in LLAMA_CPP_WEIGHTS for flash in (True, False)),
)
"""The measured options. A quantized V cache needs flash attention."""


def _can_repack(gguf: Path) -> bool:
    try:
        return can_repack(open_gguf(gguf))
    except ModelError as e:
        raise ValueError(str(e)) from e


@contextmanager
def repacking(library: Any, repacks: bool) -> Iterator[None]:
    """Let models that are loaded in the block have their weights repacked for this processor or not. Llama has no
    argument for that.
    """
    low = library.llama_cpp
    defaults = low.llama_model_default_params

    def changed() -> Any:
        options = defaults()
        options.use_extra_bufts = repacks
        return options

    low.llama_model_default_params = changed
    try:
        yield
    finally:
        low.llama_model_default_params = defaults


class LlamaCppPeer:
    """One llama.cpp context of the model in the file ``gguf``, for up to ``max_tokens`` tokens. The caller closes it.

    ``gpu`` puts all layers on the GPU, if llama.cpp was built for one. Raises ValueError for a file that does not load.
    """

    def __init__(
        self,
        gguf: Path,
        options: LlamaCppOptions,
        max_tokens: int,
        threads: int,
        gpu: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        llama_cpp = llama_library()
        self.name, self.kv, self.prefills = options.name, options.kv, True
        self._lib, self._cancelled = llama_cpp, cancelled
        repacks = _can_repack(gguf)
        self._configuration = [llama_cpp.__version__, options.kv, options.flash, threads, gpu, _CHUNK, repacks]
        self._gguf = gguf
        kind = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}[options.kv]
        with repacking(llama_cpp, repacks):
            self._llama: Any = llama_cpp.Llama(
                str(gguf),
                n_ctx=max_tokens,
                n_batch=_CHUNK,
                n_ubatch=_CHUNK,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=-1 if gpu else 0,
                flash_attn=options.flash,
                type_k=kind,
                type_v=kind,
                verbose=False,
            )

    @property
    def vocabulary(self) -> int:
        """The number of tokens in the vocabulary."""
        return self._llama.n_vocab()

    @functools.cached_property
    def identity(self) -> list[object]:
        """Everything on which the state and the speed of this peer depend."""
        return [*self._configuration, hash_file(self._gguf)]

    def read(self, tokens: Sequence[int]) -> int:
        """Prefill ``tokens`` after earlier ones. Returns the likeliest next token. Raises Cancelled between batches."""
        for at in range(0, len(tokens), _CHUNK):
            if self._cancelled():
                raise Cancelled
            self._llama.eval(tokens[at : at + _CHUNK])
        return self._likeliest()

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """Compute ``tokens`` one by one. Returns the likeliest next token after each."""
        return [self._step(token) for token in tokens]

    def forward(self, tokens: Sequence[int], num_logits: int) -> np.ndarray:
        """Compute ``tokens``, at most 512, after earlier ones. Returns the logits of the last ``num_logits``, float32
        [num_logits, vocabulary].
        """
        count, start = len(tokens), self._llama.n_tokens
        batch = self._lib.llama_batch_init(count, 0, 1)
        try:
            batch.n_tokens = count
            for i, token in enumerate(tokens):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, start + i, 1, 0
                batch.logits[i] = i >= count - num_logits
            if self._lib.llama_decode(self._llama.ctx, batch):
                raise RuntimeError("llama.cpp does not read on")
            self._llama.n_tokens += count
            return np.stack([self._logits(i) for i in range(count - num_logits, count)])
        finally:
            self._lib.llama_batch_free(batch)

    def reset(self) -> None:
        """Clear the cache."""
        self._llama.reset()

    def save(self, path: Path, tokens: Sequence[int]) -> bool:
        """Write the cache, which holds exactly ``tokens``, to ``path``. Returns False on failure."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        return self._lib.llama_state_seq_save_file(self._llama.ctx, bytes(path), 0, ids, len(tokens)) > 0

    def load(self, path: Path, tokens: Sequence[int]) -> bool:
        """Clear the cache, and restore the cache of ``tokens`` that ``save`` wrote to ``path``. Returns False if the
        file does not hold the cache of exactly these tokens.
        """
        self.reset()
        ids, count = (ctypes.c_int32 * len(tokens))(), ctypes.c_size_t()
        arguments = self._llama.ctx, bytes(path), 0, ids, len(tokens), ctypes.byref(count)
        if not self._lib.llama_state_seq_load_file(*arguments) or list(ids[: count.value]) != list(tokens):
            return False
        self._llama.input_ids[: len(tokens)] = ids
        self._llama.n_tokens = len(tokens)
        return True

    @property
    def nbytes(self) -> int:
        """The size in bytes of the cache's keys and values, including a small header."""
        return self._lib.llama_state_seq_get_size(self._llama.ctx, 0)

    def close(self) -> None:
        """Free the model and its cache."""
        self._llama.close()

    def _step(self, token: int) -> int:
        self._llama.eval([token])
        return self._likeliest()

    def _likeliest(self) -> int:
        return int(self._logits(-1).argmax())

    def _logits(self, i: int) -> np.ndarray:
        """Returns a view of the logits of token ``i`` in the last batch. The next batch overwrites it."""
        return np.ctypeslib.as_array(self._lib.llama_get_logits_ith(self._llama.ctx, i), shape=(self.vocabulary,))
