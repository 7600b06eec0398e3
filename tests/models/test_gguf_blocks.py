"""Blocks that a GGUF published are computed with as they are, exactly."""

import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny_gguf
import torch
from safetensors.torch import load_file
from tiny_gguf import HEADS, LAYERS, tensors, tiny_llama, write_gguf

from localctx.kernels.cpu.linear import dense, multiply
from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED
from localctx.models.choice.sizing import sizing_of
from localctx.models.files.gguf_blocks import FILE_NAME, GgufBlocks, groups_of
from localctx.models.hub.convert import convert_gguf
from localctx.models.load import load_model

TYPES = [gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0]
Q4_K, Q6_K = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K


def quantized_gguf(path: Path, kind: gguf.GGMLQuantizationType) -> Path:
    """The tiny Llama with matrices of this kind, and its output layer and embedding in Q8_0."""
    return write_gguf(path, kinds={name: kind_of(name, kind) for name in tensors()})


def kind_of(name: str, kind: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType | None:
    if "norm" in name:
        return None
    return kind if name.startswith("blk") else gguf.GGMLQuantizationType.Q8_0


def published(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a GGUF as its own library dequantizes them."""
    tensors = gguf.GGUFReader(path).tensors
    return {t.name: gguf.dequantize(t.data, t.tensor_type).copy() for t in tensors}


@pytest.fixture(params=TYPES, ids=lambda kind: kind.name)
def converted(request, tmp_path) -> tuple[Path, Path, str]:
    """A GGUF, the folder that is made of it, and the weights that are its own."""
    path, out = quantized_gguf(tmp_path / "m.gguf", request.param), tmp_path / "out"
    convert_gguf(path, out, lambda *_: None)
    return path, out, "int8" if request.param.name == "Q8_0" else "int4"


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_blocks_mean_what_their_library_says(kind):
    torch.manual_seed(0)
    raw = gguf.quantize(torch.randn(48, 96).numpy(), kind)
    blocks = torch.from_numpy(raw).unflatten(1, (3, -1))
    found = groups_of(blocks, int(kind))
    numbers = found.codes.float() * found.scales.float()[..., None]
    numbers += 0 if found.minima is None else found.minima.float()[..., None]
    assert torch.equal(numbers.flatten(1), torch.from_numpy(gguf.dequantize(raw, kind)))


def test_the_blocks_of_a_gguf_are_multiplied_by_as_they_are(converted):
    path, out, weights = converted
    expected, model = published(path), load_model(out, "m", dtype="f32", weights=weights)
    for i in range(LAYERS):
        entry, exits = model._weights.layers[i]
        assert entry.qkv.kind == exits.down.kind == {"int8": SIGNED, "int4": NIBBLES}[weights]
        at = f"blk.{i}."
        assert torch.equal(dense(exits.down), torch.from_numpy(expected[f"{at}ffn_down.weight"]))
        both = [expected[f"{at}ffn_{name}.weight"] for name in ("gate", "up")]
        assert torch.equal(dense(exits.gate_up), torch.from_numpy(np.concatenate(both)))
        q = torch.from_numpy(expected[f"{at}attn_q.weight"])
        halves = q.unflatten(0, (HEADS, -1, 2)).transpose(1, 2).flatten(0, 2)
        assert torch.equal(dense(entry.qkv)[: len(q)], halves), "rows in the order that our RoPE takes"
    assert torch.equal(dense(model._weights.head), torch.from_numpy(expected["output.weight"]))


def test_a_product_is_that_of_the_published_numbers(converted):
    path, out, weights = converted
    model, x = load_model(out, "m", dtype="f32", weights=weights), torch.randn(5, 96)
    down = torch.from_numpy(published(path)["blk.0.ffn_down.weight"])
    got = multiply(x, model._weights.layers[0][1].down)
    assert (got - x @ down.T).abs().max() < 0.02 * got.abs().max(), "but for the rounding of rows"


def test_other_bits_than_the_published_ones_are_quantized(converted):
    _, out, weights = converted
    other = {"int8": "int4", "int4": "int8"}[weights]
    model = load_model(out, "m", dtype="f32", weights=other)
    assert model._weights.layers[0][1].down.kind == {"int8": SIGNED, "int4": NIBBLES}[other]


def test_pages_of_published_blocks_are_other_pages_than_those_of_blocks_that_were_made(converted, tmp_path):
    _, out, weights = converted
    without = tmp_path / "without"
    shutil.copytree(out, without, ignore=shutil.ignore_patterns(FILE_NAME))
    assert not GgufBlocks(without).hashes
    names = {
        (folder.name, w): load_model(folder, "m", dtype="f32", weights=w).fingerprint("int8")
        for folder in (out, without)
        for w in ("full", weights)
    }
    assert names["out", "full"] == names["without", "full"], "16 bits are the same"
    assert names["out", weights] != names["without", weights]


@pytest.fixture
def mixed(tmp_path, monkeypatch) -> tuple[Path, Path]:
    """A GGUF as of Q4_K_M, with values and a down projection in Q6_K, an output in F16, and the folder made of it."""
    monkeypatch.setattr(tiny_gguf, "WIDTH", 256)
    monkeypatch.setattr(tiny_gguf, "INNER", 256)
    kinds = {name: Q4_K for name in tensors() if name.startswith("blk") and "norm" not in name}
    kinds |= dict.fromkeys(["blk.0.attn_v.weight", "blk.1.ffn_down.weight", "output.weight"], Q6_K)
    kinds["blk.1.attn_output.weight"] = gguf.GGMLQuantizationType.F16
    path, out = write_gguf(tmp_path / "mixed.gguf", kinds=kinds), tmp_path / "mixed"
    convert_gguf(path, out, lambda *_: None)
    return path, out


def test_q4_k_means_what_its_library_says():
    raw = tiny_gguf.quantized(np.zeros((48, 768), np.float32), Q4_K)
    found = groups_of(torch.from_numpy(raw).unflatten(1, (3, -1)), int(Q4_K))
    numbers = found.codes.float() * found.scales.float()[..., None] + found.minima.float()[..., None]
    exact = torch.from_numpy(gguf.dequantize(raw, Q4_K))
    step = found.scales.float().repeat_interleave(32, 1)
    assert ((numbers.flatten(1) - exact).abs() <= 0.02 * step + 2**-11 * exact.abs().max()).all()
    assert found.inputs == 768


def test_matrices_that_a_file_of_four_bits_keeps_at_more_are_at_eight(mixed):
    path, out = mixed
    expected, model = published(path), load_model(out, "m", dtype="f32", weights="int4")
    kinds = [(e.qkv.kind, x.output.kind, x.gate_up.kind, x.down.kind) for e, x in model._weights.layers]
    assert kinds == [(SIGNED, NIBBLES, NIBBLES, NIBBLES), (NIBBLES, SIGNED, NIBBLES, SIGNED)]
    for i, (entry, exits) in enumerate(model._weights.layers):
        for name, got in (
            ("attn_v", dense(entry.qkv)[-128:]),
            ("attn_output", dense(exits.output)),
            ("ffn_down", dense(exits.down)),
        ):
            exact = torch.from_numpy(expected[f"blk.{i}.{name}.weight"])
            assert (got - exact).abs().max() < exact.abs().max() / 127, "no coarser than 8 bits"


def test_pages_say_that_some_matrices_are_at_eight_bits(converted, mixed):
    assert set(GgufBlocks(mixed[1]).hashes) == {FILE_NAME, f"{FILE_NAME} finer"}
    assert set(GgufBlocks(converted[1]).hashes) == {FILE_NAME}


def test_plans_count_the_matrices_that_are_at_eight_bits(mixed):
    _, out = mixed
    assert len(GgufBlocks(out).finer) == 5, "queries, keys and values of one layer, an output and a down projection"
    planned, taken = _int4_bytes(out)
    (out / FILE_NAME).unlink()
    planned_without, taken_without = _int4_bytes(out)
    assert planned - planned_without == taken - taken_without > 0


def _int4_bytes(folder: Path) -> tuple[int, int]:
    """The bytes of int4 weights that a plan counts, and those that are loaded."""
    taken = load_model(folder, "m", dtype="f32", weights="int4")._weights.nbytes
    return sizing_of(folder / "config.json", torch.float32, "int4").weights, taken


def test_a_damaged_file_of_blocks_is_left_alone(converted):
    _, out, weights = converted
    (out / FILE_NAME).write_bytes(b"nothing of the kind")
    assert load_model(out, "m", dtype="f32", weights=weights).parameters > 0
    assert not GgufBlocks(out).hashes


def test_blocks_are_not_kept_where_they_are_not_the_weights(tmp_path):
    """Full weights are not published in blocks."""
    convert_gguf(write_gguf(tmp_path / "m.gguf"), tmp_path / "out", lambda *_: None)
    assert not (tmp_path / "out" / FILE_NAME).exists()
    assert load_file(tmp_path / "out/model.safetensors")
    assert tiny_llama().num_parameters() == load_model(tmp_path / "out", "m", dtype="f32", weights="int4").parameters
