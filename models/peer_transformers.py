"""Peers: transformers' own caches, read with the same weights, to be measured beside ours.

``QuantizedCache`` (backends hqq and quanto, extra ``localctx[peers]``) keeps up to 128 tokens in full precision and
dequantizes, joins and quantizes anew all that came before whenever they are full. Its fp8 backend needs nothing.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localctx.models.base import Model
from localctx.models.transformers_model import hush, load_whole, loading

_MODULES = {"hqq": "hqq", "quanto": "optimum.quanto", "fp8": "torch"}


@dataclass(frozen=True)
class TransformersCachePeer:
    """A backend of ``QuantizedCache`` and its bits."""

    backend: str
    bits: int

    @property
    def name(self) -> str:
        """``transformers hqq 4 bit``."""
        return f"transformers {self.backend} {self.bits} bit"


PEERS = (
    TransformersCachePeer("fp8", 8),
    TransformersCachePeer("hqq", 8),
    TransformersCachePeer("hqq", 4),
    TransformersCachePeer("hqq", 2),
    TransformersCachePeer("quanto", 4),
    TransformersCachePeer("quanto", 2),
)


def installed_peers() -> list[TransformersCachePeer]:
    """The peers whose backend is installed."""
    return [p for p in PEERS if _there(_MODULES[p.backend])]


def load_stock(folder: Path, model: Model) -> Any:
    """The module in ``folder`` as transformers loads and runs it by itself, in the place and precision of ``model``.

    Raises ModelError.
    """
    from transformers import AutoModelForCausalLM

    hush()
    with loading(folder, model.device):
        module = load_whole(AutoModelForCausalLM, folder, dtype=model.dtype, attn_implementation="sdpa")
    return module.to(model.device).eval()


class PeerReader:
    """Reads tokens with a stock ``module`` into one ``QuantizedCache`` with the library's defaults (groups of 64, 128
    residual tokens), or without a ``peer`` into a ``DynamicCache``. Raises ValueError or ImportError from transformers
    for a model it cannot keep so (sliding windows, say).
    """

    def __init__(self, module: Any, peer: TransformersCachePeer | None = None) -> None:
        self._module, self.length = module, 0
        self._cache = _cache_of(module.config, peer)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], num_logits: int = 1) -> Tensor:
        """Read ``tokens``; logits of the last ``num_logits``, float32 [num_logits, vocabulary]."""
        ids = torch.tensor([tokens], device=self._module.device)
        out = self._module(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=num_logits)
        self.length += len(tokens)
        return out.logits[0].float()

    @property
    def nbytes(self) -> int:
        """Bytes the cache holds now: codes, scales, zeros, and the tokens in full precision."""
        kept = ("_quantized_keys", "_quantized_values", "keys", "values")
        return sum(_nbytes(getattr(layer, name, None)) for layer in self._cache.layers for name in kept)


def _cache_of(config: Any, peer: TransformersCachePeer | None) -> Any:
    from transformers import DynamicCache, QuantizedCache

    if peer is None:
        return DynamicCache(config=config)
    how = {} if peer.backend == "fp8" else {"nbits": peer.bits}
    if peer.backend == "hqq":
        how |= {"axis_key": 1, "axis_value": 1}  # as transformers recommends for hqq; quanto 0, the default
    return QuantizedCache(peer.backend, config, **how)


def _nbytes(value: Any) -> int:
    """Bytes of all tensors in ``value``; a tensor made of others (quanto's) counts as those."""
    if isinstance(value, dict):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(_nbytes, value))
    if not isinstance(value, Tensor):
        return 0
    if hasattr(value, "__tensor_flatten__") and type(value) is not Tensor:
        return sum(_nbytes(getattr(value, name)) for name in value.__tensor_flatten__()[0])
    return value.nbytes


@functools.cache
def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
