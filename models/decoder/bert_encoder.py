"""BertEncoder: ``bert`` encoders (Devlin et al., 2018) in plain torch. Importing transformers would take longer than a
whole search.

Operations and their order are those of transformers, so that vectors stay the same. A config with an unknown key is
left to transformers, because the key may change the computation.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from localctx.models.files.safetensors_files import get_tensor

Rows = Callable[[Tensor], Tensor]  # from [..., a] to [..., b]

_SIZES = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}
"""The sizes in a config, with transformers' defaults."""

_MUST_BE = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "chunk_size_feed_forward": 0,
}
_IDLE = {
    *("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "initializer_range"),
    *("attention_probs_dropout_prob", "hidden_dropout_prob", "classifier_dropout", "gradient_checkpointing"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "use_cache", "tie_word_embeddings", "model_max_length"),
    *("id2label", "label2id", "num_labels", "output_past", "directionality", "layer_norm_eps"),
    *("pooler_type", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head"),
    "tokenizer_class",
}
"""Keys that do not change the computation, or are read separately."""


@dataclass(frozen=True)
class BertSizes:
    """The config values that the computation depends on, with transformers' names and meanings."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float


def read_bert_sizes(folder: Path) -> BertSizes | None:
    """Read config.json in ``folder``. Returns None for a model that BertEncoder may not compute correctly."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or raw.get("model_type") != "bert" or not _understood(raw):
        return None
    return BertSizes(**_sizes(raw), layer_norm_eps=raw.get("layer_norm_eps", 1e-12))


def _sizes(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: raw.get(name, default) for name, default in _SIZES.items()}


def _understood(raw: dict[str, Any]) -> bool:
    sizes = _sizes(raw)
    return (
        raw.keys() <= {*_SIZES, *_MUST_BE, *_IDLE}
        and all(raw.get(key, value) == value for key, value in _MUST_BE.items())
        and all(type(size) is int and size > 0 for size in sizes.values())
        and sizes["hidden_size"] % sizes["num_attention_heads"] == 0
        and isinstance(raw.get("layer_norm_eps", 1e-12), float)
    )


class BertEncoder:
    """An encoder without a pooler, with ``weights`` on ``device`` in the precision ``dtype``.

    Raises ValueError if a tensor is missing or does not match ``sizes``.
    """

    def __init__(
        self, sizes: BertSizes, weights: Mapping[str, Tensor], device: torch.device, dtype: torch.dtype
    ) -> None:
        self.sizes, self._weights, self._device, self._dtype = sizes, weights, device, dtype
        self._prefix = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""
        width = sizes.hidden_size
        self._words = self._tensor("embeddings.word_embeddings.weight", sizes.vocab_size, width)
        self._positions = self._tensor("embeddings.position_embeddings.weight", sizes.max_position_embeddings, width)
        self._types = self._tensor("embeddings.token_type_embeddings.weight", sizes.type_vocab_size, width)
        self._normalize = self._norm("embeddings.LayerNorm")
        self._layers = [self._layer(f"encoder.layer.{i}") for i in range(sizes.num_hidden_layers)]

    def __call__(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Returns the last hidden states [texts, n, hidden size] of ``tokens`` [texts, n], all of token type 0.
        ``mask`` [texts, n] is True at tokens and False at padding, whose states are meaningless.
        """
        x = self._normalize(self._words[tokens] + self._types[0] + self._positions[: tokens.shape[1]])
        seen = None if bool(mask.all()) else mask[:, None, None, :]
        for layer in self._layers:
            x = layer(x, seen)
        return x

    def _layer(self, name: str) -> Callable[[Tensor, Tensor | None], Tensor]:
        """Returns a layer: self-attention and feed-forward, each followed by its residual connection and norm."""
        width, inner, heads = self.sizes.hidden_size, self.sizes.intermediate_size, self.sizes.num_attention_heads
        to_qkv = [self._linear(f"{name}.attention.self.{part}", width, width) for part in ("query", "key", "value")]
        leave = self._linear(f"{name}.attention.output.dense", width, width)
        attended_norm = self._norm(f"{name}.attention.output.LayerNorm")
        up = self._linear(f"{name}.intermediate.dense", inner, width)
        down, norm = self._linear(f"{name}.output.dense", width, inner), self._norm(f"{name}.output.LayerNorm")

        def layer(x: Tensor, seen: Tensor | None) -> Tensor:
            q, k, v = (project(x).unflatten(-1, (heads, -1)).transpose(1, 2) for project in to_qkv)
            attended = scaled_dot_product_attention(q, k, v, attn_mask=seen)
            x = attended_norm(leave(attended.transpose(1, 2).flatten(2)) + x)
            return norm(down(gelu(up(x))) + x)

        return layer

    def _linear(self, name: str, out: int, into: int) -> Rows:
        weight, bias = self._tensor(f"{name}.weight", out, into), self._tensor(f"{name}.bias", out)
        return lambda x: linear(x, weight, bias)

    def _norm(self, name: str) -> Rows:
        width = self.sizes.hidden_size
        weight, bias = self._tensor(f"{name}.weight", width), self._tensor(f"{name}.bias", width)
        return lambda x: layer_norm(x, (width,), weight, bias, self.sizes.layer_norm_eps)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        return get_tensor(self._weights, self._prefix + name, *shape).to(self._device, self._dtype)
