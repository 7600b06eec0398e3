"""Mixtures of experts in few bits: what they compute, what they take, and what is read of a checkpoint at a time."""

import json
from weakref import WeakSet

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_family_configs import tiny_config
from tiny_models import make_tokenizer

from localctx.errors import ModelError
from localctx.kernels.cpu.linear import dense
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.load import load_model
from localctx.models.quantized import bitsandbytes_layers, dequantized_experts, quantizing_loaders
from localctx.models.quantized.blocked_linear import BlockedExperts, block_linears
from localctx.models.quantized.dequantized_experts import PACK, pack_nf4
from localctx.models.quantized.fused_experts import fused_names, pack_experts

TEXT = [(i * 37 + i // 7) % 190 for i in range(100)]
SIZES = {"intermediate_size": 128, "moe_intermediate_size": 128, "num_hidden_layers": 2}  # bitsandbytes takes such ones
MIXTURES = ["qwen3_moe", "gpt_oss", "mixtral", "granitemoe", "olmoe", "glm4_moe"]
# Of gate and up in one or in turns, transposed or not, with biases, without gates, with norms and clamps of their own.
FAMILIES = [
    *MIXTURES,
    "qwen2_moe",
    "deepseek_v3",
    "aria_text",
    "nemotron_h",
    "phimoe",
    "minimax_m2",
    "afmoe",
    "lfm2_moe",
]


@pytest.fixture
def packing(monkeypatch):
    """Have bitsandbytes pack weights on the processor too."""
    monkeypatch.setattr(bitsandbytes_layers, "DEVICES", ("cuda", "cpu"))
    bitsandbytes_layers._import_bitsandbytes()


def mixture(kind, **more):
    """A random model all of whose experts compute each token, so that no rounding changes which are chosen."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    config = tiny_config(kind)
    for field, value in {**SIZES, "num_experts_per_tok": 4, **more}.items():
        if hasattr(config, field):
            setattr(config, field, value)
    config.layer_types = getattr(config, "layer_types", None) and config.layer_types[: config.num_hidden_layers]
    return AutoModelForCausalLM.from_config(config).eval()


def save(module, folder):
    module.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def logits(model):
    return model.forward(TEXT, Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype), len(TEXT)).float()


def first_experts(module):
    return next(child for child in module.modules() if fused_names(child))


# What is computed


@pytest.mark.parametrize("kind", FAMILIES)
def test_experts_of_every_family_compute_the_same_from_blocks(kind):
    """A token chooses 2 of 4 experts; none takes the second."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    experts = first_experts(AutoModelForCausalLM.from_config(tiny_config(kind)))
    experts.config._experts_implementation = "eager"
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    x, chosen = torch.randn(9, 64), torch.tensor([[0, 2], [3, 0], [2, 3]]).repeat(3, 1)
    shares = torch.rand(9, 2)
    with torch.inference_mode():
        expected = experts(x, chosen, shares)
        block_linears(experts)
        torch.testing.assert_close(experts(x, chosen, shares), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(experts(x[4:5], chosen[4:5], shares[4:5]), expected[4:5], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("rows", [3, 4, 50])
@pytest.mark.parametrize("weights", ["int8", "nf4"])
def test_what_a_gpu_multiplies_by_is_near_the_weights(packing, monkeypatch, weights, rows, captured):
    """The last numbers of a matrix of 5 by 7 share their scale with none of the next expert."""
    monkeypatch.setattr(dequantized_experts, "may_wait", lambda: not captured)
    torch.manual_seed(0)
    whole = torch.randn(4, 5, 7)
    packed = PACK[weights](whole)
    x, experts = torch.randn(rows, 7), torch.arange(rows).remainder(3).add(1).sort().values
    expected = (whole[experts] @ x[..., None])[..., 0]
    got = packed.multiply(x, experts)
    assert (got - expected).abs().max() < {"int8": 0.01, "nf4": 0.15}[weights] * expected.abs().max()
    one_by_one = [packed.multiply(x[i : i + 1], experts[i : i + 1]) for i in range(rows)]
    torch.testing.assert_close(got, torch.cat(one_by_one))


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXTURES)
def test_a_mixture_in_int8_is_near_the_full_one(tmp_path, kind):
    folder = save(mixture(kind), tmp_path)
    full, small = (load_model(folder, "m", dtype="f32", weights=w) for w in ("full", "int8"))
    a, b = logits(full), logits(small)
    assert not torch.equal(a, b)
    assert (a - b).abs().max() < 0.05 * a.abs().max()
    assert small.nbytes < 0.4 * full.nbytes
    assert full.parameters == small.parameters
    assert full.computed_by == small.computed_by != ""
    assert full.fingerprint("int8") != small.fingerprint("int8")


@pytest.mark.slow
@pytest.mark.parametrize(("weights", "near"), [("int8", 0.06), ("nf4", 0.4)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss", "granitemoe"])
def test_a_mixture_that_a_gpu_packs_is_near_the_full_one(tmp_path, packing, kind, weights, near, dtype):
    folder = save(mixture(kind), tmp_path)
    full, packed = (load_model(folder, "m", dtype=dtype, weights=w) for w in ("full", weights))
    a, b = logits(full), logits(packed)
    assert not torch.equal(a, b)
    assert (a - b).abs().max() < near * a.abs().max()
    assert "bitsandbytes 0." in packed.computed_by
    assert packed.parameters == full.parameters


@pytest.mark.parametrize("way", ["blocks", "nf4"])
def test_only_what_was_chosen_is_read(packing, way):
    experts = first_experts(mixture("qwen3_moe", num_experts_per_tok=2))
    pack_experts(experts, pack_nf4) if way == "nf4" else block_linears(experts)
    for packed in (experts.gate_up_proj, experts.down_proj):
        second = packed._scales[1] if way == "nf4" else torch.from_numpy(packed._blocks.codes[1]).view(torch.float32)
        second.fill_(torch.nan)
    for tokens in (1, 40):
        chosen, spoiled = torch.tensor([[0, 3]]).repeat(tokens, 1), torch.tensor([[1, 2]]).repeat(tokens, 1)
        with torch.inference_mode():
            assert experts(torch.randn(tokens, 64), chosen, torch.ones(tokens, 2)).isfinite().all()
            assert not experts(torch.randn(tokens, 64), spoiled, torch.ones(tokens, 2))[:, 0].isfinite().any()


def test_a_sequence_beside_others_computes_what_it_does_alone(tmp_path):
    model = load_model(save(mixture("qwen3_moe", num_experts_per_tok=2), tmp_path), "m", dtype="f32", weights="int8")
    assert torch.equal(logits(model), logits(model))
    cut = Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype)
    parts = [model.forward(TEXT[at : at + 32], cut, len(TEXT[at : at + 32])) for at in range(0, len(TEXT), 32)]
    off = (torch.cat(parts) - logits(model)).abs()
    assert float((off > 1e-5).float().mean()) < 0.05, "where last digits differ, a row may be rounded otherwise"
    assert float(off.max()) < 2e-3


# Sizes


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXTURES)
def test_plan_is_within_a_hundredth_of_what_a_processor_holds(run, tmp_path, kind):
    folder = save(mixture(kind), tmp_path / "m")
    shown = run("plan", "--json", "--model", folder, "--dtype", "f32", "--weights", "int8", "--device", "cpu")
    model = load_model(folder, "m", device="cpu", dtype="f32", weights="int8")
    assert json.loads(shown.stdout)["weights_bytes"] == pytest.approx(model.nbytes, rel=0.01)


GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "sliding_window": 128,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "parameters", "gib", "context"),
    [(GPT_OSS_20B, 20.9e9, 12.5, 131072), (QWEN3_30B_A3B, 30.5e9, 16.8, 40960)],
    ids=["gpt-oss-20b", "qwen3-30b-a3b"],
)
def test_mixtures_of_20_and_30_billion_fit_a_gpu_of_24_gib_in_nf4(run, tmp_path, config, parameters, gib, context):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    gpu = ("--config", file, "--device", "cuda", "--device-memory", "24GiB", "--dtype", "bf16")
    full, small = (json.loads(run("plan", "--json", *gpu, "--weights", w).stdout) for w in ("full", "nf4"))
    assert full["weights_bytes"] / 2 == pytest.approx(parameters, rel=0.01)
    assert small["weights_bytes"] / 2**30 == pytest.approx(gib, rel=0.01)
    assert full["fits"]["int8"] == 0
    assert small["fits"]["int8"] > small["context"] == context
    assert f"{context:,} tokens in int8 fit" in run("plan", *gpu, "--weights", "nf4", "--kv", "int8").stdout


# Loading


@pytest.mark.parametrize("kind", ["qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("weights", ["int8", "nf4"])
def test_two_fused_weights_are_never_whole_at_once(tmp_path, packing, monkeypatch, kind, weights):
    folder, most, pack_weights = save(mixture(kind), tmp_path), 0, quantizing_loaders.pack_weights
    alive = WeakSet()

    def watch(module, name, value, pack):
        nonlocal most
        alive.add(value)
        most = max(most, len(alive))
        pack_weights(module, name, value, pack)

    monkeypatch.setattr(quantizing_loaders, "pack_weights", watch)
    load_model(folder, "m", dtype="f32", weights=weights)
    assert most == 1


def to_mxfp4(folder):
    """Rewrites the experts of a saved gpt-oss as codes and scales in MXFP4, which all numbers then are equal to."""
    weights = load_file(folder / "model.safetensors")
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        fused = weights.pop(name)
        blocks = torch.randint(0, 256, (fused.shape[0], fused.shape[2], fused.shape[1] // 32, 16), dtype=torch.uint8)
        weights[f"{name}_blocks"] = blocks
        weights[f"{name}_scales"] = torch.randint(118, 122, blocks.shape[:3], dtype=torch.uint8)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("weights", ["int8", "nf4"])
def test_experts_in_mxfp4_are_packed_anew(tmp_path, packing, monkeypatch, weights):
    folder = save(mixture("gpt_oss"), tmp_path)
    to_mxfp4(folder)
    full = logits(load_model(folder, "m", dtype="f32"))
    for devices in (("cuda", "cpu"), ("cuda",))[: 2 if weights == "int8" else 1]:
        monkeypatch.setattr(bitsandbytes_layers, "DEVICES", devices)
        small = logits(load_model(folder, "m", dtype="f32", weights=weights))
        assert not torch.equal(full, small)
        assert (full - small).abs().max() < {"int8": 0.06, "nf4": 0.4}[weights] * full.abs().max()


def test_weights_that_a_checkpoint_lacks_are_told_in_one_line(tmp_path):
    folder = save(mixture("qwen3_moe"), tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.experts.2.down_proj.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="does not load"):
        load_model(folder, "m", dtype="f32", weights="int8")


def test_experts_in_int8_are_those_blocks(tmp_path):
    """Loading weight by weight leaves the same blocks as loading all first."""
    module = mixture("gpt_oss")
    model = load_model(save(module, tmp_path), "m", dtype="f32", weights="int8")
    block_linears(module, "int8")
    blocks = {name: child for name, child in module.named_modules() if isinstance(child, BlockedExperts)}
    assert len(blocks) == 4
    for name, expected in blocks.items():
        loaded = model._module.get_submodule(name)
        assert all(torch.equal(dense(loaded._blocks.of(e)), dense(expected._blocks.of(e))) for e in range(4))
