"""Dot products of bytes: the same integers by every instruction, and which one each processor has."""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding, ir

from localctx.kernels.llvm.integer_dot import (
    DOT,
    SIGNED,
    SMALL,
    DotInstruction,
    bytes_at,
    dot,
    dot_instruction,
    four_everywhere,
)
from localctx.kernels.llvm.processor import FEATURES

QUADS = 8
X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
HOST_OPS = sorted(
    {
        DOT,
        DotInstruction("plain", 8),
        DotInstruction("plain", 16),
        *([DotInstruction("avx2", 8)] if "+avx2" in FEATURES else []),
    }
)


def module_of(op: DotInstruction, codes_are: str) -> ir.Module:
    """A function of the addresses of codes [8, lanes, 4], x [8, 4] and sums [lanes]."""
    module = ir.Module()
    word = ir.IntType(64)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [word] * 3), "sum_of_products")
    b = ir.IRBuilder(function.append_basic_block())
    codes, x, out = function.args
    pairs = [
        (
            bytes_at(b, op, b.add(codes, word(4 * op.lanes * i))),
            four_everywhere(b, op, b.add(x, word(4 * i))),
        )
        for i in range(QUADS)
    ]
    sums = dot(b, op, codes_are, pairs)
    b.store(sums, b.inttoptr(out, sums.type.as_pointer()), align=1)
    b.ret_void()
    return module


def machine_of(triple: str, cpu: str, features: str) -> binding.TargetMachine:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3)


def assembly(op: DotInstruction, codes_are: str, triple: str, cpu: str, features: str) -> str:
    parsed = binding.parse_assembly(str(module_of(op, codes_are)))
    parsed.verify()
    return machine_of(triple, cpu, features).emit_assembly(parsed)


@pytest.fixture(scope="module", params=[(op, kind) for op in HOST_OPS for kind in (SMALL, SIGNED)], ids=str)
def compiled(request):
    """The function of an instruction that this processor has, with the instruction and its kind of codes."""
    op, codes_are = request.param
    machine = machine_of(binding.get_process_triple(), binding.get_host_cpu_name(), FEATURES)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module_of(op, codes_are))), machine)
    engine.finalize_object()
    address = engine.get_function_address("sum_of_products")
    yield ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address), op, codes_are
    del engine


@given(seed=st.integers(0, 2**32 - 1), extreme=st.booleans())
@settings(max_examples=30, deadline=None)
def test_every_instruction_gives_the_exact_sums(compiled, seed, extreme):
    run, op, codes_are = compiled
    draw = np.random.default_rng(seed)
    low, high = (0, 15) if codes_are == SMALL else (-128, 127)
    codes = (
        draw.choice([low, high], (QUADS, op.lanes, 4))
        if extreme
        else draw.integers(low, high + 1, (QUADS, op.lanes, 4))
    )
    x = draw.choice([-127, 127], (QUADS, 4)) if extreme else draw.integers(-127, 128, (QUADS, 4))
    offset = op.offset if codes_are == SIGNED else 0
    stored, factors, sums = codes.astype(np.int8), x.astype(np.int8), np.zeros(op.lanes, np.int32)
    run(stored.ctypes.data, factors.ctypes.data, sums.ctypes.data)
    assert (sums == ((codes + offset) * x[:, None]).sum((0, 2))).all()


@pytest.mark.parametrize("codes_are", [SMALL, SIGNED])
@pytest.mark.parametrize(
    ("triple", "cpu", "features", "lanes", "register"),
    [
        (X86, "sapphirerapids", "+avx512vnni,+avx512vl,+avx512f", 16, "zmm"),
        (X86, "znver4", "+avx512vnni,+avx512vl,+avx512f", 8, "ymm"),
        (X86, "alderlake", "+avxvnni,+avx2", 8, "ymm"),
    ],
)
def test_vnni_multiplies_by_vpdpbusd(codes_are, triple, cpu, features, lanes, register):
    op = dot_instruction(features, lanes)
    assert op == DotInstruction("vnni", lanes)
    lines = [line for line in assembly(op, codes_are, triple, cpu, features).splitlines() if "vpdpbusd" in line]
    assert len(lines) == QUADS
    assert all(register in line for line in lines)


@pytest.mark.parametrize("codes_are", [SMALL, SIGNED])
@pytest.mark.parametrize("cpu", ["apple-m1", "neoverse-n1"])
def test_arm_multiplies_by_sdot(codes_are, cpu):
    op = dot_instruction("+neon,+dotprod", 8)
    assert op == DotInstruction("sdot", 8)
    text = assembly(op, codes_are, ARM, cpu, "+neon,+dotprod")
    assert sum(line.strip().startswith("sdot") for line in text.splitlines()) == 2 * QUADS, "vectors of 4 lanes"


def test_avx2_multiplies_bytes_in_pairs_and_small_codes_without_widening_each():
    features = "+avx2,+fma,+f16c"
    small, signed = (assembly(dot_instruction(features, 8), kind, X86, "haswell", features) for kind in (SMALL, SIGNED))
    assert [text.count("vpmaddubsw") for text in (small, signed)] == [QUADS, QUADS]
    assert [text.count("vpmaddwd") for text in (small, signed)] == [1, QUADS]
    assert signed.count("vpsignb") == QUADS


def test_other_processors_compute_without_such_instructions():
    assert dot_instruction("+sse2,-avx2", 8) == dot_instruction("+neon", 8) == DotInstruction("plain", 8)
    assert dot_instruction("+avx2,+avx512f,+avx512vl", 16) == DotInstruction("avx2", 8), "AVX-512 without VNNI"
    assert "mul" in assembly(DotInstruction("plain", 8), SIGNED, X86, "x86-64", "")
    assert "sdot" not in assembly(DotInstruction("plain", 8), SIGNED, ARM, "cortex-a72", "+neon")
