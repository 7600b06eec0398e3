"""Rows times the matrices of the experts that they chose."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.kernels.cpu.experts import exact_expert_blocks, int8_expert_blocks, multiply_experts
from localctx.kernels.cpu.linear import dense
from localctx.kernels.llvm.integer_product import rounded
from localctx.kernels.llvm.weight_groups import GROUP

BLOCKS = [exact_expert_blocks, int8_expert_blocks]


@pytest.mark.parametrize("make", BLOCKS)
@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=6), outputs=st.integers(1, 70), inputs=st.integers(1, 130)
)
@settings(max_examples=20, deadline=None)
def test_each_row_is_multiplied_by_the_matrix_of_its_expert(make, counts, outputs, inputs):
    torch.manual_seed(outputs)
    blocks = make(torch.randn(len(counts), outputs, inputs))
    chosen = [expert for expert, count in enumerate(counts) if count]
    x = torch.randn(sum(counts), inputs)
    ends = [sum(counts[: expert + 1]) for expert in chosen]
    got = multiply_experts(x, chosen, ends, blocks)
    x = x if make is exact_expert_blocks else as_rounded(x)
    parts = [rows @ dense(blocks.of(expert)).T for expert, rows in enumerate(x.split(counts))]
    assert torch.allclose(got, torch.cat(parts), atol=1e-3)


def as_rounded(x: torch.Tensor) -> torch.Tensor:
    """Rows as products with weights at 8 bits take them: int8, with a scale for each group."""
    records = torch.from_numpy(rounded(x.numpy()))  # [groups, rows, bytes]
    codes = records[..., :GROUP].contiguous().view(torch.int8).float()
    scales = records[..., GROUP : GROUP + 4].contiguous().view(torch.float32)
    return (codes * scales).transpose(0, 1).flatten(1)[:, : x.shape[1]]


@pytest.mark.parametrize("make", BLOCKS)
def test_a_row_does_not_depend_on_the_others(make):
    torch.manual_seed(0)
    blocks, x = make(torch.randn(3, 96, 160)), torch.randn(120, 160)
    whole = multiply_experts(x, [0, 2], [70, 120], blocks)
    assert torch.equal(multiply_experts(x[5:6], [0], [1], blocks), whole[5:6])
    assert torch.equal(multiply_experts(x[60:90], [0, 2], [10, 30], blocks), whole[60:90])


def test_sixteen_bits_where_they_suffice_for_all_experts():
    narrow = torch.randn(2, 32, 64).bfloat16().float()
    mixed = torch.stack([narrow[0], narrow[0] + 1e-6])
    assert exact_expert_blocks(narrow).nbytes == 2 * narrow.numel() == exact_expert_blocks(narrow.bfloat16()).nbytes
    assert exact_expert_blocks(mixed).nbytes == 4 * mixed.numel()
    assert exact_expert_blocks(mixed).size == mixed.numel()
