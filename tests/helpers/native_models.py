"""Plain decoders made on the spot, and what localctx makes of them without transformers."""

import json
from typing import Any

import torch

from localctx.models.architecture.decoder_config import DecoderConfig, parse_native_config
from localctx.models.decoder.native_decoder import NativeDecoder, NativeWeights
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}


def build(family: str, **more: Any) -> Any:
    """A module of transformers with random weights, norms and biases too."""
    import transformers

    config = getattr(transformers, f"{family}Config")(**{**SIZES, **more})
    torch.manual_seed(1)
    module = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return module


def config_in(config: Any) -> DecoderConfig | None:
    """What is read of the config.json that transformers writes of ``config``."""
    return parse_native_config(json.loads(config.to_json_string()))


def plain(module: Any, kept: str = "full", **how: Any) -> NativeDecoder:
    """The same decoder as ``module``, without it."""
    config = config_in(module.config)
    assert config, "a plain decoder"
    return NativeDecoder(config, NativeWeights(config, module.state_dict(), kept), ChatTokenizer(None), **how)
