"""The features of the processor for which kernels are compiled, by LLVM's names."""

from llvmlite import binding
from numba import config
from numba.core.codegen import get_host_cpu_features

_HALVED = ("znver4",)  # these compute 512 bits in two halves, so wider vectors gain nothing


def lanes_of(name: str, features: str) -> int:
    """Returns the number of float32 lanes of the widest vectors that are worth using on a processor: 16 or 8.

    ``name`` (``skylake``) and ``features`` (``+avx512f,-sse4a``) describe the processor in LLVM's terms.
    """
    return 16 if "+avx512f" in features.split(",") and name not in _HALVED else 8


_TOLD = {
    **{name: name for name in ("avx2", "avx512f", "neon", "dotprod", "i8mm", "sve", "bf16")},
    **{"avxvnni": "avx-vnni", "avx512vnni": "avx512-vnni", "avx512bf16": "avx512-bf16", "amx-tile": "amx"},
}  # features that kernels could use, with their common names


def vector_instructions(features: str) -> list[str]:
    """Returns the names of the vector instructions of a processor that products can use. ``features``
    (``+avx2,-avx512f``) are LLVM's.
    """
    there = {name.removeprefix("+") for name in features.split(",") if name.startswith("+")}
    return [told for name, told in _TOLD.items() if name in there]


_NAME = getattr(config, "CPU_NAME", "") or binding.get_host_cpu_name()
FEATURES = getattr(config, "CPU_FEATURES", "") or get_host_cpu_features()
"""The processor's features under LLVM's names, such as ``+avx2,-avx512f``."""
WIDEST = lanes_of(_NAME, FEATURES)
"""The lanes of the widest vectors of float32 that products use."""

INSTRUCTIONS = ", ".join(vector_instructions(FEATURES)) or "no vector instructions that localctx knows"
"""The processor's vector instructions as text for reports."""
