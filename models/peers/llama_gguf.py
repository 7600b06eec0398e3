"""Makes GGUF files for the llama.cpp peer: in f16 from a model folder, and quantized from a 16-bit GGUF."""

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from localctx.errors import ModelError
from localctx.models.llama_cpp.library import llama_library

GGUF_WEIGHTS = {"q8_0": 7, "q4_1": 3, "q4_k_m": 15}
"""Weight formats made by llama.cpp's quantizer for comparisons, with llama.cpp's file type numbers."""

_PAIRS_ADJACENT = {"llama": True, "qwen2": False, "qwen3": False}
"""The model types whose GGUF can be made, and whether llama.cpp's RoPE pairs adjacent rows of their heads."""

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def no_vocabulary(writer: Any) -> None:
    """Write into a GGUF that it has no vocabulary, because the peer is given tokens. ``writer`` is gguf's writer."""
    writer.add_tokenizer_model("no_vocab")


def write_gguf(folder: Path, path: Path, describe_vocabulary: Callable[[Any], None] = no_vocabulary) -> None:
    """Write the model in ``folder``, a plain Llama, Qwen 2 or Qwen 3, to the GGUF file ``path`` in f16.
    ``describe_vocabulary`` is called with gguf's writer to add a vocabulary.

    Raises ModelError for other models, and OSError.
    """
    from gguf import GGUFWriter
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not _is_plain(config):
        raise ModelError(
            f"{folder.name} is not a plain Llama or Qwen, so no GGUF was made of it", "name one with --gguf"
        )
    part = path.with_name(f"{path.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(part, config.model_type)
    _describe(writer, config)
    describe_vocabulary(writer)
    for name, tensor in _tensors(folder, config):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def quantize_gguf(gguf: Path, path: Path, weights: str, threads: int) -> None:
    """Quantize the 16-bit file ``gguf`` to ``path`` with a format ``weights`` of GGUF_WEIGHTS, by llama.cpp without an
    importance matrix. Uses ``threads`` threads. Ctrl-C can interrupt it. Raises ModelError for a file that llama.cpp
    does not quantize.
    """
    library = llama_library()
    options = library.llama_model_quantize_default_params()
    options.ftype, options.nthread = GGUF_WEIGHTS[weights], threads
    part = path.with_name(f"{path.name}.part")
    failed = list[int]()
    thread = Thread(
        target=lambda: failed.append(library.llama_model_quantize(bytes(gguf), bytes(part), ctypes.byref(options))),
        daemon=True,
    )
    thread.start()
    while thread.is_alive():
        thread.join(0.1)  # so that Ctrl-C ends the command at once, although the library cannot be interrupted
    if failed != [0]:
        part.unlink(missing_ok=True)
        raise ModelError(
            f"llama.cpp cannot make {weights} weights of {gguf.name}", "name a GGUF in 16 bits with --gguf"
        )
    part.replace(path)


def _is_plain(config: Any) -> bool:
    """Returns True for a model that llama.cpp computes from its matrices, norms and an unscaled RoPE alone."""
    rope = getattr(config, "rope_parameters", None) or {}
    extras = ("attention_bias", "mlp_bias", "use_sliding_window")
    has_extras = any(getattr(config, name, False) for name in extras)
    return config.model_type in _PAIRS_ADJACENT and rope.get("rope_type") == "default" and not has_extras


def _describe(writer: Any, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for add in (writer.add_rope_dimension_count, writer.add_key_length, writer.add_value_length):
        add(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)


def _tensors(folder: Path, config: Any) -> Iterator[tuple[str, np.ndarray]]:
    import torch
    from safetensors.torch import load_file

    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    interleaved = heads if _PAIRS_ADJACENT[config.model_type] else {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, weight in load_file(file).items():
            for transformers_name, gguf_name in _NAMES.items():
                name = name.replace(transformers_name, gguf_name)
            is_vector = weight.dim() == 1  # llama.cpp requires norms and biases in f32
            array = weight.to(torch.float32 if is_vector else torch.float16).numpy()
            n = interleaved.get(name.split(".")[-2])
            yield name, _interleaved(array, n) if n else array


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Reorder rows for RoPE: llama.cpp pairs adjacent rows, transformers pairs rows half a head apart."""
    half = weight.shape[0] // heads // 2
    return np.ascontiguousarray(weight.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(weight.shape))
