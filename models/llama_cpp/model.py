"""LlamaModel: a GGUF file computed by llama.cpp, which holds keys, values and recurrent states itself."""

import hashlib
import json
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from localctx.budget import measure_device
from localctx.errors import ModelError, UsageError
from localctx.kv.keepers.full import Full
from localctx.kv.keepers.keeper import Keeper
from localctx.models.adapter import Adapter
from localctx.models.base import ForwardRequest
from localctx.models.files.gguf_file import GgufFile, open_gguf
from localctx.models.llama_cpp.cache import LlamaCache
from localctx.models.llama_cpp.context import LlamaContext
from localctx.models.llama_cpp.gpu_layers import ALL, GpuLayers, gpu_layers
from localctx.models.llama_cpp.library import NO_TRANSFORM, QUANTIZED, llama_build, llama_library
from localctx.models.llama_cpp.memory import LlamaMemory
from localctx.models.llama_cpp.options import ContextOptions, MemoryKind, memory_kind, parse_llama_rope, scaled_window
from localctx.models.llama_cpp.sequence_slots import NativeSequence
from localctx.models.llama_cpp.tokenizer import LlamaTokenizer
from localctx.models.llama_cpp.trial import LlamaSizes, try_gguf
from localctx.settings import EngineName
from localctx.shape import PAGE

STATE_VERSION = 1
"""Part of every fingerprint; raise it when the meaning of stored snapshots changes."""

FULL = Full()

MIN_BATCH = 32  # minimum tokens of a native batch

_TORCH = "leave --keep, or use --engine torch where it runs the model"

WEIGHTS_PER_KV = 8
"""Sequences are batched while their keys and values are this many times smaller than the weights. Weights are read once
per batch, but each sequence attends over the cells of all, which soon costs more than batching saves.
"""


class LlamaWeights:
    """The weights of ``gguf``, loaded by llama.cpp. If ``repacks``, llama.cpp may repack them for this processor.
    They are freed with the last reference to this object. Raises ModelError.
    """

    def __init__(self, gguf: GgufFile, gpu_layers: int, repacks: bool) -> None:
        library = llama_library()
        options = library.llama_model_default_params()
        options.n_gpu_layers, options.use_extra_bufts = gpu_layers, repacks
        self.pointer = library.llama_model_load_from_file(os.fsencode(gguf.path), options)
        if not self.pointer:
            raise ModelError(f"llama.cpp cannot load {gguf.path}", "fetch the file again, or take another model")
        self._free = weakref.finalize(self, library.llama_model_free, self.pointer)
        self.nbytes: int = library.llama_model_size(self.pointer)


class LlamaModel:
    """A GGUF that llama.cpp computes, with the methods of ``Model``. ``sizes`` are the result of ``try_gguf``.
    ``batch`` is the number of tokens of a native batch. ``layers`` says which layers are on the GPU.
    """

    engine: EngineName = "llama.cpp"

    def __init__(
        self,
        gguf: GgufFile,
        sizes: LlamaSizes,
        weights: LlamaWeights,
        *,
        name: str,
        batch: int,
        threads: int,
        device: torch.device,
        rope: str = "auto",
        layers: GpuLayers = ALL,
    ) -> None:
        self.name, self.device, self.sizes, self.layers = name, device, sizes, layers
        self._gguf, self._weights, self._batch, self._threads = gguf, weights, batch, threads
        template = gguf.header.meta.get("tokenizer.chat_template", "")
        self.tokenizer = LlamaTokenizer(weights.pointer, weights, template if isinstance(template, str) else "")
        self.kind: MemoryKind = memory_kind(weights.pointer)
        self.trained, self.parameters, self.nbytes = sizes.trained, sizes.parameters, weights.nbytes
        self._memories = dict[tuple[str, str], LlamaMemory]()  # by codec and RoPE; views share them
        self.scale_rope(rope)

    @property
    def context(self) -> int:
        return scaled_window(self.trained, self._rope)

    @property
    def vocabulary(self) -> int:
        return self.tokenizer.size

    @property
    def kv_nbytes(self) -> Mapping[str, int]:
        """The size in bytes of all native contexts, with keys, values and recurrent states: ``{"device": size}``."""
        sizes = (self.sizes.at(codec, memory.cells) for (codec, _), memory in self._memories.items() if memory.cells)
        return {"device": round(sum(size.kv + size.states for size in sizes))}

    def scale_rope(self, rope: str) -> None:
        parse_llama_rope(rope)  # raises for an unsupported scaling
        self._rope = rope

    def view(self) -> Self:
        return copy(self)

    def add_adapter(self, adapter: Adapter) -> None:
        """Raise ModelError: llama.cpp needs adapters as GGUF files."""
        raise ModelError(f"llama.cpp cannot compute the adapter {adapter.name}", "use --adapter none or --engine torch")

    def fingerprint(self, codec: str) -> bytes:
        """Returns 32 bytes that identify everything on which a snapshot in ``codec`` depends besides its tokens: the
        content of the GGUF and of llama.cpp's libraries, KV types, RoPE and device.
        """
        parts = {
            "engine": self.engine,
            "build": llama_build(),
            "version": STATE_VERSION,
            "weights": self._gguf.hashes,
            "kv": codec,
            "flash": self.memory_options(codec).flash,
            "rope": self._rope,
            "device": f"{self.device.type} {self.layers.count}",
            "rotation": os.environ.get(NO_TRANSFORM, ""),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).digest()

    def refuse_shifts(self, codec: str) -> None:
        """Raise UsageError, with the reason, if llama.cpp cannot move tokens to other positions in a memory with
        ``codec``. Evicting tokens needs that.
        """
        if reason := cannot_shift(self._gguf, self.sizes, codec, self._rope):
            raise UsageError(f"--keep sink-window does not work with {self.name}: {reason[0]}", reason[1])

    def memory_options(self, codec: str) -> ContextOptions:
        """Returns the options of contexts with ``codec`` and the current RoPE. Their size is set later."""
        offload = self.device.type != "cpu"
        return ContextOptions(0, self.kind.sequences, codec, self._rope, self._batch, self._threads, offload)

    def memory(self, codec: str) -> LlamaMemory:
        """Returns the LlamaMemory for sequences with ``codec`` and the current RoPE scaling. Creating a new one frees
        the contexts of the others.
        """
        key = codec, self._rope
        if key not in self._memories:
            for other in self._memories.values():
                other.release()
            weights = self._weights
            self._memories[key] = LlamaMemory(
                lambda options: LlamaContext(weights.pointer, weights, options),
                self.memory_options(codec),
                self.kind,
                PAGE * self.sizes.bytes_per_token(codec),
                self.nbytes // WEIGHTS_PER_KV,
            )
        return self._memories[key]

    def new_cache(self, codec: str, expected: int = 0, keeper: Keeper = FULL) -> LlamaCache:
        """Returns an empty cache, which is expected to get ``expected`` tokens. A ``keeper`` (eviction policy) that
        evicts must keep sinks and a window, and needs a codec that ``refuse_shifts`` accepts.
        """
        return LlamaCache(self.memory(codec), NativeSequence(expected=expected, keeper=keeper))

    def forward(
        self,
        tokens: Sequence[int],
        cache: LlamaCache,
        num_logits: int = 1,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Tensor:
        return self.forward_each([ForwardRequest(tokens, cache, num_logits)], cancelled)[0]

    def forward_each(
        self, requests: Sequence[ForwardRequest], cancelled: Callable[[], bool] = lambda: False
    ) -> list[Tensor]:
        memories = {id(request.cache.memory): request.cache.memory for request in requests}
        assert len(memories) == 1, "sequences in one pass are in one memory"
        (memory,) = memories.values()
        return memory.forward(
            [request.cache.sequence for request in requests],
            [request.tokens for request in requests],
            [request.num_logits for request in requests],
            cancelled,
        )


def load_llama_model(
    path: Path, name: str, tried: Path, *, device: str = "auto", threads: int = 0, chunk: int = 512, rope: str = "auto"
) -> LlamaModel:
    """Load the GGUF whose first part is ``path``. A file that was not tried before is loaded in a child process first;
    ``tried`` is the folder with records of trials. ``threads`` 0 uses torch's number. ``rope`` is a RoPE scaling, such
    as ``yarn:2``, or ``auto`` for the file's own.

    Raises ModelError, UsageError; OSError if the file cannot be read.
    """
    parse_llama_rope(rope)
    gguf, batch = open_gguf(path), max(MIN_BATCH, chunk)
    place = llama_device(device)
    sizes = try_gguf(gguf, batch, tried)  # before this process loads it
    layers = ALL if place.type == "cpu" else gpu_layers(gguf, sizes, measure_device(str(place)).free)
    weights = LlamaWeights(gguf, native_layers(place, layers), sizes.repacks)
    return LlamaModel(
        gguf,
        sizes,
        weights,
        name=name,
        batch=batch,
        threads=threads or torch.get_num_threads(),
        device=place,
        rope=rope,
        layers=layers,
    )


def native_layers(device: torch.device, layers: GpuLayers) -> int:
    """Returns the value of llama.cpp's option ``n_gpu_layers`` for ``layers`` on ``device``; -1 means all layers."""
    if device.type == "cpu":
        return 0
    return -1 if layers.count == layers.of else layers.count


def llama_device(name: str) -> torch.device:
    """Returns the device for llama.cpp: a GPU if its build supports one, unless ``name`` is ``cpu``.

    Raises UsageError for ``cuda`` if the build has no GPU support.
    """
    offloads = llama_library().llama_supports_gpu_offload()
    if name.startswith("cuda") and not offloads:
        raise UsageError(
            "llama.cpp was built without a GPU here", "use --device cpu, or build it with one (localctx help models)"
        )
    if name == "cpu" or not offloads:
        return torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "mps")


def cannot_shift(gguf: GgufFile, sizes: LlamaSizes, codec: str, rope: str) -> tuple[str, str] | None:
    """Returns why llama.cpp cannot move tokens of ``gguf`` to other positions, with a remedy; None if it can. ``codec``
    is the codec of keys and values, and ``rope`` the RoPE scaling.

    llama.cpp (as of 0.3.36) rotates moved keys in place. Each move multiplies these keys, and keys of other sequences,
    by YaRN's factor again. It aborts the process for bf16 keys, and crashes for quantized keys without a Hadamard
    transform (``LlamaSizes.transformed``).
    """
    if sizes.recurrent:
        return "nothing can be cut out of its recurrent states", _TORCH
    if sizes.window:
        return "llama.cpp keeps only the last tokens of its sliding layers", _TORCH
    if not sizes.shifts or "position_embd.weight" in gguf.header.tensors:
        return f"llama.cpp cannot move the positions of {gguf.family}", _TORCH
    scaling = parse_llama_rope(rope)
    if scaling and scaling[0] == "yarn":
        return f"positions scaled by {rope} cannot be moved in llama.cpp", "leave --rope: a window needs none"
    if not scaling and _scales_keys(gguf):
        return "positions that its file scales (YaRN, LongRoPE) cannot be moved in llama.cpp", _TORCH
    if codec == "bf16" or (codec in QUANTIZED and not (codec in sizes.transformed and _rotates_whole_keys(gguf))):
        return f"llama.cpp cannot rotate keys in {codec} for this model", "use --kv f16"
    return None


def _rotates_whole_keys(gguf: GgufFile) -> bool:
    length = gguf.header.get("attention.key_length")
    return gguf.header.get("rope.dimension_count", length) == length


def _scales_keys(gguf: GgufFile) -> bool:
    factor = gguf.header.get("rope.scaling.attn_factor", 1.0)
    return gguf.header.get("rope.scaling.type", "") in ("yarn", "longrope") or factor != 1.0
