"""The memory that a GGUF and a context need in llama.cpp, and the longest context that fits, without loading the file
here.
"""

from dataclasses import asdict
from typing import Any

import torch

from localctx.budget import measure_device, measure_limits, measure_ram
from localctx.engine.llama_settings import refuse_for_gguf
from localctx.engine.planning.capacity import Capacity
from localctx.errors import UsageError
from localctx.models.files.gguf_file import GgufFile, open_gguf, per_layer
from localctx.models.hub.resolve import resolve_gguf
from localctx.models.llama_cpp.gpu_layers import ALL, gpu_layers
from localctx.models.llama_cpp.library import KV_TYPES, NATIVE_CODEC, kv_types
from localctx.models.llama_cpp.model import MIN_BATCH, llama_device
from localctx.models.llama_cpp.options import scaled_window
from localctx.models.llama_cpp.trial import LlamaSizes, try_gguf
from localctx.settings import Settings


def llama_capacity(settings: Settings, context: int | None = None, device_memory: int | None = None) -> Capacity:
    """Plan the memory of a GGUF and a ``context`` (None: the model's window); see ``capacity``.

    A file that was never loaded is probed in a child process, where llama.cpp reports the size of its contexts. Raises
    UserError.
    """
    refuse_for_gguf(settings)
    gguf = open_gguf(resolve_gguf(settings.model, settings.models, lambda phase, done, total: None))
    batch = max(MIN_BATCH, settings.chunk)
    sizes, device = try_gguf(gguf, batch, settings.home / "tried"), _device(settings.device, device_memory)
    window = scaled_window(sizes.trained, settings.rope)
    tokens, codec = context or window, NATIVE_CODEC if settings.kv == "auto" else settings.kv
    if tokens < 1:
        raise UsageError("the model's file tells no window", "say how long with --context")
    kv_types(codec)
    at = sizes.at(codec, tokens)
    free = measure_device(str(device)).free if device_memory is None else device_memory
    layers = ALL if device.type == "cpu" else gpu_layers(gguf, sizes, free)
    weights = gguf.nbytes if device.type == "cpu" else layers.weights
    limits = measure_limits(str(device), settings.home, weights + round(at.compute), free=free, **settings.caps)
    room = layers.context_limit(free - weights, measure_ram().free - gguf.nbytes + weights)
    room = room if settings.caps["memory"] is None else min(room, settings.caps["memory"])
    return Capacity(
        model=settings.model,
        family=gguf.family,
        weights_bytes=gguf.nbytes,
        adapter_bytes=0,
        activation_bytes=round(at.compute),
        kv=_kv(sizes, codec, tokens),
        fits={c: sizes.largest(c, room) for c in sizes.contexts},
        context=tokens,
        window=window,
        longer=[],
        codecs={c: _kv(sizes, c, tokens) for c in sizes.contexts},
        attention=_attention(gguf, sizes, codec),
        sliding=None,
        device=str(device),
        dtype="as quantized",
        weights="full",
        weights_dtype="the file's own types",
        chunk=batch,
        free_bytes=free,
        limits=vars(limits),
        unfit=None,
        engine="llama.cpp",
        gpu=None if device.type == "cpu" else asdict(layers),
    )


def _device(name: str, device_memory: int | None) -> torch.device:
    """Returns the device. If ``device_memory`` is given, the GPU need not be on this machine."""
    return torch.device("cuda") if device_memory is not None and name.startswith("cuda") else llama_device(name)


def _kv(sizes: LlamaSizes, codec: str, tokens: int) -> dict[str, Any]:
    """Returns the memory of keys, values and recurrent states as JSON."""
    at = sizes.at(codec, tokens)
    return {
        "codec": codec,
        "types": list(KV_TYPES[codec]),
        "bytes_per_token": sizes.bytes_per_token(codec),
        "later_bytes_per_token": sizes.bytes_per_token(codec),
        "bytes": round(at.kv + at.states),
        "state_bytes": round(at.states),
    }


def _attention(gguf: GgufFile, sizes: LlamaSizes, codec: str) -> dict[str, Any]:
    """Returns how the query heads of an attention layer share keys and values, as JSON."""
    layers = gguf.header.get("block_count", 1)
    heads = max(per_layer(gguf.header, "attention.head_count", layers))
    kv_heads = max(per_layer(gguf.header, "attention.head_count_kv", layers, heads)) or heads
    kinds = {heads: "multi-head", 1: "multi-query"}
    shared, own = sizes.bytes_per_token(codec), sizes.bytes_per_token(codec) * heads // kv_heads
    return {
        "kind": kinds.get(kv_heads, "grouped-query"),
        "heads": heads,
        "kv_heads": kv_heads,
        "multihead_bytes_per_token": own,
        "saves": round(own / max(1, shared), 1),
    }
