"""Computes the memory that a model and its contexts need from the model's files alone, for either engine."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from localctx.budget import TierLimits, measure_device, measure_limits, measure_ram
from localctx.engine.planning.cache_plan import choose_codec
from localctx.engine.planning.plan import refuse_for_gguf
from localctx.models.adapter_folders import adapter_bytes, find_adapter
from localctx.models.catalog import ContextWindow, load_catalog
from localctx.models.choice.device_choice import pick_device, pick_dtype
from localctx.models.choice.sizing import find_config, sizing_of
from localctx.models.files.gguf_file import open_gguf, per_layer
from localctx.models.hub.resolve import resolve_gguf
from localctx.models.llama_cpp.gpu_layers import ALL, gpu_layers
from localctx.models.llama_cpp.library import KV_TYPES, NATIVE_CODEC, kv_types
from localctx.models.llama_cpp.model import MIN_BATCH, llama_device
from localctx.models.llama_cpp.options import scaled_window
from localctx.models.llama_cpp.trial import try_gguf
from localctx.models.memory_fit import MemoryFit, MemoryNeed, largest_context
from localctx.models.quantized.weight_formats import precision_name, refuse_weights
from localctx.settings import Settings, parse_rope
from localctx.shape import FORMATS, FULL, PAGE, KVShape


class ModelSizes:
    """The sizes of a model that a memory plan needs, under ``settings`` on ``device``. ``free`` is the number of free
    bytes on the device.

    ``window`` is in tokens (0: unknown), ``weights`` and ``adapter`` in bytes. ``codecs`` are the codecs that are
    possible for KV. The other attributes are the fields of ``Capacity`` with the same names.
    """

    family: str
    window: int
    weights: int
    weights_dtype: str
    dtype: str
    chunk: int
    codecs: Sequence[str]
    adapter = 0
    longer: Sequence[ContextWindow] = ()
    unfit: str | None = None
    gpu: dict[str, Any] | None = None

    def __init__(self, settings: Settings, device: torch.device, device_memory: int | None) -> None:
        self.settings, self.device = settings, device
        self.free = measure_device(str(device)).free if device_memory is None else device_memory

    def limits(self, need: MemoryNeed) -> TierLimits:
        """Returns the number of bytes that KV may take in each tier, when the weights and the working memory of
        ``need`` are in memory as well.
        """
        reserve = round(need.weights + need.working)
        return measure_limits(str(self.device), self.settings.home, reserve, free=self.free, **self.settings.caps)


class TorchSizes(ModelSizes):
    """The sizes of a model that torch runs: ``settings.model``, or the model that the file ``config`` describes.
    ``device_memory`` replaces the measured free memory, in bytes. Raises UserError.
    """

    engine = "torch"
    codecs = tuple(FORMATS)

    def __init__(self, settings: Settings, config: Path | None, device_memory: int | None) -> None:
        elsewhere = device_memory is not None and settings.device in ("cuda", "cuda:0")  # a GPU that need not be here
        device = torch.device(settings.device) if elsewhere else pick_device(settings.device)
        dtype = pick_dtype(settings.dtype, device)
        refuse_weights(settings.weights, device, dtype)
        file = config or find_config(settings.model, settings.models)
        self._sizing = sizing = sizing_of(file, dtype, settings.weights, device)
        super().__init__(settings, device, device_memory)
        self.family, self.weights, self.unfit, self.chunk = sizing.family, sizing.weights, sizing.unfit, settings.chunk
        self.dtype, self.weights_dtype = str(dtype).removeprefix("torch."), precision_name(sizing.weights_dtype)
        scaling = parse_rope(settings.rope)
        self.window = int(sizing.window * scaling[1]) if scaling else sizing.window
        folder = find_adapter(settings.adapter, "" if config else settings.model)
        self.adapter = adapter_bytes(folder) if folder else 0
        entry = None if config or settings.rope != "auto" else load_catalog().get(settings.model)
        self.longer = entry.longer if entry else ()

    def codec(self, passed: Callable[[str], bool | None]) -> str:
        """Returns the codec that the settings name, or that ``auto`` chooses. ``passed`` returns True or False for a
        codec whose quality was measured, None for any other. Raises UsageError for an unknown codec.
        """
        return choose_codec(self._sizing.shape, passed) if self.settings.kv == "auto" else self.settings.kv

    def need(self, codec: str, tokens: int) -> MemoryNeed:
        """Returns the memory that a context of ``tokens`` tokens in ``codec`` needs: weights and adapter, keys and
        values, and working memory.
        """
        return self._sizing.need(codec, tokens, self.chunk, self.device) + MemoryNeed(self.adapter)

    def longest(self, codec: str) -> int:
        """Returns the maximum number of tokens of a context whose keys and values in ``codec`` fit on the device."""

        def fit(tokens: int) -> MemoryFit:
            need = self.need(codec, tokens)
            return MemoryNeed(kv=need.kv).fit_device(self.limits(need).device or 0)

        return largest_context(fit, PAGE)

    def kv(self, codec: str, tokens: int) -> dict[str, Any]:
        """Returns the memory of keys, values and recurrent states of ``tokens`` tokens as JSON: ``codec``, ``bytes``
        (the size of the cache) and ``bytes_per_token``. ``later_bytes_per_token`` is the size of a token that
        sliding-window layers no longer see. For a model with recurrent states, ``state_bytes`` is the size of one
        snapshot of the states, and a snapshot is taken every ``snapshot_step`` tokens.
        """
        shape, itemsize = self._sizing.shape, self._sizing.itemsize
        kv = {
            "codec": codec,
            "bytes_per_token": shape.bytes_per_token(codec),
            "later_bytes_per_token": -(-shape.part_bytes(codec, FULL) // PAGE),
            "bytes": shape.cache_bytes(codec, tokens, itemsize, self.chunk),
        }
        if not shape.states:
            return kv
        step = shape.snapshot_step(codec, itemsize)
        return kv | {"state_bytes": shape.state_bytes(itemsize), "snapshot_step": step}

    def attention(self, codec: str) -> dict[str, Any]:
        """Returns the kind of attention as JSON: ``kind`` (multi-head, grouped-query, multi-query or latent), the
        number of query ``heads`` and of ``kv_heads``, ``multihead_bytes_per_token`` (the size of a token if every query
        head had its own KV head), and ``saves``, how many times smaller a token is.
        """
        shape, multihead = self._sizing.shape, self._sizing.multihead
        layer, heads = shape.layers[0], multihead.layers[0].kv_heads
        shared, own = shape.bytes_per_token(codec), multihead.bytes_per_token(codec)
        found = _attention(heads, layer.kv_heads, shared, own)
        return found | ({"kind": "latent"} if layer.kind == "latent" else {})

    def sliding(self, codec: str, tokens: int) -> dict[str, Any] | None:
        """Returns as JSON how much memory sliding-window layers save; None for a model without such layers. ``layers``
        of ``of`` layers have a sliding ``window`` in tokens. ``uncut_bytes`` is the size that the cache would have with
        every page of every layer. The store keeps the windows of these layers every ``window_step`` tokens.
        """
        shape = self._sizing.shape
        if not shape.window:
            return None
        uncut = KVShape(tuple(replace(layer, window=None) for layer in shape.layers), shape.states)
        return {
            "layers": sum(bool(layer.window) for layer in shape.layers),
            "of": len(shape.layers),
            "window": shape.window,
            "uncut_bytes": uncut.cache_bytes(codec, tokens, self._sizing.itemsize),
            "window_step": shape.window_step(codec),
        }


class GgufSizes(ModelSizes):
    """The sizes of a GGUF that llama.cpp runs, with the same methods as ``TorchSizes``. A file that was never loaded
    before is first loaded in a child process, in which llama.cpp reports the size of its contexts. Raises UserError.
    """

    engine = "llama.cpp"
    dtype, weights_dtype = "as quantized", "the file's own types"

    def __init__(self, settings: Settings, device_memory: int | None) -> None:
        refuse_for_gguf(settings)
        self._gguf = gguf = open_gguf(resolve_gguf(settings.model, settings.models, lambda phase, done, total: None))
        self.chunk = max(MIN_BATCH, settings.chunk)
        self._sizes = sizes = try_gguf(gguf, self.chunk, settings.home / "tried")
        elsewhere = device_memory is not None and settings.device.startswith("cuda")
        super().__init__(settings, torch.device("cuda") if elsewhere else llama_device(settings.device), device_memory)
        self.family, self.weights, self.codecs = gguf.family, gguf.nbytes, tuple(sizes.contexts)
        self.window = scaled_window(sizes.trained, settings.rope)
        on_cpu = self.device.type == "cpu"
        self._layers = ALL if on_cpu else gpu_layers(gguf, sizes, self.free)
        self._device_weights = gguf.nbytes if on_cpu else self._layers.weights
        self.gpu = None if on_cpu else asdict(self._layers)

    def codec(self, passed: Callable[[str], bool | None]) -> str:
        codec = NATIVE_CODEC if self.settings.kv == "auto" else self.settings.kv
        kv_types(codec)  # raises for an unknown codec
        return codec

    def need(self, codec: str, tokens: int) -> MemoryNeed:
        return self._sizes.at(codec, tokens).need + MemoryNeed(self._device_weights)

    def longest(self, codec: str) -> int:
        elsewhere = self._gguf.nbytes - self._device_weights
        room = self._layers.context_limit(self.free - self._device_weights, measure_ram().free - elsewhere)
        cap = self.settings.caps["memory"]
        return self._sizes.largest(codec, room if cap is None else min(room, cap))

    def kv(self, codec: str, tokens: int) -> dict[str, Any]:
        at, per_token = self._sizes.at(codec, tokens), self._sizes.bytes_per_token(codec)
        return {
            "codec": codec,
            "types": list(KV_TYPES[codec]),
            "bytes_per_token": per_token,
            "later_bytes_per_token": per_token,
            "bytes": round(at.need.kv),
            "state_bytes": round(at.states),
        }

    def attention(self, codec: str) -> dict[str, Any]:
        header, shared = self._gguf.header, self._sizes.bytes_per_token(codec)
        layers = header.get("block_count", 1)
        heads = max(per_layer(header, "attention.head_count", layers))
        kv_heads = max(per_layer(header, "attention.head_count_kv", layers, heads)) or heads
        return _attention(heads, kv_heads, shared, shared * heads // kv_heads)

    def sliding(self, codec: str, tokens: int) -> None:
        return None


def _attention(heads: int, kv_heads: int, shared: int, own: int) -> dict[str, Any]:
    """Returns the kind of attention as ``TorchSizes.attention`` does. A token takes ``shared`` bytes; it would take
    ``own`` bytes if each query head had its own KV head.
    """
    return {
        "kind": {heads: "multi-head", 1: "multi-query"}.get(kv_heads, "grouped-query"),
        "heads": heads,
        "kv_heads": kv_heads,
        "multihead_bytes_per_token": own,
        "saves": round(own / max(1, shared), 1),
    }
