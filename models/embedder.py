"""Embedders turn texts into unit vectors for semantic search.

A TransformerEmbedder is a BERT-like encoder with mean pooling over tokens, run by BertEncoder or transformers. A
LlamaEmbedder is a GGUF embedding model, run by llama.cpp. Importing this module loads no model.
"""

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from localctx.models.catalog import load_catalog
from localctx.models.files.gguf_file import GGUF_ON_HUB, find_gguf
from localctx.models.fingerprint import hash_file
from localctx.models.hub.convert import ProgressCallback
from localctx.models.hub.resolve import resolve_gguf, resolve_model
from localctx.models.llama_cpp.embeddings import LlamaEmbeddings, check_embeddings

if TYPE_CHECKING:
    import torch

    from localctx.models.llama_cpp.tokenizer import LlamaTokenizer

    Encode = Callable[[list[str]], tuple[torch.Tensor, torch.Tensor]]
    """Maps texts to the last hidden states [texts, n, width] and the mask [texts, n], which is 0 at padding."""
    IsCut = Callable[[str], bool]
    """True for a text of more tokens than are encoded."""

WINDOW = 256  # tokens; longer texts are truncated
_IDENTITY_FILES = ("*.safetensors", "config.json", "tokenizer*.json", "vocab.txt")


class Embedder(Protocol):
    """Turns texts into vectors. Only vectors of embedders with the same ``name`` can be compared."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the unit vectors of passages, float32 [n, d]. All texts are computed as one batch, so pass a few
        texts of similar length.
        """

    def embed_query(self, query: str) -> np.ndarray:
        """Returns the unit vector of a question, float32 [d], for comparison with passages."""

    def embed_and_count(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        """Returns the unit vectors of texts, float32 [n, d], and the total number of their tokens. The embedder's
        prefix for queries or passages is not added.
        """

    @property
    def longest(self) -> int:
        """The number of tokens of a text that the embedder reads. The rest of a longer text does not count."""

    def is_cut(self, text: str) -> bool:
        """Returns True for a text of more than ``longest`` tokens."""


def load_embedder(
    name: str, models_dir: Path, progress: ProgressCallback, tried: Path | None = None
) -> Embedder | None:
    """Returns the embedder ``name``, which is downloaded if needed; None for the name ``none``. ``name`` is resolved
    like the name of a model, by ``resolve_model`` or ``resolve_gguf``. ``tried`` is the folder that records which GGUF
    files loaded before (None: in ``models_dir``). Raises ModelError, and any exception from ``progress``.
    """
    if name == "none":
        return None
    if name not in load_catalog() and (find_gguf(name) or GGUF_ON_HUB.fullmatch(name)):
        return LlamaEmbedder(resolve_gguf(name, models_dir, progress), name, tried or models_dir / ".tried")
    folder = resolve_model(name, models_dir, progress, "embedder")
    known = next((entry for entry in load_catalog().values() if name in (entry.name, *entry.repositories)), None)
    return TransformerEmbedder(folder, name, *((known.query_prefix, known.passage_prefix) if known else ()))


class TransformerEmbedder:
    """An ``Embedder`` for the BERT-like encoder in ``folder``. The two prefixes are put before queries and passages, as
    in the encoder's training. The encoder is loaded at first use.
    """

    def __init__(self, folder: Path, name: str, query_prefix: str = "", passage_prefix: str = "") -> None:
        self._folder, self._model_name = folder, name
        self._query_prefix, self._passage_prefix = query_prefix, passage_prefix

    @cached_property
    def name(self) -> str:
        """The model's name, with a hash of everything that its vectors depend on."""
        files = sorted({f for pattern in _IDENTITY_FILES for f in self._folder.glob(pattern)})
        content = f"mean {WINDOW} " + " ".join([*map(hash_file, files), *filter(None, [self._passage_prefix])])
        return f"{Path(self._model_name).name} {hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns a unit vector for each of ``texts``, which are passages: float32 [n, d]. Raises ModelError if the
        folder has no encoder.
        """
        return self.embed_and_count([self._passage_prefix + text for text in texts])[0]

    def embed_query(self, query: str) -> np.ndarray:
        return self.embed_and_count([self._query_prefix + query])[0][0]

    def embed_and_count(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        import torch

        with torch.inference_mode():
            hidden, mask = self._encoding.encode(list(texts))
            mean = (hidden.float() * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
            return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy(), int(mask.sum())

    @property
    def longest(self) -> int:
        return self._encoding.longest

    def is_cut(self, text: str) -> bool:
        return self._encoding.is_cut(text)

    @cached_property
    def _encoding(self) -> "_Encoding":
        from localctx.models.choice.device_choice import pick_device, pick_dtype
        from localctx.models.decoder.transformers_model import loading
        from localctx.models.files.config_limits import check_config
        from localctx.models.files.safetensors_files import check_headers

        check_config(self._folder / "config.json")
        check_headers(self._folder)
        device = pick_device("auto")
        with loading(self._folder, device):
            place = device, pick_dtype("auto", device)
            return _bert_encoding(self._folder, *place) or _transformers_encoding(self._folder, *place)


class _Encoding(NamedTuple):
    """An encoder: ``encode`` reads at most ``longest`` tokens of each text."""

    encode: "Encode"
    is_cut: "IsCut"
    longest: int


def _bert_encoding(folder: Path, device: "torch.device", dtype: "torch.dtype") -> _Encoding | None:
    """Returns the encoding with BertEncoder; None if its results could differ from transformers'."""
    import torch

    from localctx.models.decoder.bert_encoder import BertEncoder, read_bert_sizes
    from localctx.models.files.safetensors_files import open_weights
    from localctx.models.tokenizer.tokenizer_files import find_encoder_tokenizer

    if (sizes := read_bert_sizes(folder)) is None or (weights := open_weights(folder)) is None:
        return None
    tokenizer = find_encoder_tokenizer(folder, min(WINDOW, sizes.max_position_embeddings))
    if tokenizer is None:
        return None
    encoder = BertEncoder(sizes, weights, device, dtype)

    def encode(texts: list[str]) -> "tuple[torch.Tensor, torch.Tensor]":
        batch = tokenizer.encode_batch(texts)
        mask = torch.tensor([encoded.attention_mask for encoded in batch], device=device)
        tokens = torch.tensor([encoded.ids for encoded in batch], device=device)
        return encoder(tokens, mask.bool()), mask

    longest = tokenizer.truncation["max_length"]
    return _Encoding(encode, lambda text: bool(tokenizer.encode(text).overflowing), longest)


def _transformers_encoding(folder: Path, device: "torch.device", dtype: "torch.dtype") -> _Encoding:
    """Returns the encoding with transformers."""
    from transformers import AutoModel, AutoTokenizer

    from localctx.models.decoder.transformers_model import LOCAL, load_whole, silence_transformers

    silence_transformers()
    module = load_whole(AutoModel, folder, unused="pooler.", dtype=dtype).to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    window = min(WINDOW, tokenizer.model_max_length, module.config.max_position_embeddings)
    options = {"padding": True, "truncation": True, "max_length": window, "return_tensors": "pt"}

    def encode(texts: list[str]) -> "tuple[torch.Tensor, torch.Tensor]":
        batch = tokenizer(texts, split_special_tokens=True, **options).to(device)
        return module(**batch).last_hidden_state, batch["attention_mask"]

    def is_cut(text: str) -> bool:
        return len(tokenizer(text, split_special_tokens=True, verbose=False)["input_ids"]) > window

    return _Encoding(encode, is_cut, window)


class LlamaEmbedder:
    """An ``Embedder`` for the GGUF file ``path``, run by llama.cpp. The vectors of tokens are pooled as the file says.
    The model is loaded at first use.

    Raises ModelError if the GGUF is not an embedding model, or if llama.cpp is not installed.
    """

    def __init__(self, path: Path, name: str, tried: Path) -> None:
        self._gguf, self._model_name = check_embeddings(path, tried), name
        self._lock = threading.Lock()

    @cached_property
    def name(self) -> str:
        """The model's name, with a hash of everything that its vectors depend on."""
        content = f"gguf {WINDOW} " + " ".join(self._gguf.hashes.values())
        return f"{Path(self._model_name).name} {hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return self.embed_and_count(texts)[0]

    def embed_query(self, query: str) -> np.ndarray:
        return self.embed([query])[0]

    def embed_and_count(self, texts: Sequence[str]) -> tuple[np.ndarray, int]:
        with self._lock:
            encoded = self._encoded(texts)
            return self._loaded[0].embed(encoded), sum(map(len, encoded))

    @property
    def longest(self) -> int:
        return min(WINDOW, self._loaded[0].window)

    def is_cut(self, text: str) -> bool:
        with self._lock:
            return len(self._loaded[1].encode_text(text)) > self.longest

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        window, encoded = self.longest, [self._loaded[1].encode_text(text) for text in texts]
        cut = [tokens if len(tokens) <= window else [*tokens[: window - 1], tokens[-1]] for tokens in encoded]
        return [tokens or [0] for tokens in cut]

    @cached_property
    def _loaded(self) -> tuple[LlamaEmbeddings, "LlamaTokenizer"]:
        import torch

        from localctx.models.llama_cpp.tokenizer import LlamaTokenizer

        model = LlamaEmbeddings(self._gguf.path, torch.get_num_threads())
        return model, LlamaTokenizer(model.pointer, model)
