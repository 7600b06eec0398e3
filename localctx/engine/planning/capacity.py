"""Capacity: the memory that a model and a context need here, and the longest context that fits, without loading the
model.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from localctx.budget import TierLimits, measure_device, measure_limits
from localctx.engine.planning.cache_plan import choose_codec
from localctx.errors import UsageError
from localctx.models.adapter_folders import adapter_bytes, find_adapter
from localctx.models.catalog import ContextWindow, load_catalog
from localctx.models.choice.default_model import choose_model
from localctx.models.choice.device_choice import pick_device, pick_dtype
from localctx.models.choice.sizing import Sizing, find_config, sizing_of
from localctx.models.decoder.rope import parse_rope
from localctx.models.quantized.weight_formats import precision_name, refuse_weights
from localctx.settings import Settings
from localctx.shape import FORMATS, FULL, PAGE, KVShape


@dataclass(frozen=True)
class Capacity:
    """The memory plan of a model, as ``localctx plan --json`` prints it. Sizes are in bytes, contexts in tokens.

    ``kv`` describes the cache of ``context`` tokens in the chosen codec, ``codecs`` the same for every codec, and
    ``fits`` the longest context that fits in each. ``window`` is the model's, None if its config has none; ``longer``
    are tested windows beyond it. ``adapter_bytes`` is the size of the adapter that answers (0: none). ``limits`` are
    the bytes KV may take in each tier now. ``unfit`` says why this version cannot run the model, None if it can.
    ``gpu``: for a GGUF on a GPU, the ``GpuLayers`` that fit there, as JSON.
    """

    model: str
    family: str
    weights_bytes: int
    adapter_bytes: int
    activation_bytes: int
    kv: dict[str, Any]
    fits: dict[str, int]
    context: int
    window: int | None
    longer: list[dict[str, Any]]
    codecs: dict[str, dict[str, Any]]
    attention: dict[str, Any]
    sliding: dict[str, Any] | None
    device: str
    dtype: str
    weights: str
    weights_dtype: str
    chunk: int
    free_bytes: int
    limits: dict[str, int | None]
    unfit: str | None
    engine: str = "torch"
    gpu: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the plan as JSON."""
        return asdict(self)


def capacity(
    settings: Settings,
    config: Path | None = None,
    context: int | None = None,
    device_memory: int | None = None,
    passed: Callable[[str], bool | None] = lambda codec: None,
) -> Capacity:
    """Plan the memory of a model and a ``context`` (None: the model's window).

    The model is ``settings.model``, or the one the file ``config`` describes. ``device_memory`` replaces the measured
    free memory. ``passed`` says which codecs passed the quality gate. Raises UserError.
    """
    settings = _with_weights(settings, config)
    device = _device(settings.device, device_memory)
    dtype = pick_dtype(settings.dtype, device)
    refuse_weights(settings.weights, device, dtype)
    model = sizing_of(config or find_config(settings.model, settings.models), dtype, settings.weights, device)
    window = _scaled_window(model.window, settings.rope)
    tokens = context or window
    if tokens < 1:
        raise UsageError("the model's config tells no window", "say how long with --context")
    free = measure_device(str(device)).free if device_memory is None else device_memory
    folder = find_adapter(settings.adapter, "" if config else settings.model)
    adapter = adapter_bytes(folder) if folder else 0
    codec, chunk = choose_codec(model.shape, passed) if settings.kv == "auto" else settings.kv, settings.chunk

    def limits(tokens: int) -> TierLimits:
        reserve = model.weights + adapter + _activations(model, chunk, tokens, device)
        return measure_limits(str(device), settings.home, reserve, free=free, **settings.caps)

    return Capacity(
        model=str(config or settings.model),
        family=model.family,
        weights_bytes=model.weights,
        adapter_bytes=adapter,
        activation_bytes=_activations(model, chunk, tokens, device),
        kv=_kv(model, codec, tokens, chunk),
        fits={
            c: largest_context(model.shape, c, lambda n: limits(n).device or 0, model.itemsize, chunk) for c in FORMATS
        },
        context=tokens,
        window=window or None,
        longer=[vars(w) for w in _longer(settings, config)],
        codecs={c: _kv(model, c, tokens, chunk) for c in FORMATS},
        attention=_attention(model, codec),
        sliding=_sliding(model, codec, tokens),
        device=str(device),
        dtype=str(dtype).removeprefix("torch."),
        weights=settings.weights,
        weights_dtype=precision_name(model.weights_dtype),
        chunk=chunk,
        free_bytes=free,
        limits=vars(limits(tokens)),
        unfit=model.unfit,
    )


def _with_weights(settings: Settings, config: Path | None) -> Settings:
    """Returns settings that name the weights: ``full`` for a model given by its ``config``."""
    if config and settings.weights == "auto":
        return replace(settings, weights="full")
    return choose_model(settings)


def largest_context(
    shape: KVShape, codec: str, free_bytes: Callable[[int], int], itemsize: int = 4, chunk: int = 0
) -> int:
    """Returns the most tokens, in whole pages, whose cache in ``codec`` takes at most ``free_bytes(tokens)`` bytes.

    The model computes in ``itemsize`` bytes and prefills ``chunk`` tokens at a time.
    """

    def too_many(pages: int) -> bool:
        return shape.cache_bytes(codec, pages * PAGE, itemsize, chunk) > free_bytes(pages * PAGE)

    top = 1
    while not too_many(top):
        top *= 2
    return PAGE * max(0, bisect_left(range(top), True, key=too_many) - 1)


def _scaled_window(window: int, rope: str) -> int:
    """Returns the window in tokens under the RoPE scaling of the settings."""
    scaling = parse_rope(rope)
    return int(window * scaling[1]) if scaling else window


def _longer(settings: Settings, config: Path | None) -> tuple[ContextWindow, ...]:
    """Returns the tested windows beyond the trained one, used when a document needs them."""
    entry = None if config or settings.rope != "auto" else load_catalog().get(settings.model)
    return entry.longer if entry else ()


def _device(name: str, device_memory: int | None) -> torch.device:
    """Returns the device. If ``device_memory`` is given, the GPU need not be on this machine."""
    if device_memory is not None and name in ("cuda", "cuda:0"):
        return torch.device(name)
    return pick_device(name)


def _activations(model: Sizing, chunk: int, tokens: int, device: torch.device) -> int:
    return model.geometry.activation_bytes(min(chunk, tokens), tokens, model.itemsize, device.type)


def _kv(model: Sizing, codec: str, tokens: int, chunk: int) -> dict[str, Any]:
    """Returns the memory of keys, values and states as JSON. ``state_bytes`` is the size of one snapshot of the states,
    taken every ``snapshot_step`` tokens. ``later_bytes_per_token`` is the size of a token that sliding layers no longer
    see.
    """
    shape, itemsize = model.shape, model.itemsize
    kv = {
        "codec": codec,
        "bytes_per_token": shape.bytes_per_token(codec),
        "later_bytes_per_token": -(-shape.part_bytes(codec, FULL) // PAGE),
        "bytes": shape.cache_bytes(codec, tokens, itemsize, chunk),
    }
    if not shape.states:
        return kv
    step = shape.snapshot_step(codec, itemsize)
    return kv | {"state_bytes": shape.state_bytes(itemsize), "snapshot_step": step}


def _attention(model: Sizing, codec: str) -> dict[str, Any]:
    """Returns how query heads share keys and values, as JSON, with the bytes of a token if each head had its own."""
    layer, unshared = model.shape.layers[0], model.multihead.layers[0]
    kinds = {unshared.kv_heads: "multi-head", 1: "multi-query"}
    kind = "latent" if layer.kind == "latent" else kinds.get(layer.kv_heads, "grouped-query")
    unshared_bytes = model.multihead.bytes_per_token(codec)
    return {
        "kind": kind,
        "heads": unshared.kv_heads,
        "kv_heads": layer.kv_heads,
        "multihead_bytes_per_token": unshared_bytes,
        "saves": round(unshared_bytes / model.shape.bytes_per_token(codec), 1),
    }


def _sliding(model: Sizing, codec: str, tokens: int) -> dict[str, Any] | None:
    """Returns the memory saved by sliding layers as JSON, None for models without them. ``uncut_bytes`` is the size of
    a cache with every page of every layer. Windows are stored every ``window_step`` tokens.
    """
    shape = model.shape
    if not shape.window:
        return None
    layers = [layer for layer in shape.layers if layer.window]
    uncut = KVShape(tuple(replace(layer, window=None) for layer in shape.layers), shape.states)
    return {
        "layers": len(layers),
        "of": len(shape.layers),
        "window": shape.window,
        "uncut_bytes": uncut.cache_bytes(codec, tokens, model.itemsize),
        "window_step": shape.window_step(codec),
    }
