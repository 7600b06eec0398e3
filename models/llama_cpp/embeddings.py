"""Embeddings by llama.cpp: a GGUF embedding model that pools a text's tokens to one vector.

``python -m localctx.models.llama_cpp.embeddings FILE.gguf`` tries a file in its own process.
"""

import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localctx.errors import ModelError
from localctx.models.files.gguf_file import GgufFile, open_gguf
from localctx.models.llama_cpp.library import llama_library
from localctx.models.llama_cpp.trial import record_trial, run_trial

TEXTS = 8  # per native batch
TOKENS = 2048  # per native batch; an encoder computes all tokens of a text at once


class LlamaEmbeddings:
    """The loaded GGUF embedding model at ``path``. ``window`` is the maximum number of tokens of a text. Use it from
    one thread at a time.

    Raises ModelError for a file that does not load.
    """

    def __init__(self, path: Path, threads: int) -> None:
        library = self._library = llama_library()
        options = library.llama_model_default_params()
        options.n_gpu_layers = 0
        self.pointer = library.llama_model_load_from_file(os.fsencode(path), options)
        self._context = library.llama_init_from_model(self.pointer, self._options(threads)) if self.pointer else None
        if not self._context:
            if self.pointer:
                library.llama_model_free(self.pointer)
            raise ModelError(f"llama.cpp cannot load {path}", "fetch the file again, or take another embedder")
        self._batch = library.llama_batch_init(TOKENS, 0, 1)
        self._free = weakref.finalize(self, _free, library, self._batch, self._context, self.pointer)
        self.window = min(TOKENS, library.llama_model_n_ctx_train(self.pointer))
        self._width: int = library.llama_model_n_embd(self.pointer)
        self._size: int = library.llama_vocab_n_tokens(library.llama_model_get_vocab(self.pointer))

    def embed(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        """Returns a unit vector for each tokenized text, float32 [n, width]."""
        vectors = [vector for batch in _batches(texts) for vector in self._embed(batch)]
        found = np.stack(vectors) if vectors else np.zeros((0, self._width), np.float32)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    def _embed(self, texts: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
        """Yields the vectors of at most TEXTS texts with at most TOKENS tokens in all. Raises ModelError."""
        library, i = self._library, 0
        for sequence, tokens in enumerate(texts):
            assert all(0 <= token < self._size for token in tokens), "a token is in the vocabulary"
            for position, token in enumerate(tokens):
                self._batch.token[i], self._batch.pos[i], self._batch.logits[i] = token, position, True
                self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, sequence
                i += 1
        self._batch.n_tokens = i
        if memory := library.llama_get_memory(self._context):  # the model is a decoder
            library.llama_memory_clear(memory, False)
        compute = library.llama_decode if memory else library.llama_encode
        if status := compute(self._context, self._batch):
            raise ModelError(f"llama.cpp could not embed this (status {status})", "take another --embedder, or none")
        for sequence in range(len(texts)):
            vector = library.llama_get_embeddings_seq(self._context, sequence)
            yield np.ctypeslib.as_array(vector, shape=(self._width,)).copy()

    def _options(self, threads: int) -> Any:
        library = self._library
        p = library.llama_context_default_params()
        p.n_ctx = p.n_batch = p.n_ubatch = TOKENS
        p.n_seq_max, p.kv_unified, p.embeddings = TEXTS, True, True
        p.n_threads = p.n_threads_batch = threads
        return p


def check_embeddings(path: Path, tried: Path) -> GgufFile:
    """Check that the GGUF at ``path`` is an embedding model. A file that was not tried before is loaded in a child
    process; ``tried`` is the folder with records of trials. Raises ModelError, OSError.
    """
    gguf, library = open_gguf(path), llama_library()
    pools = (library.LLAMA_POOLING_TYPE_MEAN, library.LLAMA_POOLING_TYPE_CLS, library.LLAMA_POOLING_TYPE_LAST)
    if gguf.header.get("pooling_type", library.LLAMA_POOLING_TYPE_NONE) not in pools:
        raise ModelError(
            f"{path.name} cannot make vectors: it does not say how tokens are pooled",
            "name an embedding model, or --embedder none",
        )
    trial = lambda: {"printed": run_trial(__name__, [str(gguf.path)], gguf).decode()}  # noqa: E731
    record_trial(gguf, "embeddings", tried, trial, lambda tried: tried)
    return gguf


def _batches(texts: Sequence[Sequence[int]]) -> Iterator[list[Sequence[int]]]:
    """Yields the texts of each native batch."""
    batch, tokens = list[Sequence[int]](), 0
    for text in texts:
        assert 0 < len(text) <= TOKENS, "a text is cut to the window, and has its bounds"
        if batch and (len(batch) == TEXTS or tokens + len(text) > TOKENS):
            yield batch
            batch, tokens = [], 0
        batch.append(text)
        tokens += len(text)
    if batch:
        yield batch


def _free(library: Any, batch: Any, context: Any, model: Any) -> None:
    library.llama_batch_free(batch)
    library.llama_free(context)
    library.llama_model_free(model)


if __name__ == "__main__":
    try:
        LlamaEmbeddings(Path(sys.argv[1]), 1).embed([[0]])
    except ModelError as e:
        sys.exit(e.problem)
