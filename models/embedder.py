"""Embedders: texts to unit vectors, near each other where the texts mean much the same.

An encoder of the BERT family through transformers, averaged over its tokens. Importing this loads no model.
"""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from localctx.models.convert import Progress
from localctx.models.fingerprint import hash_file
from localctx.models.resolve import resolve_model

WINDOW = 256  # tokens; of a longer text only these are seen
_DECIDES = ("*.safetensors", "config.json", "tokenizer*.json", "vocab.txt")


class Embedder(Protocol):
    """Makes vectors. Those of embedders with the same ``name`` can be compared, and no others."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A unit vector a text, float32 [n, d]. All are computed at once: give a few, of like length."""


def load_embedder(name: str, models_dir: Path, progress: Progress) -> Embedder | None:
    """The embedder called ``name`` as ``resolve_model`` knows names; None for ``none``. It is fetched if need be.

    Raises ModelError, and whatever ``progress`` raises.
    """
    return None if name == "none" else TransformerEmbedder(resolve_model(name, models_dir, progress, "embedder"), name)


class TransformerEmbedder:
    """See ``Embedder``. The model in ``folder`` is loaded when first asked."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._called = folder, name

    @cached_property
    def name(self) -> str:
        """What it is called, and a hash of all that decides its vectors."""
        files = sorted({f for kind in _DECIDES for f in self._folder.glob(kind)})
        content = f"mean {WINDOW} " + " ".join(hash_file(f) for f in files)
        return f"{Path(self._called).name} {hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See ``Embedder``. Raises ModelError where the folder holds no such encoder."""
        import torch

        tokenizer, module = self._loaded
        window = min(WINDOW, tokenizer.model_max_length, module.config.max_position_embeddings)
        how = {"padding": True, "truncation": True, "max_length": window, "return_tensors": "pt"}
        with torch.inference_mode():
            batch = tokenizer(list(texts), split_special_tokens=True, **how).to(module.device)
            hidden = module(**batch).last_hidden_state.float()
            seen = batch["attention_mask"][:, :, None]
            mean = (hidden * seen).sum(1) / seen.sum(1)
            return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from transformers import AutoModel, AutoTokenizer

        from localctx.models.device_choice import pick_device, pick_dtype
        from localctx.models.transformers_model import HERE, hush, load_whole, loading

        hush()
        place = pick_device("auto")
        with loading(self._folder, place):
            module = load_whole(AutoModel, self._folder, unused="pooler.", dtype=pick_dtype("auto", place))
            return AutoTokenizer.from_pretrained(self._folder, **HERE), module.to(place).eval()
