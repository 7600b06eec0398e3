"""Tiny models and caches for tests of keepers, and what reading and decoding with them gives."""

import torch
import transformers as tf

from localctx.models.decoder.transformers_model import TransformersModel

SIZE = {
    "vocab_size": 199,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": None,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "first_k_dense_replace": 9,
}


SHARED = {
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 100,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 199,
}


FAMILIES = {
    "llama": (tf.LlamaConfig, {}),
    "gemma2": (tf.Gemma2Config, {"head_dim": 16, "sliding_window": 100}),
    "qwen2": (tf.Qwen2Config, {}),
    "deepseek-v3": (tf.DeepseekV3Config, LATENT),
    "gemma4": (tf.Gemma4TextConfig, SHARED),
}


TOKENS = torch.randint(3, 199, (3000,), generator=torch.Generator().manual_seed(1)).tolist()


def build(family: str, layers: int = 4) -> TransformersModel:
    kind, extra = FAMILIES[family]
    torch.manual_seed(0)
    module = tf.AutoModelForCausalLM.from_config(kind(**{**SIZE, **extra, "num_hidden_layers": layers}))
    for name, weight in module.named_parameters():
        if name.endswith("k_proj.bias"):
            torch.nn.init.normal_(weight, std=20)  # a spike like those of Qwen2's first layers
    return TransformersModel(module.eval().float())


def read(model, cache, tokens, asked=0, chunk=256):
    """Read tokens, of which the last ``asked`` are the question; the last logits."""
    boundary = len(tokens) - asked
    for at in range(0, boundary, chunk):
        logits = model.forward(tokens[at : min(at + chunk, boundary)], cache)
    cache.enter_phase("asking")
    if asked:
        logits = model.forward(tokens[boundary:], cache)
    cache.finish_prefill()
    return logits[-1]


def decode(model, cache, steps=4):
    return torch.stack([model.forward([t], cache)[-1] for t in TOKENS[-steps:]])
