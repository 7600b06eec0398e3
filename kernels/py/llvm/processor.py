"""What the processor that kernels are compiled for can do, by the names that LLVM has for it."""

from llvmlite import binding
from numba import config
from numba.core.codegen import get_host_cpu_features

_HALVED = ("znver4",)  # computes 512 bits in two halves: wider vectors gain nothing there


def lanes_of(name: str, features: str) -> int:
    """Returns the float32 in the widest vectors that are worth their width on the processor of this LLVM ``name``
    with these ``features`` (``+avx512f,-sse4a``): 16 or 8.
    """
    return 16 if "+avx512f" in features.split(",") and name not in _HALVED else 8


_TOLD = {
    **{name: name for name in ("avx2", "avx512f", "neon", "dotprod", "i8mm", "sve", "bf16")},
    **{"avxvnni": "avx-vnni", "avx512vnni": "avx512-vnni", "avx512bf16": "avx512-bf16", "amx-tile": "amx"},
}  # the features that kernels could use, as people call them


def vector_instructions(features: str) -> list[str]:
    """Returns the vector instructions among the ``features`` (``+avx2,-avx512f``) that matter for products."""
    there = {name.removeprefix("+") for name in features.split(",") if name.startswith("+")}
    return [told for name, told in _TOLD.items() if name in there]


_NAME = getattr(config, "CPU_NAME", "") or binding.get_host_cpu_name()
FEATURES = getattr(config, "CPU_FEATURES", "") or get_host_cpu_features()
"""Its features, by LLVM's names: ``+avx2,-avx512f``."""
WIDEST = lanes_of(_NAME, FEATURES)
"""The lanes of the widest vectors of float32 that products use."""

INSTRUCTIONS = ", ".join(vector_instructions(FEATURES)) or "no vector instructions that localctx knows"
"""The vector instructions of the processor that kernels are compiled for, for reports."""
