"""Embedders turn texts into unit vectors for semantic search.

The one here is an encoder of the BERT family in transformers, with mean pooling over tokens. Importing this module
loads no model.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from localctx.models.convert import ProgressCallback
from localctx.models.fingerprint import hash_file
from localctx.models.resolve import resolve_model

WINDOW = 256  # tokens; a longer text is cut
_IDENTITY_FILES = ("*.safetensors", "config.json", "tokenizer*.json", "vocab.txt")


class Embedder(Protocol):
    """Makes vectors. Only vectors of embedders with the same ``name`` can be compared."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Returns a unit vector for each text, float32 [n, d]. It is one batch: pass a few texts of similar length."""


def load_embedder(name: str, models_dir: Path, progress: ProgressCallback) -> Embedder | None:
    """Returns the embedder called ``name``, as ``resolve_model`` resolves names, and downloads it if needed; None for
    ``none``. Raises ModelError, and whatever ``progress`` raises.
    """
    return None if name == "none" else TransformerEmbedder(resolve_model(name, models_dir, progress, "embedder"), name)


class TransformerEmbedder:
    """See ``Embedder``. The model in ``folder`` is loaded at first use."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._model_name = folder, name

    @cached_property
    def name(self) -> str:
        """The model's name and a hash of everything its vectors depend on."""
        files = sorted({f for pattern in _IDENTITY_FILES for f in self._folder.glob(pattern)})
        content = f"mean {WINDOW} " + " ".join(hash_file(f) for f in files)
        return f"{Path(self._model_name).name} {hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See ``Embedder``. Raises ModelError where the folder does not hold an encoder."""
        import torch

        tokenizer, module = self._loaded
        window = min(WINDOW, tokenizer.model_max_length, module.config.max_position_embeddings)
        options = {"padding": True, "truncation": True, "max_length": window, "return_tensors": "pt"}
        with torch.inference_mode():
            batch = tokenizer(list(texts), split_special_tokens=True, **options).to(module.device)
            hidden = module(**batch).last_hidden_state.float()
            mask = batch["attention_mask"][:, :, None]
            mean = (hidden * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        from localctx.models.device_choice import pick_device, pick_dtype
        from localctx.models.transformers_model import LOCAL, load_whole, loading, silence_transformers

        silence_transformers()
        device = pick_device("auto")
        with loading(self._folder, device):
            module = load_whole(AutoModel, self._folder, unused="pooler.", dtype=pick_dtype("auto", device))
            return AutoTokenizer.from_pretrained(self._folder, **LOCAL), module.to(device).eval()
