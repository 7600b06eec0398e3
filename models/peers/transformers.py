"""The KV caches of transformers, with the same weights as localctx, as peers in benchmarks.

``QuantizedCache`` (backends hqq and quanto, extra ``localctx[peers]``) keeps up to 128 tokens in full precision. When
that buffer is full, it dequantizes all older tokens, appends the buffer and quantizes everything again. The fp8 backend
needs no extra.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from localctx.models.base import PagedModel
from localctx.models.decoder.transformers_model import load_whole, loading, silence_transformers

_MODULES = {"hqq": "hqq", "quanto": "optimum.quanto", "fp8": "torch"}


@dataclass(frozen=True)
class TransformersCachePeer:
    """A ``QuantizedCache`` of transformers as a peer: its backend and its number of bits."""

    backend: str
    bits: int

    @property
    def name(self) -> str:
        """The name in reports, such as ``transformers hqq 4 bit``."""
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
    """Returns the peers whose backend is installed."""
    return [p for p in PEERS if _is_installed(_MODULES[p.backend])]


def load_stock(folder: Path, model: PagedModel) -> Any:
    """Load the model in ``folder`` with unmodified transformers, on the device and in the precision of ``model``.
    Returns transformers' module.

    Raises ModelError.
    """
    from transformers import AutoModelForCausalLM

    silence_transformers()
    with loading(folder, model.device):
        module = load_whole(AutoModelForCausalLM, folder, dtype=model.dtype, attn_implementation="sdpa")
    return module.to(model.device).eval()


class PeerReader:
    """Runs ``module``, a model loaded by unmodified transformers, with ``peer``'s ``QuantizedCache`` and the library's
    defaults (groups of 64, 128 residual tokens). If ``peer`` is None, it uses a ``DynamicCache``. Raises ValueError or
    ImportError from transformers for a model that the cache does not support, for example with sliding windows.
    """

    def __init__(self, module: Any, peer: TransformersCachePeer | None = None) -> None:
        self._module, self.length = module, 0
        self._cache = _cache_of(module.config, peer)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], num_logits: int = 1) -> Tensor:
        """Compute ``tokens`` after earlier ones. Returns the logits of the last ``num_logits`` tokens, float32
        [num_logits, vocabulary].
        """
        ids = torch.tensor([tokens], device=self._module.device)
        out = self._module(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=num_logits)
        self.length += len(tokens)
        return out.logits[0].float()

    @property
    def nbytes(self) -> int:
        """The size of the cache in bytes: codes, scales, zero points and tokens in full precision."""
        names = ("_quantized_keys", "_quantized_values", "keys", "values")
        return sum(_nbytes(getattr(layer, name, None)) for layer in self._cache.layers for name in names)


def _cache_of(config: Any, peer: TransformersCachePeer | None) -> Any:
    from transformers import DynamicCache, QuantizedCache

    if peer is None:
        return DynamicCache(config=config)
    options = {} if peer.backend == "fp8" else {"nbits": peer.bits}
    if peer.backend == "hqq":
        options |= {"axis_key": 1, "axis_value": 1}  # recommended by transformers for hqq; quanto uses the default, 0
    return QuantizedCache(peer.backend, config, **options)


def _nbytes(value: Any) -> int:
    """Returns the bytes of all tensors in ``value``. A tensor subclass (quanto's) counts as its inner tensors."""
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
def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
