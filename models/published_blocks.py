"""The quantized blocks of a GGUF file (Q4_0, Q4_1, Q8_0), kept beside the weights that are made of them.

So weights at 4 or 8 bits are those that were published, not rounded once more. The file holds the bytes of each matrix
as the GGUF has them, with its rows in the order of transformers' modules.
"""

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from localctx.kernels.weight_groups import GROUP, Groups
from localctx.models.fingerprint import hash_file
from localctx.models.gguf_header import GgufHeader, GgufTensor
from localctx.models.safetensors_files import open_weights

FILE_NAME = "published.blocks"
"""A file of safetensors whose name transformers does not take for weights."""
_BYTES = {2: 18, 3: 20, 8: 34}  # of a block, by ggml's number of the type: Q4_0, Q4_1, Q8_0
_KINDS = "kinds"

_LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_HEADS = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}


class PublishedBlocks:
    """The blocks in a model folder; without one, or where the folder has none, there are none."""

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / FILE_NAME if folder else None
        self._file: Any = None
        self._kinds: Mapping[str, int] = {}
        if self._path and self._path.is_file():
            self._file, self._kinds = _opened(self._path)

    @property
    def hashes(self) -> dict[str, str]:
        """The content hash of their file, by its name."""
        return {FILE_NAME: hash_file(self._path)} if self._file and self._path else {}

    def groups(self, name: str, kind: int) -> Groups | None:
        """Returns the matrix of this name if it was published in this number kind, else None."""
        if name not in self._kinds:
            return None
        found = groups_of(self._file.get_tensor(name), self._kinds[name])
        return found if found.kind == kind else None


def groups_of(blocks: Tensor, ggml_type: int) -> Groups:
    """Returns the weight of a GGUF's blocks [out, groups, bytes] uint8, exactly."""
    scales = _half(blocks, 0)
    inputs = blocks.shape[1] * GROUP
    if ggml_type == 8:
        return Groups(blocks[..., 2:].contiguous().view(torch.int8), scales, None, inputs)
    minima = _half(blocks, 2) if ggml_type == 3 else scales * -8
    packed = blocks[..., -16:]
    return Groups(torch.cat([packed & 15, packed >> 4], -1), scales, minima, inputs)


def write_published(header: GgufHeader, gguf: Path, folder: Path) -> None:
    """Writes the blocks of ``gguf`` to ``folder``, which holds the weights that were converted from it. A matrix whose
    blocks do not mean exactly these weights is left out.
    """
    weights = open_weights(folder)
    if weights is None:
        return
    found, kinds = dict[str, Tensor](), dict[str, int]()
    with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name, tensor in header.tensors.items():
            module = _module_name(name)
            if tensor.kind in _BYTES and module in weights and len(tensor.dims) == 2:
                blocks = _in_order(_blocks(data, tensor), name, tensor.kind, header, weights[module])
                found |= {module: blocks} if blocks is not None else {}
                kinds |= {module: tensor.kind} if blocks is not None else {}
    if found:
        save_file(found, folder / FILE_NAME, {_KINDS: json.dumps(kinds)})


def _opened(path: Path) -> tuple[Any, Mapping[str, int]]:
    try:
        file = safe_open(path, "pt")
        return file, json.loads(file.metadata()[_KINDS])
    except (OSError, SafetensorError, ValueError, LookupError, TypeError):  # the converted weights are complete
        return None, {}


def _half(blocks: Tensor, at: int) -> Tensor:
    return blocks[..., at : at + 2].contiguous().view(torch.float16)[..., 0]


def _module_name(name: str) -> str:
    """Returns what a GGUF's tensor is called in a plain decoder of transformers; an empty string for others."""
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}
    match name.split("."):
        case ["blk", layer, part, "weight"] if part in _LAYER:
            return f"model.layers.{layer}.{_LAYER[part]}.weight"
    return whole.get(name, "")


def _blocks(data: mmap.mmap, tensor: GgufTensor) -> Tensor:
    (inputs, outputs), width = tensor.dims, _BYTES[tensor.kind]
    shape = outputs, inputs // GROUP, width
    raw = np.frombuffer(data, np.uint8, outputs * inputs // GROUP * width, tensor.start)
    return torch.from_numpy(raw.reshape(shape).copy())


def _in_order(blocks: Tensor, name: str, kind: int, header: GgufHeader, weight: Tensor) -> Tensor | None:
    """Returns the rows of blocks in the order of the converted ``weight``; None if no known order gives its numbers."""
    heads = header.get(_HEADS.get(name.split(".")[-2], ""))
    orders = [blocks]
    if isinstance(heads, int) and heads > 0 and len(blocks) % (2 * heads) == 0:  # ggml rotates neighbours, not halves
        orders.append(blocks.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous())
    return next((some for some in orders if _means(some, kind, weight)), None)


def _means(blocks: Tensor, kind: int, weight: Tensor) -> bool:
    groups = groups_of(blocks, kind)
    numbers = groups.codes.float() * groups.scales.float()[..., None]
    if groups.minima is not None:
        numbers += groups.minima.float()[..., None]
    return torch.equal(numbers.flatten(1).to(weight.dtype), weight)
