"""Which layers of a GGUF go to a GPU."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from required_extras import needs_llama
from tiny_ggufs import FAMILIES, LAYERS, write_tiny_gguf

from localctx.models.files.gguf_file import open_gguf
from localctx.models.llama_cpp.gpu_layers import ALL, CONTEXT, SPARE, GpuLayers, fitting_layers, gpu_layers
from localctx.models.llama_cpp.model import native_layers
from localctx.models.llama_cpp.trial import ContextBytes, LlamaSizes

BYTES = st.integers(0, 1 << 33)
CODEC = "f16"


@given(st.lists(BYTES, min_size=1, max_size=80), BYTES, BYTES, st.integers(0, 1 << 38))
def test_what_fits_is_within_the_room_and_one_more_is_not(layers, output, compute, room):
    count = fitting_layers(layers, output, compute, room)
    order = [output, *reversed(layers)]
    assert 0 <= count <= len(order)
    assert not count or compute + sum(order[:count]) <= room
    assert count == len(order) or compute + sum(order[: count + 1]) > room


@given(st.lists(BYTES, min_size=1, max_size=80), BYTES, BYTES, BYTES, BYTES)
def test_more_room_holds_no_fewer_layers(layers, output, compute, room, more):
    few, many = (fitting_layers(layers, output, compute, r) for r in (room, room + more))
    assert few <= many


@given(st.floats(0, 1), BYTES, BYTES, BYTES)
def test_a_context_within_the_limit_fits_both_memories(part, device, ram, weights):
    limit = GpuLayers(3, 9, weights, part).context_limit(device, ram)
    assert limit * part <= device + 1
    assert limit * (1 - part) <= ram + 1
    assert ALL.context_limit(device, ram) == device


@pytest.fixture(params=FAMILIES)
def gguf(request, tmp_path):
    return open_gguf(write_tiny_gguf(tmp_path / "model.gguf", request.param))


@pytest.fixture
def sizes() -> LlamaSizes:
    contexts = ContextBytes(8192, 8192e5, 1e6, 1e8), ContextBytes(65536, 65536e5, 1e6, 8e8)
    return LlamaSizes(1, CONTEXT, 0, False, True, [], True, {CODEC: contexts})


def test_the_layers_of_a_file_go_to_the_gpu_from_the_last_on(gguf, sizes):
    need = sizes.at(CODEC, CONTEXT).need
    tied = gguf.tensor_bytes["token_embd.weight"]
    whole = need.total + gguf.nbytes + SPARE
    everything = gpu_layers(gguf, sizes, whole)
    assert (everything.count, everything.of, everything.kv) == (LAYERS + 1, LAYERS + 1, 1.0)
    norm = gguf.tensor_bytes.get("token_embd_norm.weight", 0)  # lfm2's stands for output_norm
    assert everything.weights == gguf.nbytes - norm  # embeddings stay in RAM, and are the output layer once more
    assert native_layers(torch.device("cuda"), everything) == -1
    nothing = gpu_layers(gguf, sizes, SPARE)
    assert (nothing.count, nothing.weights, nothing.kv) == (0, 0, 0.0)
    half = gpu_layers(gguf, sizes, SPARE + need.working + tied + gguf.nbytes + need.kv / 2)
    assert 1 < half.count < LAYERS + 1
    assert 0 < half.kv < 1
    assert native_layers(torch.device("cuda"), half) == half.count
    assert native_layers(torch.device("cpu"), ALL) == 0


@pytest.mark.slow
@needs_llama
def test_plan_says_how_many_layers_fit(home, tmp_path, run):
    path = write_tiny_gguf(tmp_path / "model.gguf", "llama")
    command = ["plan", "--model", path, "--engine", "llama.cpp", "--device", "cuda", "--device-memory"]
    for memory, layers in (("8GiB", LAYERS + 1), ("1MiB", 0)):
        done = run(*command, memory)
        assert done.returncode == 0
        assert f"GPU layers   {layers} of {LAYERS + 1}" in done.stdout
    assert "GPU layers" not in run("plan", "--model", path, "--engine", "llama.cpp", "--device", "cpu").stdout
