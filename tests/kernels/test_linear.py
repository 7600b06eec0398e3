"""Linear layers in blocks."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from localctx import kernels
from localctx.kernels.cpu.linear import (
    dense,
    exact_blocks,
    gather_rows,
    int4_blocks,
    int8_blocks,
    multiply,
    multiply_blocks,
)
from localctx.kernels.llvm.integer_product import ROW_GROUP, rounded
from localctx.kernels.llvm.weight_groups import BITS, GROUP, group_bytes, int4_groups, int8_groups, pack, unpack
from localctx.models.quantized.blocked_linear import BlockedLinear, block_linears, weight_bytes

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


def row_values(x: Tensor) -> Tensor:
    """The numbers that rows of ``x`` are rounded to, by torch: the reference of ``rounded``."""
    grouped = torch.nn.functional.pad(x, (0, -x.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    most = grouped.abs().amax(-1, keepdim=True)
    codes = (grouped * torch.where(most > 0, torch.tensor(127.0) / most, most)).round()  # 127 / most takes a reciprocal
    return (codes * (most / 127)).flatten(1)[:, : x.shape[1]]


@pytest.mark.parametrize("make", [int8_blocks, int4_blocks])
@given(outputs=st.integers(1, 100), inputs=st.integers(1, 200), rows=st.integers(1, 70))
@settings(max_examples=20, deadline=None)
def test_products_by_integers_are_those_of_the_rounded_rows_and_weights(make, outputs, inputs, rows):
    w, x = weight(outputs, inputs), torch.randn(rows, inputs)
    blocks = make(w)
    assert torch.allclose(multiply(x, blocks), row_values(x) @ dense(blocks).T, atol=1e-3)
    last = w[:, -1:].expand(-1, -inputs % GROUP)
    groups = torch.cat([w, last], 1).unflatten(1, (-1, GROUP))
    most = groups.abs().amax(-1)
    half_step = most / 254 if make is int8_blocks else (groups.amax(-1) - groups.amin(-1)) / 30
    room = (half_step + most * 2**-10)[..., None].expand_as(groups)  # and the rounding of scales and minima
    assert ((dense(blocks) - w).abs() <= room.flatten(1)[:, :inputs]).all()


@pytest.mark.parametrize("quantize", [int8_groups, int4_groups])
def test_records_hold_the_groups_as_they_are(quantize):
    groups = quantize(weight(70, 100))
    whole = unpack(groups.kind, pack(groups))[:70, :100]
    values = groups.codes.float() * groups.scales.float()[..., None]
    values += 0 if groups.minima is None else groups.minima.float()[..., None]
    assert torch.equal(whole, values.flatten(1)[:, :100])
    assert pack(groups).nbytes == group_bytes(groups.kind, 70, 100) == 96 * 128 * BITS[groups.kind] / 8


@pytest.mark.parametrize("make", [int8_blocks, int4_blocks])
def test_the_smallest_and_the_largest_weights_are_near(make):
    for size in (0.0, 1e-6, 1e-3, 1.0, 1e4):
        w = weight(40, 64) * size
        assert (dense(make(w)) - w).abs().max() <= size * 0.3 + 2e-7
    assert (dense(make(torch.full((3, 64), 0.7))) - 0.7).abs().max() < 1e-3, "all the same"


def test_a_row_that_is_not_finite_gives_no_number():
    for bad in (float("nan"), float("inf")):
        x = torch.randn(3, 64)
        x[1, 40] = bad
        out = multiply(x, int4_blocks(weight(32, 64)))
        assert out[1].isnan().all()
        assert out[[0, 2]].isfinite().all()


def test_rows_are_rounded_to_the_nearest_of_255_steps():
    x = torch.cat([torch.randn(20, 100), torch.zeros(1, 100), torch.full((1, 100), 1e-38)])
    found = torch.from_numpy(rounded(x.numpy()))
    assert found.shape == (4, 22, ROW_GROUP)
    codes = found[..., :GROUP].view(torch.int8).float()
    scale, scaled = (found[..., at : at + 4].contiguous().view(torch.float32) for at in (GROUP, GROUP + 4))
    total = found[..., GROUP + 8 : GROUP + 12].contiguous().view(torch.int32)[..., 0]
    values = (codes * scale).transpose(0, 1).flatten(1)[:, :100]
    assert torch.allclose(values[:20], row_values(x[:20]), atol=1e-6)
    assert (values[20:] == 0).all()
    assert torch.equal(codes.sum(-1).int(), total)
    assert torch.equal(scaled[..., 0], scale[..., 0] * total)


def test_sixteen_bits_where_they_suffice():
    assert [exact_blocks(weight(64, 64, dtype)).nbytes // (64 * 64) for dtype in DTYPES] == [4, 2, 2]


@pytest.mark.parametrize("make", [exact_blocks, int8_blocks, int4_blocks])
def test_a_row_does_not_depend_on_the_others(make):
    blocks, x = make(weight(96, 576, torch.bfloat16)), torch.randn(200, 576)
    whole = multiply(x, blocks)
    for rows in (1, 2, 3, 4, 17, 49, 100):
        assert torch.equal(multiply(x[:rows], blocks), whole[:rows]), f"{rows} rows, to the last bit"


def test_rows_are_picked_as_an_embedding_does():
    blocks, rows = exact_blocks(weight(70, 100, torch.bfloat16)), torch.tensor([0, 69, 31, 32, 5, 5])
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
    (tmp_path / "below").mkdir()
    for name in ("a.py", "below/b.py"):
        (tmp_path / name).write_text("x = 1")
    first = kernels.compiled_in(tmp_path, tmp_path)
    assert kernels.compiled_in(tmp_path, tmp_path) == first
    (tmp_path / "below" / "b.py").write_text("x = 2")
    assert kernels.compiled_in(tmp_path, tmp_path) != first
    mine = kernels.compiled_in(Path(kernels.__file__).parent, Path())
    assert mine.name in Path(multiply_blocks.stats.cache_path).parts
