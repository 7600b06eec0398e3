"""The states that layers keep, as the layers themselves tell them, for configs of models that people run."""

import pytest
from transformers import CONFIG_MAPPING

from localctx.models.decoder.trial import model_shape

DELTA = {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16}
HEADS = {"num_attention_heads": 16, "head_dim": 256, "linear_num_value_heads": 32, "linear_conv_kernel_dim": 4}
MODELS = {
    "Qwen3.5-4B": (
        "qwen3_5_text",
        {**DELTA, **HEADS, "hidden_size": 2560, "num_hidden_layers": 32, "num_key_value_heads": 4},
        51_904_512,
        32_768,
    ),
    "Qwen3.6-35B-A3B": (
        "qwen3_5_moe_text",
        {**DELTA, **HEADS, "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2},
        64_880_640,
        20_480,
    ),
    "LFM2.5-1.2B": (
        "lfm2",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14],
        },
        122_880,
        12_288,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sizes", "snapshot", "token"), MODELS.values(), ids=MODELS)
def test_bytes_of_a_snapshot_and_of_a_token_in_bf16(kind, sizes, snapshot, token):
    shape = model_shape(CONFIG_MAPPING[kind](**sizes))
    assert shape.state_bytes(2) == snapshot
    assert shape.bytes_per_token("bf16") == token
