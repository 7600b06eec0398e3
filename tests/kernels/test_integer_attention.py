"""Products of pages' bytes by integers: near those of float32, the same whoever computes, by the right instruction."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding, ir
from numba import njit

from localctx.kernels import decode_batch_cpu
from localctx.kernels.integer_attention import (
    GREATEST,
    MIDDLE,
    WAY,
    Block,
    IntegerWay,
    emit_product,
    multiply_bytes,
    way_of,
)
from localctx.kernels.processor import FEATURES
from localctx.kv.codecs import make_codec
from localctx.kv.page_format import layout_of
from localctx.shape import PAGE, LayerShape

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
PLAIN = IntegerWay("plain", 8)


@njit
def multiply(x, scales, zeros, codes, columns, room, out):
    multiply_bytes(x, scales, zeros, codes, columns, 0, room, out)


def block_of(rng, inputs, columns):
    """Codes, scales and zeros."""
    codes = rng.integers(0, 256, (inputs, columns)).astype(np.uint8)
    return codes, (rng.random(inputs) + 0.01).astype(np.float16), rng.standard_normal(inputs).astype(np.float16)


def by_integers(x, codes, scales, zeros):
    """What the kernel computes."""
    out, room = np.zeros((len(x), codes.shape[1]), np.float32), np.empty_like(x)
    at = (array.ctypes.data for array in (scales, zeros, codes))
    multiply(x, *at, codes.shape[1], room, out)
    return out


def exact(x, codes, scales, zeros):
    """The same integers by numpy, and sums in float64."""
    scaled = x * scales.astype(np.float32)
    tops = np.abs(scaled).max(1, keepdims=True)
    integers = np.rint(scaled.astype(np.float64) * (np.float32(GREATEST) / tops)).astype(np.int64)
    middle = scales.astype(np.float64) * MIDDLE + zeros.astype(np.float64)
    return (integers @ (codes.astype(np.int64) - MIDDLE)) * (tops / GREATEST) + x.astype(np.float64) @ middle[:, None]


@given(
    rows=st.integers(1, 9),
    inputs=st.sampled_from([8, 64, 128, 256, 512]),
    columns=st.sampled_from([32, 64, 96, 128]),
    seed=st.integers(0, 2**32 - 1),
    extreme=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_products_are_those_of_the_integers(rows, inputs, columns, seed, extreme):
    rng = np.random.default_rng(seed)
    codes, scales, zeros = block_of(rng, inputs, columns)
    x = rng.standard_normal((rows, inputs)).astype(np.float32)
    if extreme:  # all as great as can be
        codes[:], x[:], scales[:] = 255, rng.choice([-3, 3], (rows, 1)), 1
    found, right = by_integers(x, codes, scales, zeros), exact(x, codes, scales, zeros)
    assert np.abs(found - right).max() <= 2e-6 * np.abs(right).max() + 128 * 0.6 * np.abs(x).max() / GREATEST
    reference = x.astype(np.float64) @ (codes * scales.astype(np.float64)[:, None] + zeros.astype(np.float64)[:, None])
    bound = inputs * 128 * 0.5 * np.abs(x * scales).max() / GREATEST
    assert np.abs(found - reference).max() <= bound + 2e-6 * np.abs(reference).max()


@given(rows=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_a_row_is_the_same_to_the_bit_beside_others(rows, seed):
    rng = np.random.default_rng(seed)
    block = block_of(rng, 64, 64)
    x = rng.standard_normal((rows, 64)).astype(np.float32) * rng.choice([1e-6, 1, 1e6], (rows, 1)).astype(np.float32)
    together = by_integers(x, *block)
    for row in range(rows):
        assert np.array_equal(by_integers(x[row : row + 1], *block)[0], together[row])


def test_zeros_stay_zeros_and_what_is_no_number_is_not_hidden():
    block = block_of(np.random.default_rng(0), 64, 64)
    x = np.zeros((3, 64), np.float32)
    x[1, 3], x[2, 5] = np.nan, 1e-38
    found = by_integers(x, *block)
    assert not found[0].any()
    assert np.isnan(found[1]).all()
    assert np.abs(found[2]).max() < 1e-30


@pytest.mark.parametrize(("shape", "heads"), [(LayerShape(3, 64, 64), 9), (LayerShape(2, 128, 96), 8)])
def test_attention_by_integers_is_near_that_of_float32(shape, heads):
    torch.manual_seed(1)
    codec, pages = make_codec("int8", shape), 20
    k, v = (torch.randn(shape.kv_heads, pages * PAGE, dim) for dim in (shape.k_dim, shape.v_dim))
    records = codec.encode(k + 5 * torch.randn(shape.kv_heads, 1, shape.k_dim), v)
    addresses = np.array([record.data_ptr() for record in records], np.int64)
    layout, q = layout_of(codec, make_codec("bf16", shape)), torch.randn(heads, shape.k_dim).numpy()
    (out, lse, _), (other, other_lse, _) = (
        decode_batch_cpu.attend_pages(q, addresses, np.zeros(pages, np.uint8), layout._replace(integers=way), 0.2)
        for way in (True, False)
    )
    assert not np.array_equal(out, other), "both are the same kernel"
    assert np.abs(out - other).max() < 5e-4  # the keys' offset makes scores of 30
    assert np.abs(lse - other_lse).max() < 5e-4


# Instructions


def module_of(way: IntegerWay, rows: int) -> ir.Module:
    """A function of the arguments of a product."""
    module, word = ir.Module(), ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * 11), "multiply")
    b = ir.IRBuilder(function.append_basic_block())
    emit_product(b, way, rows, Block(*function.args))
    b.ret_void()
    return module


def machine_of(triple: str, cpu: str, features: str) -> binding.TargetMachine:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)


def assembly(way: IntegerWay, triple: str, cpu: str, features: str) -> list[str]:
    """The names of the instructions for a product of three rows."""
    machine = machine_of(triple, cpu, features)
    parsed = binding.parse_assembly(str(module_of(way, 3)))
    parsed.verify()
    tuned = binding.create_pipeline_tuning_options(speed_level=3)
    builder = binding.create_pass_builder(machine, tuned)
    builder.getModulePassManager().run(parsed, builder)
    return [line.split()[0] for line in machine.emit_assembly(parsed).splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "widest", "way", "instruction", "count"),
    [
        # three rows, two vectors, high and low bytes; in both halves of a tile, in tiles of 64 and of 32 columns
        (X86, "sapphirerapids", "+avx512f,+avx512vl,+avx512vnni", 16, ("vpdpbusd", 16), "vpdpbusd", 48),
        (X86, "znver4", "+avx512f,+avx512vl,+avx512vnni", 8, ("vpdpbusd", 8), "vpdpbusd", 24),
        (X86, "haswell", "+avx2,+fma,+f16c", 8, ("pmaddwd", 8), "vpmaddwd", 24),
        (X86, "skylake-avx512", "+avx2,+fma,+f16c,+avx512f,+avx512vl", 16, ("pmaddwd", 8), "vpmaddwd", 24),
        (ARM, "apple-m1", "+neon,+dotprod", 8, ("sdot", 4), "sdot", 24),
        (ARM, "neoverse-n1", "+neon,+dotprod", 8, ("sdot", 4), "sdot", 24),
        (ARM, "apple-m2", "+neon,+dotprod,+i8mm", 8, ("usdot", 4), "usdot", 24),
    ],
)
def test_a_processor_multiplies_by_its_own_instruction(triple, cpu, features, widest, way, instruction, count):
    assert way_of(features, widest) == way
    assert assembly(IntegerWay(*way), triple, cpu, features).count(instruction) == count


def test_other_processors_keep_to_float32():
    assert way_of("+sse2,-avx2", 8) == way_of("+neon", 8) == PLAIN
    assert not PLAIN.faster
    assert IntegerWay("pmaddwd", 8).faster


def test_plain_code_gives_the_same_bits_as_this_processors_instruction():
    import ctypes

    rng = np.random.default_rng(4)
    codes, scales, zeros = block_of(rng, 128, 64)
    x = rng.standard_normal((3, 128)).astype(np.float32)
    found = []
    for way in {WAY, PLAIN}:
        machine = machine_of(binding.get_process_triple(), binding.get_host_cpu_name(), FEATURES)
        engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module_of(way, 3))), machine)
        engine.finalize_object()
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 11)(engine.get_function_address("multiply"))
        out, room = np.zeros((3, 64), np.float32), np.empty((3, 128), np.float32)
        at = [array.ctypes.data for array in (scales, zeros, codes)]
        run(x.ctypes.data, 128, 128, *at, 0, room.ctypes.data, out.ctypes.data, 64, 64)
        found.append(out)
    assert all(np.array_equal(out, by_integers(x, codes, scales, zeros)) for out in found)
