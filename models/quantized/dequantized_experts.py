"""Weights of experts (MoE) in int8 or nf4 on a GPU. Each product dequantizes the matrices of the chosen experts."""

from abc import abstractmethod

import torch
from torch import Tensor

from localctx.models.quantized.fused_experts import ExpertWeights, PackExperts

NF4_SHARED = 64  # numbers per scale in nf4
_TOGETHER = 8  # matrices dequantized at once


class DequantizedExperts(ExpertWeights):
    """Expert weights of ``shape`` [experts, out, in] on a GPU, stored quantized as ``codes`` and ``scales`` [experts,
    ...]. Each product dequantizes the weights that it needs.
    """

    def __init__(self, codes: Tensor, scales: Tensor, shape: torch.Size) -> None:
        super().__init__()
        self._codes, self._scales, self._shape = codes, scales, shape
        self.nbytes, self.size = codes.nbytes + scales.nbytes, shape.numel()

    def multiply(self, x: Tensor, experts: Tensor) -> Tensor:
        """Multiply each row of x [n, in] by the matrix of its expert. Returns [n, out]. ``experts`` [n] are sorted. For
        few rows, the matrix of each row is dequantized separately. For many rows, each chosen matrix is dequantized
        once; this waits for the device to report the chosen experts.
        """
        if len(x) <= len(self._codes) or not may_wait():
            parts = zip(x.split(_TOGETHER), experts.split(_TOGETHER), strict=True)
            return torch.cat([torch.bmm(self._matrices(of, x.dtype), rows[..., None])[..., 0] for rows, of in parts])
        chosen, counts = experts.unique_consecutive(return_counts=True)
        groups = zip(x.split(counts.tolist()), chosen.split(1), strict=True)
        return torch.cat([rows @ self._matrices(of, x.dtype)[0].T for rows, of in groups])

    def _matrices(self, experts: Tensor, dtype: torch.dtype) -> Tensor:
        return self._dequantize(self._codes[experts], self._scales[experts], dtype)

    @abstractmethod
    def _dequantize(self, codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the matrices [n, out, in] of ``codes`` and ``scales`` [n, ...]."""


def may_wait() -> bool:
    """Returns True if the CPU may wait for the device and read results. It may not while a CUDA graph is captured."""
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


class Int8Experts(DequantizedExperts):
    """Expert weights in int8, symmetric, with a scale for each output."""

    def _dequantize(self, codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
        return codes.to(dtype) * scales[..., None].to(dtype)


class Nf4Experts(DequantizedExperts):
    """Expert weights that bitsandbytes quantized to nf4, with a scale for 64 numbers and zero padding at the end."""

    def _dequantize(self, codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
        from bitsandbytes.functional import QuantState, dequantize_4bit

        blocks = torch.Size([scales.numel(), NF4_SHARED])
        state = QuantState(scales.flatten(), blocks, blocksize=NF4_SHARED, quant_type="nf4", dtype=dtype)
        padded = dequantize_4bit(codes.view(-1, 1), state).view(len(codes), -1)
        return padded[:, : self._shape[1:].numel()].view(len(codes), *self._shape[1:])


def pack_int8(weights: Tensor) -> Int8Experts:
    """Quantize expert ``weights`` [experts, out, in] to int8, one expert at a time."""
    codes = torch.empty(weights.shape, dtype=torch.int8, device=weights.device)
    scales = torch.empty(weights.shape[:2], dtype=torch.float32, device=weights.device)
    for expert, matrix in enumerate(weights):
        scales[expert] = matrix.abs().amax(1).float().clamp_min(1e-30) / 127
        codes[expert] = (matrix.float() / scales[expert, :, None]).round_()
    return Int8Experts(codes, scales, weights.shape)


def pack_nf4(weights: Tensor) -> Nf4Experts:
    """Quantize expert ``weights`` [experts, out, in] to nf4, one expert at a time."""
    from bitsandbytes.functional import quantize_4bit

    numbers = weights.shape[1:].numel()
    blocks = -(-numbers // NF4_SHARED)
    codes = torch.empty(len(weights), blocks * NF4_SHARED // 2, dtype=torch.uint8, device=weights.device)
    scales = torch.empty(len(weights), blocks, dtype=torch.float32, device=weights.device)
    for expert, matrix in enumerate(weights):
        padded = torch.nn.functional.pad(matrix.flatten(), (0, blocks * NF4_SHARED - numbers))
        packed, state = quantize_4bit(padded, blocksize=NF4_SHARED, quant_type="nf4")
        codes[expert], scales[expert] = packed.flatten(), state.absmax
    return Nf4Experts(codes, scales, weights.shape)


def packed_expert_bytes(weights: str, experts: int, outputs: int, inputs: int) -> int:
    """Returns the size in bytes of quantized expert weights [experts, outputs, inputs] in the format ``weights`` (int8
    or nf4).
    """
    if weights == "int8":
        return experts * outputs * (inputs + torch.float32.itemsize)
    return experts * -(-outputs * inputs // NF4_SHARED) * (NF4_SHARED // 2 + torch.float32.itemsize)


PACK: dict[str, PackExperts] = {"int8": pack_int8, "nf4": pack_nf4}
"""Functions that quantize expert weights for a GPU, by format."""
