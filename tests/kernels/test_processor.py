"""How wide the vectors of products are."""

import os
import subprocess
import sys

import pytest
from older_processor import AVX2

from localctx.kernels.llvm.processor import lanes_of, vector_instructions
from localctx.kernels.llvm.simd import Tile
from localctx.kernels.llvm.vector_math import CRUMBS, FLOAT, NIBBLES


@pytest.mark.parametrize(
    ("name", "features", "lanes"),
    [
        ("sapphirerapids", "+avx2,+avx512f,+avx512bf16", 16),
        ("znver5", "+avx512f", 16),
        ("znver4", "+avx2,+avx512f", 8),
        ("haswell", "+avx2,+fma", 8),
        ("skylake", "-avx512f,+avx2", 8),
        ("apple-m1", "+neon", 8),
    ],
)
def test_vectors_are_as_wide_as_the_processor_computes_at_once(name: str, features: str, lanes: int) -> None:
    assert lanes_of(name, features) == lanes


def test_instructions_are_named_as_people_call_them() -> None:
    intel = "+avx,+avx2,+avx512f,+avx512vnni,-avx512bf16,+amx-tile,+fma"
    assert vector_instructions(intel) == ["avx2", "avx512f", "avx512-vnni", "amx"]
    assert vector_instructions("+neon,+dotprod,+i8mm,-sve") == ["neon", "dotprod", "i8mm"]
    assert vector_instructions("") == []


def test_a_tile_takes_fewer_bytes_of_what_is_packed() -> None:
    tile = Tile(3, 4, 16)
    assert [tile.columns(kind) for kind in (FLOAT, NIBBLES, CRUMBS)] == [64, 32, 16]


def test_an_older_processor_gets_narrower_vectors() -> None:
    code = "from localctx.kernels.llvm.processor import WIDEST; print(WIDEST)"
    found = subprocess.run([sys.executable, "-c", code], env={**os.environ, **AVX2}, capture_output=True, text=True)
    assert found.stdout.split() == ["8"], found.stderr
