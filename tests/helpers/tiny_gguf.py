"""A random Llama of 95,424 weights with a byte-level vocabulary, as transformers has it and as a GGUF file."""

from pathlib import Path
from typing import Any

import numpy as np

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
LAYERS, HEADS, KV_HEADS, WIDTH, INNER, CONTEXT, THETA = 2, 4, 2, 64, 96, 512, 500_000.0
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ Ġ"]


def vocabulary() -> list[str]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return [*bytes_to_unicode().values(), *(m.replace(" ", "") for m in MERGES), "<|im_start|>", "<|im_end|>"]


def tiny_llama() -> Any:
    """The model in transformers, float32, the same every time."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary()), hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": THETA}, tie_word_embeddings=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def write_gguf(
    path: Path, *, more: dict[str, np.ndarray] | None = None, kinds: dict[str, Any] | None = None, **metadata: Any
) -> Path:
    """The model as a GGUF at ``path``, with ``more`` tensors, ``metadata`` (of the architecture, dots as __), and
    tensors by name quantized to some ``kinds``.
    """
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "llama")
    _describe(writer)
    for name, value in metadata.items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(f"llama.{name.replace('__', '.')}", value)
    for name, tensor in {**tensors(), **(more or {})}.items():
        kind = (kinds or {}).get(name)
        writer.add_tensor(name, tensor if kind is None else quantized(tensor, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantized(tensor: np.ndarray, kind: Any) -> np.ndarray:
    """The blocks of a tensor; random ones of about its size in Q4_K and Q6_K, which the library only reads."""
    from gguf import GGMLQuantizationType, quantize

    sizes = {GGMLQuantizationType.Q4_K: (144, [0, 2]), GGMLQuantizationType.Q6_K: (210, [208])}
    if kind not in sizes:
        return quantize(tensor, kind)
    (nbytes, halves), (rows, columns) = sizes[kind], tensor.shape
    blocks = np.random.default_rng(rows).integers(0, 256, (rows, columns // 256, nbytes), np.uint8)
    for at in halves:
        blocks[..., at : at + 2] = np.array([0.0003], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def _describe(writer: Any) -> None:
    tokens = vocabulary()
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(THETA)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_eot_token_id(len(tokens) - 2)
    writer.add_chat_template(TEMPLATE)


def tensors() -> dict[str, np.ndarray]:
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
        "model.layers": "blk",
    }  # fmt: skip
    found = {}
    for name, weight in tiny_llama().state_dict().items():
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        found[name] = _interleaved(weight.numpy(), heads) if heads else weight.numpy()
    return found


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows: the two halves that RoPE turns together lie side by side."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape).copy()
