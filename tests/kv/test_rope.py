"""Rotary positions: keys move along them, a bias is known at each of them, and they stretch."""

import numpy as np
import pytest
import torch
import transformers as tf
from small_families import FAMILIES, HEAD, SIZE, build, rope

from localctx.errors import ModelError, UsageError
from localctx.kernels.cpu.key_bias import add_bias, bias_scores
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.catalog import FALLBACK, load_catalog, window_for
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.load import load_model
from localctx.settings import load_settings, parse_rope
from localctx.shape import PAGE

TOKENS = torch.arange(5, 35)[None]
TURNING = sorted(FAMILIES.keys() - {"llama-mqa", "llama-mha", "mistral-window", "granite", "gemma2"})
BIASED = {
    "qwen2": (tf.Qwen2Config, {}),
    "gpt-oss": FAMILIES["gpt-oss"],
    "phi, half a head turns": (tf.PhiConfig, {}),
    "glm, neighbours turn": (tf.GlmConfig, {**HEAD, "attention_bias": True}),
    "smollm3, a layer does not turn": (
        tf.SmolLM3Config,
        {**HEAD, "attention_bias": True, "no_rope_layers": [1, 0, 1, 1]},
    ),
    "scaled by yarn": (
        tf.Qwen2Config,
        {"head_dim": 16, **rope("yarn", original_max_position_embeddings=128)},
    ),
}


def rotated_keys(module, start):
    """What transformers' own cache holds of TOKENS at positions ``start``..: of latent layers, the rotated part."""
    cache = tf.DynamicCache(config=module.config)
    positions = torch.arange(start, start + TOKENS.shape[1])[None]
    with torch.inference_mode():
        module(TOKENS, position_ids=positions, past_key_values=cache, use_cache=True)
    latent = hasattr(module.config, "kv_lora_rank")
    made = [layer for layer in cache.layers if layer.keys is not None]  # a layer that shares keys makes none
    return [(layer.values if latent else layer.keys)[0] for layer in made]


@pytest.mark.parametrize("name", TURNING)
def test_keys_turned_are_keys_computed_elsewhere(name):
    module, turner = build(name), TransformersModel(build(name)).rope
    for start, by in ((200, 64), (300, -37)):
        here, there = rotated_keys(module, start), rotated_keys(module, start + by)
        for layer, (k, expected) in enumerate(zip(here, there, strict=True)):
            torch.testing.assert_close(turner.rerotate(layer, k, by), expected, atol=2e-4, rtol=1e-4)


def biased(name):
    kind, extra = BIASED[name]
    torch.manual_seed(0)
    module = tf.AutoModelForCausalLM.from_config(kind(**{**SIZE, **extra}), attn_implementation="eager").eval()
    for part in module.modules():
        if hasattr(part, "k_proj"):
            torch.nn.init.normal_(part.k_proj.bias)
    return module


@pytest.mark.parametrize("name", BIASED)
def test_the_keys_of_a_bias_are_what_it_adds_to_every_key(name):
    module, turner, layer = biased(name), TransformersModel(biased(name)).rope, 1
    attention = next(m for m in module.modules() if hasattr(m, "k_proj") and m.layer_idx == layer)
    positions = torch.arange(1000, 1000 + TOKENS.shape[1])
    whole = rotated_keys(module, 1000)[layer]
    torch.nn.init.zeros_(attention.k_proj.bias)
    assert turner.has_bias(layer)
    torch.testing.assert_close(
        turner.bias_keys(layer, positions), whole - rotated_keys(module, 1000)[layer], atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("name", BIASED)
@pytest.mark.parametrize("positions", [torch.arange(50, 90), torch.tensor([0, 3, 4, 2000])])
def test_the_scores_of_a_bias_need_no_keys(name, positions):
    turner = TransformersModel(biased(name)).rope
    keys = turner.bias_keys(1, positions)
    q = torch.randn(4, keys.shape[2])
    expected = torch.einsum("hd,htd->ht", q, keys.repeat_interleave(4 // len(keys), 0))
    torch.testing.assert_close(turner.bias_scores(1, q, positions), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", BIASED)
@pytest.mark.parametrize("layer", [0, 1])
def test_kernels_add_a_bias_to_the_keys_of_a_page_as_it_is_at_each_position(name, layer):
    turner, starts = TransformersModel(biased(name)).rope, torch.tensor([64, 128, 1000, 5])
    bias, before = turner.key_bias([layer], starts[None]), turner.bias_keys(layer, torch.arange(3))
    bias = bias._replace(starts=bias.starts[0])
    q = torch.randn(1, 4, bias.starts.shape[2])
    scores = bias_scores(q.numpy(), np.array([[0, 0, 2, 0], [0, 2, 4, 0]]), bias)
    for page, start in enumerate(starts.tolist()):
        expected = turner.bias_keys(layer, torch.arange(start, start + PAGE))
        for head in range(len(expected)):
            keys = np.zeros((expected.shape[2], PAGE), np.float32)
            add_bias(bias, head, page, keys)
            torch.testing.assert_close(torch.from_numpy(keys.T.copy()), expected[head], atol=1e-4, rtol=1e-4)
        added = torch.from_numpy(scores[:, page * PAGE : page * PAGE + PAGE])
        torch.testing.assert_close(
            added, turner.bias_scores(layer, q[0], torch.arange(start, start + PAGE)), atol=1e-3, rtol=1e-4
        )
    bias.starts[:] = 0
    torch.testing.assert_close(turner.bias_keys(layer, torch.arange(3)), before)


@pytest.mark.parametrize("name", ["llama-mha", "qwen3", "gemma3", "deepseek-v3", "qwen2"])
def test_a_layer_without_a_bias_says_so(name):
    turner = TransformersModel(build(name)).rope
    assert not any(turner.has_bias(layer) for layer in range(4))  # qwen2's is all zeros as it is made


@pytest.mark.parametrize("spec", ["yarn:4", "linear:2.5", "llama3:8"])
def test_a_stretched_model_is_the_model_of_a_stretched_config(spec):
    kind, factor = parse_rope(spec)
    said = {"yarn": {}, "linear": {}, "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0}}[kind]
    original = {} if kind == "linear" else {"original_max_position_embeddings": 4096}
    model = TransformersModel(build("llama-mha"), rope=spec)
    torch.manual_seed(0)
    config = tf.LlamaConfig(
        **{
            **SIZE,
            **FAMILIES["llama-mha"][1],
            **rope(kind, factor, **said, **original),
            "max_position_embeddings": int(4096 * factor),
        }
    )
    expected = tf.AutoModelForCausalLM.from_config(config).eval()
    assert model.context == int(4096 * factor)
    for mine, its in zip(model._keys_at(model._positions, 5000), rotated_keys_of_one(expected, 5000), strict=True):
        torch.testing.assert_close(mine, its, atol=1e-5, rtol=1e-5)


def rotated_keys_of_one(module, position):
    cache = tf.DynamicCache(config=module.config)
    with torch.inference_mode():
        module(torch.tensor([[99]]), position_ids=torch.tensor([[position]]), past_key_values=cache, use_cache=True)
    return [layer.keys[0] for layer in cache.layers]


@pytest.mark.slow
def test_a_stretch_is_another_model_and_goes_back(tiny_model):
    model = load_model(tiny_model, "tiny")
    plain, turner = model.fingerprint("int8"), model.rope
    model.scale_rope("yarn:2")
    stretched = model.fingerprint("int8")
    assert (model.context, stretched != plain, model.rope is not turner) == (8192, True, True)
    assert load_model(tiny_model, "tiny", rope="yarn:2").fingerprint("int8") == stretched
    model.scale_rope("linear:2")
    assert model.fingerprint("int8") not in (plain, stretched)
    model.scale_rope("auto")
    assert (model.context, model.fingerprint("int8")) == (4096, plain)


def test_of_two_kinds_of_layers_the_one_that_sees_all_is_stretched():
    model = TransformersModel(build("gemma3"), rope="yarn:2")
    model.forward([5], Cache(Pool(model.shape, "f32"), torch.float32))  # which builds them
    rotary = model._module.model.rotary_emb
    assert rotary.rope_type == {"full_attention": "yarn", "sliding_attention": "default"}
    assert model.context == 8192


def test_longrope_keeps_the_frequencies_of_its_window():
    extra = FAMILIES["phi3-longrope"][1]
    long = TransformersModel(build("phi3-longrope"))
    short = TransformersModel(
        tf.AutoModelForCausalLM.from_config(tf.Phi3Config(**{**SIZE, **extra, "max_position_embeddings": 128}))
    )
    for model in (long, short):
        model.forward([5], Cache(Pool(model.shape, "f32"), torch.float32))
    params = extra["rope_parameters"]
    assert long._config.rope_parameters["short_factor"] == params["long_factor"]
    assert short._config.rope_parameters["long_factor"] == params["short_factor"]


@pytest.mark.parametrize("spec", ["", "yarn", "yarn:", "yarn:1", "yarn:0.5", "yarn:-2", "yarn:1000", "dynamic:2", "2"])
def test_nonsense_is_refused(spec, tmp_path):
    with pytest.raises(UsageError, match=r"^rope = .* is not valid"):
        load_model(tmp_path, "m", rope=spec)


@pytest.mark.parametrize("spec", ["yarn", "dynamic:2", "2", "yarn:-2", "yarn:1", "yarn:500"])
def test_nonsense_is_refused_before_a_model_is_fetched(spec, tmp_path):
    with pytest.raises(UsageError, match=r"^rope = .* is not valid"):
        load_settings(home=tmp_path, rope=spec)


def test_what_cannot_be_stretched_says_why():
    with pytest.raises(ModelError, match=r"stretched already \(yarn\)"):
        TransformersModel(build("llama-yarn"), rope="yarn:2")
    config = tf.GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=99, n_positions=128)
    model = TransformersModel(tf.AutoModelForCausalLM.from_config(config))
    assert model.rope is None
    with pytest.raises(ModelError, match="not rotary"):
        model.scale_rope("yarn:2")


def test_the_smallest_measured_window_that_holds_the_text():
    entry = load_catalog()[FALLBACK]
    chosen = [window_for(entry, tokens) for tokens in (1, 8192, 8193, 16_384, 16_385)]
    assert [w and (w.context, w.rope) for w in chosen] == [
        (8192, "auto"),
        (8192, "auto"),
        (16_384, "yarn:2"),
        (16_384, "yarn:2"),
        None,
    ]
    assert window_for(FALLBACK, 9000) == chosen[2]
    assert window_for("somebody/else", 9000) is None
