"""Chooses the layers of a GGUF that go to a GPU: as many as fit into its memory together with keys, values and buffers.

llama.cpp fills a GPU from the end: first the output layer, then the last layers. The other layers stay in RAM.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from localctx.models.files.gguf_file import GgufFile, per_layer
from localctx.models.llama_cpp.library import NATIVE_CODEC
from localctx.models.llama_cpp.trial import ContextBytes, LlamaSizes

CONTEXT = 16_384  # tokens of KV to reserve on the GPU, unless the model's window is shorter
SPARE = 1 << 29  # bytes reserved for GPU libraries; not measured


@dataclass(frozen=True)
class GpuLayers:
    """Says which layers of a GGUF are on the GPU: the last ``count`` of ``of`` layers, where the output layer counts as
    the last one. ``weights`` is the size in bytes of the weights of these layers. ``kv`` is the share (0 to 1) of every
    context that is on the GPU.
    """

    count: int
    of: int
    weights: int
    kv: float

    def context_limit(self, device: float, ram: float) -> int:
        """Returns the size in bytes that all contexts together may have, if ``device`` bytes are free on the GPU and
        ``ram`` bytes in RAM.
        """
        rooms = ((device, self.kv), (ram, 1 - self.kv))
        return int(min(max(0.0, room) / part for room, part in rooms if part > 0))


ALL = GpuLayers(1, 1, 0, 1.0)
"""For a CPU: everything is on the only device."""


def fitting_layers(layers: Sequence[float], output: float, compute: float, room: float) -> int:
    """Returns how many layers, counted from the end, fit into ``room`` bytes of a GPU. ``layers`` and ``output`` are
    the sizes in bytes of the layers and of the output layer; ``compute`` is the size of buffers. 0 means none, 1 the
    output layer alone, 2 also the last of ``layers``, and so on.
    """
    left, count = room - compute, 0
    for nbytes in (output, *reversed(layers)):
        left -= nbytes
        if left < 0:
            return count
        count += 1
    return count


def gpu_layers(gguf: GgufFile, sizes: LlamaSizes, free: float) -> GpuLayers:
    """Returns the layers of ``gguf`` that go to a GPU with ``free`` bytes of free memory. Their weights, the KV of
    CONTEXT tokens and buffers must fit. ``sizes`` are the result of ``try_gguf``.
    """
    context = sizes.at(NATIVE_CODEC, min(CONTEXT, sizes.trained or CONTEXT))
    weights, output = _weights(gguf)
    kv = _kv(gguf, len(weights), context)
    both = [a + b for a, b in zip(weights, kv, strict=True)]
    count = fitting_layers(both, output, context.compute, free - SPARE)
    inner = len(weights) - max(0, count - 1)  # the first layer on the GPU
    part = sum(kv[inner:]) / sum(kv) if sum(kv) else float(inner < len(weights))
    return GpuLayers(count, len(weights) + 1, (output if count else 0) + sum(weights[inner:]), part)


def _weights(gguf: GgufFile) -> tuple[list[int], int]:
    """Returns the bytes of each layer's tensors, and the bytes of the output layer, which may be a copy of tied
    embeddings.
    """
    by_name = gguf.tensor_bytes
    layers = [0] * gguf.header.get("block_count", 1)
    for name, nbytes in by_name.items():
        number = name.split(".")[1] if name.startswith("blk.") else ""
        if number.isdecimal() and int(number) < len(layers):
            layers[int(number)] += nbytes
    output = sum(nbytes for name, nbytes in by_name.items() if name.startswith("output"))
    tied = 0 if "output.weight" in by_name else by_name.get("token_embd.weight", 0)
    return layers, output + tied


def _kv(gguf: GgufFile, layers: int, context: ContextBytes) -> list[float]:
    """Returns the bytes that each layer takes of a ``context``. Keys and values are divided in proportion to KV heads,
    states evenly among layers without KV heads.
    """
    heads = per_layer(gguf.header, "attention.head_count", layers, 1)
    kv_heads = per_layer(gguf.header, "attention.head_count_kv", layers, max(heads, default=1))
    stateful = [not heads for heads in kv_heads] if 0 in kv_heads else [True] * layers
    return [
        context.kv * own / max(1, sum(kv_heads)) + context.states * state / max(1, sum(stateful))
        for own, state in zip(kv_heads, stateful, strict=True)
    ]
