"""Weights in blocks that are kept in a file beside the model: the same model, and never one of other files."""

import json
import os
import shutil

import numpy as np
import pytest
import torch

from localctx.kernels.cpu.linear import exact_blocks, int4_blocks, int8_blocks
from localctx.models.decoder import native_decoder
from localctx.models.files import block_file
from localctx.models.files.block_file import BlockFile, read_blocks, source_files, write_blocks
from localctx.models.load import load_model


@pytest.fixture
def folder(tmp_path, tiny_model):
    """The folder of an installed model."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "localctx.json").write_text(json.dumps({"source": {"kind": "hub"}}))
    return folder


@pytest.fixture
def content():
    """Three matrices, of which one does not fill its last block, and a vector."""
    weight = torch.randn(70, 64, generator=torch.Generator().manual_seed(0))
    blocks = {"a": int4_blocks(weight), "b": int8_blocks(weight), "c": exact_blocks(weight.bfloat16())}
    return BlockFile(blocks, {"d": np.arange(3, dtype=np.float32)}, {"model.safetensors": "a hash"})


def written(folder, content):
    assert write_blocks(folder, "int4", source_files(folder), content)
    return folder / "blocks-int4.bin"


def test_matrices_are_read_as_they_were_written(folder, content):
    written(folder, content)
    found = read_blocks(folder, "int4")
    assert found.hashes == content.hashes
    assert found.blocks.keys() == content.blocks.keys()
    for name, matrix in content.blocks.items():
        assert found.blocks[name]._replace(codes=0) == matrix._replace(codes=0)
        np.testing.assert_array_equal(found.blocks[name].codes, matrix.codes)
    np.testing.assert_array_equal(found.vectors["d"], content.vectors["d"])
    assert {type(matrix.codes) for matrix in found.blocks.values()} == {np.ndarray}  # kernels know no other type
    assert read_blocks(folder, "int8") is None
    assert not list(folder.glob("*.partial"))


def test_a_file_that_was_damaged_is_made_again(folder, content):
    path = written(folder, content)
    good = path.read_bytes()
    header, others = good.replace(b"a hash", b"b hash"), (b"", b"[]\n", b"{}\n" + good, b"\xff" * 10)
    for damaged in (header, good[:-1] + b"x", good[:-4096], good[:100], *others):
        path.write_bytes(damaged)
        assert read_blocks(folder, "int4") is None, len(damaged)
    path.write_bytes(good)
    assert read_blocks(folder, "int4")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "published.blocks"])
def test_blocks_of_other_files_are_not_read(folder, content, name):
    path = folder / name
    path.touch()
    written(folder, content)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert read_blocks(folder, "int4") is None


def test_blocks_of_another_version_are_not_read(folder, content, monkeypatch):
    written(folder, content)
    monkeypatch.setattr(block_file, "VERSION", "0")
    assert read_blocks(folder, "int4") is None


def test_what_an_interrupted_process_left_is_removed(folder, content, monkeypatch):
    (folder / "blocks-int4.partial").write_bytes(b"half")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(block_file, "_pieces", full)
        assert not write_blocks(folder, "int4", source_files(folder), content)
    assert not list(folder.glob("*.partial"))
    written(folder, content)


def test_without_room_nothing_is_written(folder, content, monkeypatch):
    monkeypatch.setattr(block_file.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    assert not write_blocks(folder, "int4", source_files(folder), content)
    assert not list(folder.glob("blocks-*.bin"))


@pytest.mark.parametrize("stored", ["int8", "int4"])
def test_a_model_that_is_loaded_again_is_the_same_and_maps_its_weights(folder, monkeypatch, stored):
    first = load_model(folder, "m", "cpu", "f32", weights=stored)
    for name in ("grouped_blocks", "get_tensor"):
        monkeypatch.setattr(native_decoder, name, lambda *_: pytest.fail("the model's own files are read again"))
    second = load_model(folder, "m", "cpu", "f32", weights=stored)
    assert (second.fingerprint("int8"), second.nbytes) == (first.fingerprint("int8"), first.nbytes)
    for name, matrix in first._weights.blocks.items():
        np.testing.assert_array_equal(second._weights.blocks[name].codes, matrix.codes)


def test_nothing_is_written_beside_a_model_that_localctx_did_not_install_or_in_full_precision(folder):
    load_model(folder, "m", "cpu", "f32", weights="full")
    (folder / "localctx.json").unlink()
    load_model(folder, "m", "cpu", "f32", weights="int4")
    assert not list(folder.glob("blocks-*"))
