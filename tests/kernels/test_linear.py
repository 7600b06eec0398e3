"""Linear layers in blocks."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from localctx import kernels
from localctx.kernels.linear_cpu import GROUP, dense, exact_blocks, gather_rows, int8_blocks, multiply, multiply_blocks
from localctx.models.blocked_linear import BlockedLinear, block_linears, weight_bytes

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def weight(outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(outputs * inputs)
    return torch.randn(outputs, inputs).to(dtype).float()


@pytest.mark.parametrize("dtype", DTYPES)
@given(outputs=st.integers(1, 100), inputs=st.integers(1, 200), rows=st.integers(1, 70))
@settings(max_examples=20, deadline=None)
def test_products_are_those_of_the_weight(dtype, outputs, inputs, rows):
    w, x = weight(outputs, inputs, dtype), torch.randn(rows, inputs)
    blocks = exact_blocks(w)
    assert torch.equal(dense(blocks), w), "nothing is lost"
    assert torch.allclose(multiply(x, blocks), x @ w.T, atol=1e-4)
    small = int8_blocks(w)
    assert torch.allclose(multiply(x, small), x @ dense(small).T, atol=1e-4)
    bound = torch.nn.functional.pad(w, (0, -inputs % GROUP)).unflatten(1, (-1, GROUP)).abs().amax(-1) / 254
    assert ((dense(small) - w).abs() <= bound.repeat_interleave(GROUP, 1)[:, :inputs] * 1.001).all()


def test_sixteen_bits_where_they_suffice():
    assert [exact_blocks(weight(64, 64, dtype)).nbytes // (64 * 64) for dtype in DTYPES] == [4, 2, 2]


@pytest.mark.parametrize("make", [exact_blocks, int8_blocks])
def test_a_row_does_not_depend_on_the_others(make):
    blocks, x = make(weight(96, 576, torch.bfloat16)), torch.randn(200, 576)
    whole = multiply(x, blocks)
    for rows in (1, 2, 3, 4, 17, 49, 100):
        assert torch.equal(multiply(x[:rows], blocks), whole[:rows]), f"{rows} rows, to the last bit"


@pytest.mark.parametrize("make", [exact_blocks, int8_blocks])
def test_rows_are_picked_as_an_embedding_does(make):
    blocks, rows = make(weight(70, 100, torch.bfloat16)), torch.tensor([0, 69, 31, 32, 5, 5])
    assert torch.equal(gather_rows(blocks, rows), dense(blocks)[rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_in_sixteen_bits_need_no_others(dtype):
    w = weight(70, 100, dtype)
    assert torch.equal(dense(exact_blocks(w.to(dtype))), w)
    assert exact_blocks(w.to(dtype)).nbytes == exact_blocks(w).nbytes


def test_a_module_keeps_no_other_copy():
    module = torch.nn.Sequential(torch.nn.Linear(64, 70), torch.nn.Linear(70, 32, bias=False))
    x = torch.randn(2, 3, 64)
    expected = module(x)
    block_linears(module)
    assert all(isinstance(child, BlockedLinear) for child in module)
    assert torch.allclose(module(x), expected, atol=1e-5)
    assert weight_bytes(module) == sum(child.blocks.nbytes for child in module) + 70 * 4
    assert [len(parameter) for parameter in module.parameters()] == [70], "a bias"


def test_what_was_compiled_is_used_for_just_these_sources(tmp_path):
    """numba looks at the file of a function alone, not at those of the functions that it calls."""
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1")
    first = kernels.compiled_in(tmp_path, tmp_path)
    assert kernels.compiled_in(tmp_path, tmp_path) == first
    (tmp_path / "b.py").write_text("x = 2")
    assert kernels.compiled_in(tmp_path, tmp_path) != first
    mine = kernels.compiled_in(Path(kernels.__file__).parent, Path())
    assert mine.name in Path(multiply_blocks.stats.cache_path).parts
