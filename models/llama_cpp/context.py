"""LlamaContext: one native context of llama.cpp, with its sequences. Every limit is checked before native code is
called, which aborts the process where one is violated.
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

POLL = 0.02  # seconds between two looks for a cancel during a batch
MIN_ABORTABLE = 32  # tokens of a batch that takes long enough to be worth a look for a cancel at every operation


class NoCells(Exception):
    """The context has no room for the tokens of a batch, or of a state."""


class StateRefused(ModelError):
    """llama.cpp does not give or take a state: it is of another layout, or there is no room for it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"llama.cpp lost what it had read ({what})", "ask again")
        self.what = what


class Row(NamedTuple):
    """New ``tokens`` of the sequence with id ``sequence``, from ``position`` on. The logits of the last ``num_logits``
    are wanted.
    """

    sequence: int
    position: int
    tokens: Sequence[int]
    num_logits: int


class LlamaContext:
    """A context of the model at the pointer ``model``; ``owner`` is kept alive with it. One thread at a time.

    Raises ModelError if llama.cpp refuses the options.
    """

    def __init__(self, model: Any, owner: object, options: ContextOptions) -> None:
        self._library, self._owner, self.options = llama_library(), owner, options
        trained = self._library.llama_model_n_ctx_train(model)
        self._context = self._library.llama_init_from_model(model, options.native(trained))
        if not self._context:
            raise ModelError(
                f"llama.cpp makes no context of {options.cells:,} tokens with {options.kv} KV for this model",
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
        """The sequence id that nothing stays in."""
        return self.options.sequences - 1

    def decode(self, rows: Sequence[Row], cancelled: Callable[[], bool] = lambda: False) -> list[Tensor]:
        """Compute ``rows`` in one native batch; returns for each its wanted logits [num_logits, vocabulary], float32.

        Raises NoCells with the memory as before; Cancelled with some of the tokens in it.
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
            raise NoCells
        if status == 2:
            raise Cancelled
        if status:
            raise ModelError(f"llama.cpp could not compute this (status {status})", "try --engine torch")
        return [self._logits(indices) for indices in outputs]

    def positions(self, sequence: int) -> tuple[int, int]:
        """Returns the first and the last position that the memory has of a sequence; -1 for an empty one."""
        library, memory = self._library, self._memory
        return library.llama_memory_seq_pos_min(memory, sequence), library.llama_memory_seq_pos_max(memory, sequence)

    def copy(self, source: int, target: int, start: int = -1, stop: int = -1) -> None:
        """Make tokens ``start..stop`` of ``source`` (-1: all) part of ``target``. No keys are copied."""
        self._library.llama_memory_seq_cp(self._memory, source, target, start, stop)

    def remove(self, sequence: int, start: int = -1, stop: int = -1) -> bool:
        """Remove tokens ``start..stop`` of a sequence (-1: all); False where the memory cannot do that."""
        return self._library.llama_memory_seq_rm(self._memory, sequence, start, stop)

    def shift(self, sequence: int, start: int, by: int) -> None:
        """Move the tokens of a sequence from position ``start`` on by so many positions, of which other sequences that
        have the same cells would not know. Their keys are rotated when the next batch begins.
        """
        assert self.can_shift, "llama.cpp aborts the process otherwise"
        self._library.llama_memory_seq_add(self._memory, sequence, start, -1, by)

    def state(self, sequence: int, partial: bool = False) -> np.ndarray:
        """Returns the state of a sequence as bytes: its keys and values, recurrent states, no logits. ``partial``: only
        what cannot be cut, which are recurrent states and sliding windows.
        """
        library, flags = self._library, self._flags(partial)
        size = library.llama_state_seq_get_size_ext(self._context, sequence, flags)
        data = np.empty(size, np.uint8)
        written = library.llama_state_seq_get_data_ext(self._context, _pointer(data), size, sequence, flags)
        if written != size:
            raise StateRefused(f"{written:,} of {size:,} bytes came")
        return data

    def set_state(self, sequence: int, data: np.ndarray, partial: bool = False) -> None:
        """Replace a sequence, or that part of it, by what ``state`` returned. Raises StateRefused, with the sequence
        empty.
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
        """Write ``rows`` into the native batch; returns for each row the indices of its outputs."""
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
        """Have llama.cpp ask ``cancelled`` between two operations, POLL seconds after it did last; None: never."""
        callback = self._library.ggml_abort_callback
        self._callback = callback(_polled(cancelled)) if cancelled else callback()
        self._library.llama_set_abort_callback(self._context, self._callback, None)


def _polled(cancelled: Callable[[], bool]) -> Callable[[Any], bool]:
    """``cancelled`` as llama.cpp calls it, thousands of times a second."""
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
