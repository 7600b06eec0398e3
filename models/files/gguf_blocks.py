"""Stores the quantized blocks of a GGUF file (Q4_0, Q4_1, Q4_K, Q8_0) beside the weights converted from that file.

With these blocks, 4- and 8-bit weights are exactly the published ones, not rounded again. The stored file has the bytes
of each matrix as in the GGUF, with rows in the order of transformers' modules. It also names matrices that a 4-bit GGUF
stores with more bits (Q5_K and Q6_K in Q4_K_M), which are computed at 8 bits.
"""

import json
import mmap
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED
from localctx.kernels.llvm.weight_groups import GROUP, Groups
from localctx.models.files.gguf_header import GgufHeader, GgufTensor
from localctx.models.files.safetensors_files import open_weights
from localctx.models.fingerprint import hash_file

FILE_NAME = "published.blocks"
"""A safetensors file under a name that transformers does not mistake for weights."""
_Q4_0, _Q4_1, _Q8_0, _Q4_K = 2, 3, 8, 12  # ggml type numbers
_BLOCKS = {_Q4_0: (32, 18), _Q4_1: (32, 20), _Q8_0: (32, 34), _Q4_K: (256, 144)}
"""Inputs and bytes of a block, by type."""
_FOUR_BITS = {_Q4_0, _Q4_1, _Q4_K}
_MORE_BITS = {0, 1, 30, 6, 7, _Q8_0, 13, 14}  # F32, F16, BF16, Q5_0, Q5_1, Q8_0, Q5_K, Q6_K
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
_TOGETHER = {"q_proj", "k_proj", "v_proj"}, {"gate_proj", "up_proj"}
"""Matrices that NativeWeights concatenates, so they need the same number kind."""
_HEADS = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}


class GgufBlocks:
    """The quantized matrices of the GGUF from which the model in ``folder`` was converted. Empty if no folder is given,
    or if the folder has no such matrices.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._path = folder / FILE_NAME if folder else None
        self._file: Any = None
        self._kinds: Mapping[str, int] = {}
        self._names: frozenset[str] = frozenset()  # matrices with blocks; others appear only in kinds
        if self._path and self._path.is_file():
            self._file, self._kinds = _opened(self._path)
            self._names = frozenset(self._file.keys() if self._file else ())

    @property
    def hashes(self) -> dict[str, str]:
        """The content hash of the file with the matrices, by file name, for the model's fingerprint. If some matrices
        are ``finer``, an entry says that they use 8 bits, because earlier versions used 4 bits with the same file.
        """
        if not (self._file and self._path):
            return {}
        return {FILE_NAME: hash_file(self._path)} | ({f"{FILE_NAME} finer": "8 bits"} if self.finer else {})

    @cached_property
    def finer(self) -> frozenset[str]:
        """The names of layer modules that need 8 bits when 4-bit weights are requested: modules that a 4-bit file
        stores with more bits, and modules that are concatenated with such a module.
        """
        kinds = {name.removesuffix(".weight"): kind for name, kind in self._kinds.items() if ".layers." in name}
        if not _FOUR_BITS.intersection(kinds.values()):
            return frozenset()
        return frozenset(each for name, kind in kinds.items() if kind in _MORE_BITS for each in _joined(name))

    def groups(self, name: str, kind: int) -> Groups | None:
        """Returns the quantized matrix ``name`` if the GGUF stored it in the number format ``kind`` (SIGNED for 8 bits,
        NIBBLES for 4 bits), else None.
        """
        if name not in self._names or kind != (NIBBLES if self._kinds[name] in _FOUR_BITS else SIGNED):
            return None
        return groups_of(self._file.get_tensor(name), self._kinds[name])


def groups_of(blocks: Tensor, ggml_type: int) -> Groups:
    """Returns the weight that a GGUF stores in ``blocks`` [out, blocks, bytes] uint8. ``ggml_type`` is ggml's number of
    the block format. The result is exact, with one exception: scales and minima of Q4_K, which are products of two
    numbers, are rounded to float16 (by at most one part in 2,048).
    """
    codes, scales, minima = _parts(blocks, ggml_type)
    inputs = codes.shape[1] * GROUP
    return Groups(codes, scales.half(), None if minima is None else minima.half(), inputs)


def _parts(blocks: Tensor, ggml_type: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns the exact codes [out, groups, 32], and the scales and minima [out, groups] float32, of a GGUF's
    ``blocks``.
    """
    scales = _half(blocks, 0).float()
    if ggml_type == _Q8_0:
        return blocks[..., 2:].contiguous().view(torch.int8), scales, None
    if ggml_type == _Q4_K:
        factors, offsets = _six_bits(blocks[..., 4:16])
        minima = _half(blocks, 2).float()[..., None] * -offsets
        return (
            _nibbles(blocks[..., 16:].unflatten(-1, (4, 32))),
            (scales[..., None] * factors).flatten(1),
            minima.flatten(1),
        )
    minima = _half(blocks, 2).float() if ggml_type == _Q4_1 else scales * -8
    return _nibbles(blocks[..., -16:]), scales, minima


def _nibbles(packed: Tensor) -> Tensor:
    """Unpack bytes [out, ..., n] to codes [out, groups, 32]. The n low nibbles come first, then the n high nibbles."""
    return torch.stack([packed & 15, packed >> 4], -2).reshape(len(packed), -1, GROUP)


def _six_bits(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the 8 six-bit scale factors and 8 six-bit minimum factors of a Q4_K block from its 12 bytes [..., 12]
    (``ggml-quants.c``). The bytes of the first four factors also hold the top two bits of the last four.
    """
    first, second, last = packed.unflatten(-1, (3, 4)).unbind(-2)
    factors = torch.cat([first & 63, last & 15 | first >> 2 & 48], -1)
    offsets = torch.cat([second & 63, last >> 4 | second >> 2 & 48], -1)
    return factors.float(), offsets.float()


def write_published(header: GgufHeader, gguf: Path, folder: Path) -> None:
    """Write the quantized blocks of the file ``gguf`` to ``folder``, which has the weights that were converted from it.
    A matrix is left out if its blocks do not decode to exactly the converted weights.
    """
    weights = open_weights(folder)
    if weights is None:
        return
    found, kinds = dict[str, Tensor](), dict[str, int]()
    with gguf.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for name, tensor in header.tensors.items():
            module = _module_name(name)
            if module not in weights or len(tensor.dims) != 2:
                continue
            if tensor.kind in _MORE_BITS:
                kinds[module] = tensor.kind
            if tensor.kind in _BLOCKS:
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
    """Returns the name of a module in a plain transformers decoder for the name of a GGUF tensor; empty for other
    tensors.
    """
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight"}
    match name.split("."):
        case ["blk", layer, part, "weight"] if part in _LAYER:
            return f"model.layers.{layer}.{_LAYER[part]}.weight"
    return whole.get(name, "")


def _blocks(data: mmap.mmap, tensor: GgufTensor) -> Tensor:
    (inputs, outputs), (size, nbytes) = tensor.dims, _BLOCKS[tensor.kind]
    shape = outputs, inputs // size, nbytes
    raw = np.frombuffer(data, np.uint8, outputs * inputs // size * nbytes, tensor.start)
    return torch.from_numpy(raw.reshape(shape).copy())


def _in_order(blocks: Tensor, name: str, kind: int, header: GgufHeader, weight: Tensor) -> Tensor | None:
    """Returns the rows of ``blocks`` in the order of the converted ``weight``. Returns None if no known order
    reproduces that weight.
    """
    heads = header.get(_HEADS.get(name.split(".")[-2], ""))
    orders = [blocks]
    if isinstance(heads, int) and heads > 0 and len(blocks) % (2 * heads) == 0:  # ggml rotates neighbours, not halves
        orders.append(blocks.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous())
    return next((some for some in orders if _means(some, kind, weight)), None)


def _means(blocks: Tensor, kind: int, weight: Tensor) -> bool:
    codes, scales, minima = _parts(blocks, kind)
    numbers = codes.float() * scales[..., None]
    if minima is not None:
        numbers += minima[..., None]
    return torch.equal(numbers.flatten(1).to(weight.dtype), weight)


def _joined(module: str) -> list[str]:
    """Returns the names of a layer's ``module`` and of the modules that are concatenated with it."""
    at, _, name = module.rpartition(".")
    names = next((names for names in _TOGETHER if name in names), {name})
    return [f"{at}.{each}" for each in names]
