"""``localctx plan`` for models with a text model inside, heads of several widths, or layers that share keys."""

import json

import pytest

pytestmark = pytest.mark.slow

GEMMA4_26B = {
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "num_hidden_layers": 30,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_global_key_value_heads": 2,
    "attention_k_eq_v": True,
    "sliding_window": 1024,
    "hidden_size_per_layer_input": 0,
    "enable_moe_block": True,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
}
GEMMA4_E4B = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 42,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 18,
}
MINISTRAL = {
    "model_type": "mistral",
    "num_hidden_layers": 34,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": None,
    "vocab_size": 131072,
    "max_position_embeddings": 262144,
}


@pytest.mark.parametrize(
    ("family", "text", "per_token", "weights"),
    [
        ("gemma4", GEMMA4_26B, 225_280, (25e9, 26e9)),  # 25 sliding layers of 8 x 256, 5 of 2 x 512
        ("gemma4", GEMMA4_E4B, 57_344, (7e9, 8e9)),  # the last 18 of 42 layers share: 20 of 2 x 256, 4 of 2 x 512
        ("mistral3", MINISTRAL, 139_264, (8e9, 9e9)),
    ],
)
def test_a_text_model_inside_another_is_planned_alone(run, tmp_path, family, text, per_token, weights):
    config = {"model_type": family, "text_config": {"model_type": f"{family}_text", **text}, "vision_config": {}}
    (file := tmp_path / "config.json").write_text(json.dumps(config))
    done = run("plan", "--config", file, "--kv", "bf16", "--dtype", "bf16", "--context", 6400, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kv"]["bytes_per_token"] == per_token
    assert weights[0] < report["weights_bytes"] / 2 < weights[1]
