"""Weights that the real bitsandbytes packs. Users get it on GPUs alone; here it computes on the processor."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ask_in_process import ask
from tiny_adapters import save_adapter
from tiny_models import make_tokenizer, save_sharp_model

from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.pages import Activation
from localctx.kv.pool import Pool
from localctx.models.adapter import load_adapter
from localctx.models.load import load_model, loading_bytes
from localctx.models.quantized import bitsandbytes_layers
from localctx.models.quantized.bitsandbytes_layers import bitsandbytes_options, is_packed
from localctx.models.quantized.weight_formats import refuse_weights

CPU, GPU = torch.device("cpu"), torch.device("cuda")
PRECISIONS = {"f32": torch.float32, "bf16": torch.bfloat16}
TEXT = [(i * 37 + i // 7) % 250 for i in range(200)]


@pytest.fixture
def packing(monkeypatch):
    """Have bitsandbytes pack weights on the processor too."""
    monkeypatch.setattr(bitsandbytes_layers, "DEVICES", ("cuda", "cpu"))


def logits(model, tokens=TEXT, cache=None) -> torch.Tensor:
    cache = cache or Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype)
    return model.forward(tokens, cache, len(tokens)).float()


# What is computed


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "near"), [("int8", 0.06), ("nf4", 0.4)])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_what_packed_weights_compute_is_near_what_full_ones_do(tiny_model, packing, weights, near, dtype):
    full, packed = (load_model(tiny_model, "m", dtype=dtype, weights=w) for w in ("full", weights))
    a, b = logits(full), logits(packed)
    assert not torch.equal(a, b)
    assert (a - b).abs().max() < near * a.abs().max()
    assert "bitsandbytes 0." in packed.computed_by
    assert packed.parameters == full.parameters


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["int8", "nf4"])
def test_kept_pages_are_restored_and_answer_as_a_cold_reading_does(
    tmp_path_factory, document, packing, caplog, weights
):
    model = save_sharp_model(tmp_path_factory.mktemp("models") / "sharp", seed=1)
    home, other = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("other")
    first = ask(home, model, document, weights=weights, question="Where?")
    restored = ask(home, model, document, weights=weights)
    cold = ask(other, model, document, weights=weights)
    assert first.failed is restored.failed is None
    assert cold.reused == first.reused == 0 < restored.reused
    assert restored.ids == cold.ids
    assert len(set(cold.ids)) > 1
    assert ask(home, model, document, weights="full").reused == 0
    assert not [record.name for record in caplog.records if record.name.startswith("bitsandbytes")]


@pytest.mark.slow
def test_pages_are_named_by_the_weights_and_by_who_packed_them(tiny_model, packing, monkeypatch):
    names = [load_model(tiny_model, "m", dtype="f32", weights=w).fingerprint("int8") for w in ("full", "int8", "nf4")]
    monkeypatch.undo()
    names.append(load_model(tiny_model, "m", dtype="f32", weights="int8").fingerprint("int8"))
    assert len({*names}) == 4


@pytest.mark.slow
def test_an_adapter_changes_what_packed_layers_compute(tiny_model, tmp_path, packing):
    adapter = load_adapter(save_adapter(tmp_path / "adapter", tiny_model))
    model = load_model(tiny_model, "m", dtype="f32", weights="nf4")
    model.add_adapter(adapter)
    cache = Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype)
    cache.activation = Activation(adapter.fingerprint, 100)
    plain, changed = logits(model), logits(model, cache=cache)
    assert torch.equal(plain[:100], changed[:100])
    assert (plain[100:] - changed[100:]).abs().max() > 0.01


# Sizes


def save_decoder(folder: Path, family: str, tied: bool) -> Path:
    """A random decoder with biases, or with experts, whose heads are a third of its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 2000, "hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
    more = experts if "moe" in family else {}
    config = AutoConfig.for_model(family, **sizes, **heads, **more, tie_word_embeddings=tied)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def tensor_bytes() -> int:
    """The bytes of all tensors that are alive in this process, each storage once."""
    gc.collect()
    storages = (t.untyped_storage() for t in gc.get_objects() if isinstance(t, torch.Tensor) and t.device == CPU)
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["int8", "nf4"])
@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(
    ("family", "tied"), [("llama", True), ("llama", False), ("qwen2", True), ("qwen2", False), ("qwen3_moe", False)]
)
def test_plan_is_within_a_hundredth_of_what_is_allocated(run, tmp_path, packing, weights, dtype, family, tied):
    """The last layer is not packed."""
    folder = save_decoder(tmp_path / "m", family, tied)
    shown = run("plan", "--json", "--model", folder, "--dtype", dtype, "--weights", weights)
    planned = json.loads(shown.stdout)["weights_bytes"]
    before = tensor_bytes()
    model = load_model(folder, "m", dtype=dtype, weights=weights)
    allocated = tensor_bytes() - before
    assert planned == pytest.approx(allocated, rel=0.01)
    assert model.nbytes == pytest.approx(allocated, rel=0.01)
    assert loading_bytes(folder, CPU, PRECISIONS[dtype], weights) == planned


@pytest.mark.slow
def test_an_output_layer_counts_in_full_where_a_gpu_is_planned_that_is_not_here(run, tmp_path, monkeypatch):
    """bitsandbytes is not needed for that."""
    monkeypatch.setattr(bitsandbytes_layers, "find_spec", lambda name: None)
    bytes_of = {}
    for tied in (True, False):
        config = save_decoder(tmp_path / str(tied), "llama", tied) / "config.json"
        gpu = ("--device", "cuda", "--device-memory", "24GiB", "--dtype", "bf16", "--weights", "nf4")
        bytes_of[tied] = json.loads(run("plan", "--json", "--config", config, *gpu).stdout)["weights_bytes"]
    assert bytes_of[False] - bytes_of[True] == 2000 * 128 * 2


# Where it is needed


def test_a_processor_is_left_to_our_blocks():
    assert not is_packed("int8", CPU)
    assert bitsandbytes_options("int8", CPU) == bitsandbytes_options("full", GPU) == {}
    refuse_weights("nf4", GPU, torch.bfloat16)


def test_a_gpu_needs_bitsandbytes(monkeypatch):
    monkeypatch.setattr(bitsandbytes_layers, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"int8 weights on a GPU need bitsandbytes; pip install 'localctx\[gpu\]'"):
        bitsandbytes_options("int8", GPU)


@pytest.mark.slow
def test_its_layers_are_placed_on_the_gpu_while_they_are_loaded():
    from localctx.models.quantized.quantizing_loaders import packing_options

    options = packing_options(None, "nf4", GPU)
    assert options["device_map"] == {"": GPU}
    assert options["quantization_config"].bnb_4bit_quant_type == "nf4"


@pytest.mark.slow
def test_it_neither_fetches_code_nor_says_anything_when_it_is_imported(tmp_path):
    """On processors with AVX-512 BF16 it would run code from the hub, by the library ``kernels``, where that is."""
    (tmp_path / "kernels.py").write_text("def get_kernel(*args, **how): print('fetched')\n")
    code = """
import sys, torch
from localctx.models.quantized.bitsandbytes_layers import bitsandbytes_options
bitsandbytes_options("nf4", torch.device("cuda"))
assert "bitsandbytes" in sys.modules and "kernels" not in sys.modules
import kernels
assert kernels.__file__.startswith(sys.argv[1])
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_bitsandbytes_that_does_not_load_is_told_in_one_line(monkeypatch):
    def fail() -> None:
        raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.setattr(bitsandbytes_layers, "_import_bitsandbytes", fail)
    with pytest.raises(ModelError, match=r"bitsandbytes does not load \(libcudart.*or use --weights full"):
        bitsandbytes_options("int8", GPU)
