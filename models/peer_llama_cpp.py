"""llama.cpp, through llama-cpp-python, as a peer: tokens in, likeliest tokens out, to be measured beside ours."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from localctx.errors import Cancelled
from localctx.models.fingerprint import hash_file

_CHUNK = 512  # tokens in a batch, llama.cpp's own default


@dataclass(frozen=True)
class LlamaCppOptions:
    """How llama.cpp keeps and reads its KV: ``f16`` or ``q8_0``, with flash attention or without."""

    kv: str
    flash: bool

    @property
    def name(self) -> str:
        """``llama.cpp flash``."""
        return "llama.cpp flash" if self.flash else "llama.cpp"


LLAMA_CPP_VARIANTS = (LlamaCppOptions("f16", True), LlamaCppOptions("f16", False), LlamaCppOptions("q8_0", True))
"""It reads quantized values with flash attention only."""


def llama_cpp_is_installed() -> bool:
    """Whether llama-cpp-python is installed."""
    return find_spec("llama_cpp") is not None


class LlamaCppPeer:
    """One context of the model in the file ``gguf``, with room for ``room`` tokens. Close it.

    ``gpu``: all of it is on the GPU, where llama.cpp was built for one. Raises ValueError for a file it cannot load.
    """

    def __init__(
        self,
        gguf: Path,
        way: LlamaCppOptions,
        room: int,
        threads: int,
        gpu: bool = False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        import llama_cpp

        _silenced()
        self.name, self.kv, self.reads = way.name, way.kv, True
        self._lib, self._cancelled = llama_cpp, cancelled
        self._said = [llama_cpp.__version__, way.kv, way.flash, threads, gpu, _CHUNK]
        self._gguf = gguf
        kind = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}[way.kv]
        self._llama: Any = llama_cpp.Llama(
            str(gguf),
            n_ctx=room,
            n_batch=_CHUNK,
            n_ubatch=_CHUNK,
            n_threads=threads,
            n_threads_batch=threads,
            n_gpu_layers=-1 if gpu else 0,
            flash_attn=way.flash,
            type_k=kind,
            type_v=kind,
            verbose=False,
        )

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return self._llama.n_vocab()

    @functools.cached_property
    def identity(self) -> list[object]:
        """What decides what it makes of a text, and how fast."""
        return [*self._said, hash_file(self._gguf)]

    def read(self, tokens: Sequence[int]) -> int:
        """Read ``tokens`` after what was read; the likeliest successor. Raises Cancelled between two batches."""
        for at in range(0, len(tokens), _CHUNK):
            if self._cancelled():
                raise Cancelled
            self._llama.eval(tokens[at : at + _CHUNK])
        return self._likeliest()

    def decode(self, tokens: Sequence[int]) -> list[int]:
        """Read ``tokens`` one by one; the likeliest successor of each."""
        return [self._step(token) for token in tokens]

    def reset(self) -> None:
        """Start anew."""
        self._llama.reset()

    def save(self, path: Path, tokens: Sequence[int]) -> bool:
        """Write what it made of the ``tokens``, all that was read, to ``path``; whether it could."""
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        return self._lib.llama_state_seq_save_file(self._llama.ctx, bytes(path), 0, ids, len(tokens)) > 0

    def load(self, path: Path, tokens: Sequence[int]) -> bool:
        """Be as after reading ``tokens``, from ``path``; whether that is what is there. If not, nothing was read."""
        self.reset()
        ids, count = (ctypes.c_int32 * len(tokens))(), ctypes.c_size_t()
        place = self._llama.ctx, bytes(path), 0, ids, len(tokens), ctypes.byref(count)
        if not self._lib.llama_state_seq_load_file(*place) or list(ids[: count.value]) != list(tokens):
            return False
        self._llama.input_ids[: len(tokens)] = ids
        self._llama.n_tokens = len(tokens)
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the keys and values of what was read, and a few that tell where they are."""
        return self._lib.llama_state_seq_get_size(self._llama.ctx, 0)

    def close(self) -> None:
        """Give everything back."""
        self._llama.close()

    def _step(self, token: int) -> int:
        self._llama.eval([token])
        return self._likeliest()

    def _likeliest(self) -> int:
        logits = self._lib.llama_get_logits_ith(self._llama.ctx, -1)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())


@functools.cache  # the library keeps no reference to it
def _silenced() -> Any:
    """Warnings of what we know (a context past the trained one) would come between our lines."""
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    return quiet
