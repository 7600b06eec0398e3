"""LlamaContext: one native llama.cpp context with its sequences. It checks every limit before it calls native code,
because native code aborts the process on a violation.
"""

import ctypes
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from localctx.errors import Cancelled, ModelError
from localctx.models.llama_cpp.library import llama_library
from localctx.models.llama_cpp.options import MAX_OUTPUTS, ContextOptions

POLL = 0.02  # seconds between checks for cancellation during a batch
MIN_ABORTABLE = 32  # tokens; a smaller batch is too short to check for cancellation at every operation


class KVCacheFull(Exception):
    """Raised if the context has no room for the tokens of a batch."""


class StateRefused(ModelError):
    """Raised if llama.cpp fails to save or restore a state, because the state has another layout or there is no
    room.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"llama.cpp lost what it had read ({what})", "ask again")
        self.what = what


class Row(NamedTuple):
    """New ``tokens`` to compute for one sequence in a native batch. The first token has the given ``position``,
    ``sequence`` is llama.cpp's id of the sequence, and logits of the last ``num_logits`` tokens are returned.
    """

    sequence: int
    position: int
    tokens: Sequence[int]
    num_logits: int


class LlamaContext:
    """A native llama.cpp context of the model at the pointer ``model``. The context keeps ``owner``, the object that
    the pointer belongs to, alive. Use a context from one thread at a time.

    Raises ModelError if llama.cpp refuses the options.
    """

    def __init__(self, model: Any, owner: object, options: ContextOptions) -> None:
        self._library, self._owner, self.options = llama_library(), owner, options
        trained = self._library.llama_model_n_ctx_train(model)
        self._context = self._library.llama_init_from_model(model, options.native(trained))
        if not self._context:
            raise ModelError(
                f"llama.cpp cannot make a context of {options.cells:,} tokens with {options.kv} KV for this model",
                "try another --kv, less --context, or --engine torch",
            )
        self._free = weakref.finalize(self, self._library.llama_free, self._context)
        self._memory = self._library.llama_get_memory(self._context)
        self.vocabulary: int = self._library.llama_vocab_n_tokens(self._library.llama_model_get_vocab(model))
        self._batch = self._library.llama_batch_init(options.batch, 0, 1)
        self._free_batch = weakref.finalize(self, self._library.llama_batch_free, self._batch)
        self.cells: int = self._library.llama_n_ctx(self._context)
        self.can_shift: bool = self._library.llama_memory_can_shift(self._memory)

    def close(self) -> None:
        """Free the context's memory."""
        self._free_batch()
        self._free()

    @property
    def scratch(self) -> int:
        """The native sequence id that is reserved for temporary copies."""
        return self.options.sequences - 1

    def decode(self, rows: Sequence[Row], cancelled: Callable[[], bool] = lambda: False) -> list[Tensor]:
        """Compute ``rows`` in one native batch. Returns the logits [num_logits, vocabulary] of each row, float32.

        Raises KVCacheFull, with the memory unchanged; Cancelled, with some of the tokens in memory; ModelError for
        other failures.
        """
        count, wanted = sum(len(row.tokens) for row in rows), sum(row.num_logits for row in rows)
        assert 0 < count <= self.options.batch, "a native batch has a fixed size"
        assert wanted <= MAX_OUTPUTS, "a native batch has a fixed number of outputs"
        for row in rows:
            assert 0 <= row.sequence < self.scratch, "a context has a fixed number of sequences"
            assert all(0 <= token < self.vocabulary for token in row.tokens), "a token is in the vocabulary"
        outputs = self._fill(rows)
        self._watch(cancelled if count >= MIN_ABORTABLE else None)
        status = self._library.llama_decode(self._context, self._batch)
        if status == 1:
            raise KVCacheFull
        if status == 2:
            raise Cancelled
        if status:
            raise ModelError(f"llama.cpp could not compute this (status {status})", "try --engine torch")
        return [self._logits(indices) for indices in outputs]

    def positions(self, sequence: int) -> tuple[int, int]:
        """Returns the first and last position of a sequence in memory; -1 for an empty sequence."""
        library, memory = self._library, self._memory
        return library.llama_memory_seq_pos_min(memory, sequence), library.llama_memory_seq_pos_max(memory, sequence)

    def copy(self, source: int, target: int, start: int = -1, stop: int = -1) -> None:
        """Add the tokens at positions ``start..stop`` of the sequence ``source`` (-1: no limit) to the sequence
        ``target``. Keys and values are shared, not copied.
        """
        self._library.llama_memory_seq_cp(self._memory, source, target, start, stop)

    def remove(self, sequence: int, start: int = -1, stop: int = -1) -> bool:
        """Remove the tokens at positions ``start..stop`` of a sequence (-1: no limit). Returns False if that is
        impossible, as with recurrent states.
        """
        return self._library.llama_memory_seq_rm(self._memory, sequence, start, stop)

    def shift(self, sequence: int, start: int, by: int) -> None:
        """Add ``by`` to the positions of a sequence's tokens from position ``start`` on. The next batch re-rotates
        their keys. Other sequences that share these tokens would be corrupted.
        """
        assert self.can_shift, "llama.cpp aborts the process otherwise"
        self._library.llama_memory_seq_add(self._memory, sequence, start, -1, by)

    def state(self, sequence: int, partial: bool = False) -> np.ndarray:
        """Returns the state of a sequence as bytes: keys, values and recurrent states, without logits. With
        ``partial``, only the parts that cannot be trimmed: recurrent states and sliding windows. Raises StateRefused.
        """
        library, flags = self._library, self._flags(partial)
        size = library.llama_state_seq_get_size_ext(self._context, sequence, flags)
        data = np.empty(size, np.uint8)
        written = library.llama_state_seq_get_data_ext(self._context, _pointer(data), size, sequence, flags)
        if written != size:
            raise StateRefused(f"{written:,} of {size:,} bytes came")
        return data

    def set_state(self, sequence: int, data: np.ndarray, partial: bool = False) -> None:
        """Replace the state of a sequence by ``data``, which ``state`` returned with the same ``partial``. Raises
        StateRefused, and the sequence is then empty.
        """
        flags = self._flags(partial)
        read = self._library.llama_state_seq_set_data_ext(self._context, _pointer(data), len(data), sequence, flags)
        if read != len(data):
            self.remove(sequence)
            raise StateRefused(f"{read:,} of {len(data):,} bytes were read")

    def _flags(self, partial: bool) -> int:
        library = self._library
        return library.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY if partial else library.LLAMA_STATE_SEQ_FLAGS_NONE

    def _fill(self, rows: Sequence[Row]) -> list[list[int]]:
        """Write ``rows`` into the native batch. Returns the output indices of each row."""
        batch, outputs, i = self._batch, list[list[int]](), 0
        for row in rows:
            first = len(row.tokens) - row.num_logits
            outputs.append(list(range(i + first, i + len(row.tokens))))
            for j, token in enumerate(row.tokens):
                batch.token[i], batch.pos[i], batch.logits[i] = token, row.position + j, j >= first
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, row.sequence
                i += 1
        batch.n_tokens = i
        return outputs

    def _logits(self, indices: Sequence[int]) -> Tensor:
        rows = [self._library.llama_get_logits_ith(self._context, i) for i in indices]
        arrays = [np.ctypeslib.as_array(row, shape=(self.vocabulary,)) for row in rows]
        return torch.from_numpy(np.stack(arrays)) if arrays else torch.empty(0, self.vocabulary)

    def _watch(self, cancelled: Callable[[], bool] | None) -> None:
        """Make llama.cpp call ``cancelled`` between operations, at most once every POLL seconds. None stops these
        calls.
        """
        callback = self._library.ggml_abort_callback
        self._callback = callback(_polled(cancelled)) if cancelled else callback()
        self._library.llama_set_abort_callback(self._context, self._callback, None)


def _polled(cancelled: Callable[[], bool]) -> Callable[[Any], bool]:
    """Returns a callback that limits calls of ``cancelled``, because llama.cpp polls thousands of times per second."""
    due = time.monotonic() + POLL

    def ask(data: Any) -> bool:
        nonlocal due
        if (now := time.monotonic()) < due:
            return False
        due = now + POLL
        return cancelled()

    return ask


def _pointer(data: np.ndarray) -> Any:
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
