"""One contract for every family: prefill in odd chunks and decode equal the family's own eager attention."""

import pytest
import torch
import transformers as tf
from plain_models import plain

from localctx.budget import Limits
from localctx.errors import ModelError, NoRoom
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.base import Feed
from localctx.models.geometry import shape_of
from localctx.models.hf import TransformersModel, refuse_unfit

SIZE = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD = {"head_dim": 16}
LATENT = {
    "kv_lora_rank": 24,
    "q_lora_rank": None,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
GROUPS = {"n_group": 2, "topk_group": 1}


def rope(kind, factor=4.0, theta=1e4, **said):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, "factor": factor, **said}}


TRAINED = {"original_max_position_embeddings": 128}
LLAMA3 = {**TRAINED, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"short_factor": [1.0] * 8, "long_factor": [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0]}
GEMMA3 = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
FAMILIES = {
    "llama": (tf.LlamaConfig, HEAD),
    "llama-mqa": (tf.LlamaConfig, {**HEAD, "num_key_value_heads": 1}),
    "llama-mha": (tf.LlamaConfig, {**HEAD, "num_key_value_heads": 4}),
    "qwen2": (tf.Qwen2Config, {}),
    "qwen3": (tf.Qwen3Config, HEAD),
    "mistral-window": (tf.MistralConfig, {**HEAD, "sliding_window": 100}),
    "gemma2": (tf.Gemma2Config, {**HEAD, "sliding_window": 70}),
    "gemma3": (tf.Gemma3TextConfig, {**HEAD, "sliding_window": 70, "layer_types": GEMMA3}),
    "phi3": (tf.Phi3Config, {}),
    "phi3-longrope": (tf.Phi3Config, {**rope("longrope", **LONG, **TRAINED), **TRAINED}),
    "llama-yarn": (tf.LlamaConfig, {**HEAD, **rope("yarn", **TRAINED)}),
    "llama-llama3": (tf.LlamaConfig, {**HEAD, **rope("llama3", **LLAMA3)}),
    "llama-linear": (tf.LlamaConfig, {**HEAD, **rope("linear")}),
    "glm4": (tf.Glm4Config, HEAD),
    "cohere2": (tf.Cohere2Config, {"sliding_window": 70}),
    "youtu": (tf.YoutuConfig, {**LATENT, "q_lora_rank": 20}),
    "deepseek-v2": (tf.DeepseekV2Config, LATENT),
    "deepseek-v3": (
        tf.DeepseekV3Config,
        {**LATENT, **GROUPS, "q_lora_rank": 20, **rope("yarn", mscale_all_dim=1.0, mscale=1.0, **TRAINED)},
    ),
    "smollm3": (tf.SmolLM3Config, HEAD),
    "granite": (tf.GraniteConfig, {}),
    "gpt-oss": (tf.GptOssConfig, {**HEAD, "sliding_window": 70, "num_local_experts": 4, "num_experts_per_tok": 2}),
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
PLAIN = [*(name for name in FAMILIES if name.startswith("llama")), "qwen2", "qwen3", "mistral-window"]
WAYS = [*((name, "modules") for name in FAMILIES), *((name, "plain") for name in PLAIN)]
STEPS = [1, 63, 64, 65, 100, 37, *[1] * 70]


def build(name, **more):
    kind, extra = FAMILIES[name]
    torch.manual_seed(0)
    module = tf.AutoModelForCausalLM.from_config(kind(**{**SIZE, **extra, **more}), attn_implementation="eager")
    return module.eval().float()


def make(module, way):
    return plain(module) if way == "plain" else TransformersModel(module)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_odd_chunks_and_decode_equal_eager_attention(name, way):
    module, tokens = build(name), torch.randint(3, 199, (sum(STEPS),)).tolist()
    with torch.inference_mode():
        expected = module(torch.tensor([tokens]), use_cache=False).logits[0]
    model = make(module, way)
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    parts, at = [], 0
    for step in STEPS:
        parts.append(model.forward(tokens[at : at + step], cache, keep=step))
        at += step
    assert cache.length == len(tokens)
    torch.testing.assert_close(torch.cat(parts), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_several_sequences_in_one_step_equal_each_alone(name, way):
    model = make(build(name), way)
    texts = [torch.randint(3, 199, (n,)).tolist() for n in (150, 40, 211)]
    alone = [Cache(Pool(model.shape, "f32"), torch.float32) for _ in texts]
    expected = [model.forward(text, cache, keep=5) for text, cache in zip(texts, alone, strict=True)]
    caches = [Cache(Pool(model.shape, "f32"), torch.float32) for _ in texts]
    model.forward(texts[2][:80], caches[2])
    cuts = [(texts[0][:64], 1), (texts[1], 5), (texts[2][80:-1], 4)]
    first = model.forward_each([Feed(tokens, c, keep) for (tokens, keep), c in zip(cuts, caches, strict=True)])
    last = model.forward_each([Feed(texts[2][-1:], caches[2]), Feed(texts[0][64:], caches[0], 5)])
    got = [last[1], first[1], torch.cat([first[2], last[0]])]
    for logits, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("way", ["modules", "plain"])
def test_when_one_of_several_has_no_room_all_are_as_before(way):
    model = make(build("llama"), way)
    page = model.shape.page_bytes("f32")
    wide, narrow = (
        Cache(Pool(model.shape, "f32"), torch.float32),
        Cache(Pool(model.shape, "f32", limits=Limits(2 * page, 0, 0)), torch.float32),
    )
    for cache in (wide, narrow):
        model.forward(list(range(3, 103)), cache)
    with pytest.raises(NoRoom):
        model.forward_each([Feed(list(range(3, 103)), wide), Feed(list(range(3, 103)), narrow)])
    assert (wide.length, narrow.length) == (100, 100)
    model.forward_each([Feed([5], wide), Feed([5], narrow)])


def test_a_window_is_told_layer_by_layer():
    config = tf.Gemma2Config(**SIZE, **HEAD, sliding_window=70)
    assert [layer.window for layer in shape_of(config).layers] == [70, None, 70, None]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tf.DeepseekV32Config(num_hidden_layers=2), "index"),
        (tf.KimiLinearConfig(num_hidden_layers=4), "linear_attention"),
        (tf.T5Config(), "encoder"),
        (tf.Lfm2Config(num_hidden_layers=2, layer_types=["conv", "full_attention"]), "conv"),
        (tf.LlamaConfig(**SIZE, rope_parameters=DYNAMIC), "frequencies"),
    ],
)
def test_a_family_that_would_be_wrong_is_refused_by_name_with_the_reason(config, reason):
    with pytest.raises(ModelError, match=rf"{config.model_type}.*{reason}"):
        refuse_unfit(config)
