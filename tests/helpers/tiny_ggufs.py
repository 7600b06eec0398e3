"""Tiny random models as GGUF files, one of each kind of memory that llama.cpp keeps: full attention, sliding windows,
convolutions and recurrent states. All have the byte-level vocabulary of ``tiny_gguf``."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tiny_gguf import MERGES, TEMPLATE, vocabulary

WIDTH, HEADS, KV_HEADS, HEAD, INNER, LAYERS, CONTEXT = 64, 2, 1, 32, 96, 4, 16_384
WINDOW = 128  # of gemma3's sliding layers; every second layer slides
SSM = {"conv_kernel": 4, "inner_size": 128, "state_size": 16, "time_step_rank": 4, "group_count": 1}
"""granitehybrid's mamba 2 layers."""

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def write_tiny_gguf(path: Path, family: str, seed: int = 0, **metadata: Any) -> Path:
    """Write a random model of ``family`` (one of FAMILIES), with ``metadata`` of its own (dots as ``__``)."""
    from gguf import GGUFWriter

    describe, shapes = FAMILIES[family]
    writer, random = GGUFWriter(path, family), np.random.default_rng(seed)
    _describe(writer)
    describe(writer)
    for name, value in metadata.items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(f"{family}.{name.replace('__', '.')}", value)
    for name, shape in (*_ends(family), *(tensor for i in range(LAYERS) for tensor in shapes(i))):
        writer.add_tensor(name, _random(random, name, shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def link_tried(home: Path, tried: Path) -> None:
    """Let the data folder ``home`` share the records of files that were tried, which takes a process for each."""
    home.mkdir(exist_ok=True)
    (home / "tried").symlink_to(tried)


def _random(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Weights large enough that every token of a text changes what is answered."""
    if name.endswith("norm.weight"):
        return np.ones(shape, np.float32)
    if name.endswith("ssm_a"):
        return -random.uniform(0.05, 0.5, shape).astype(np.float32)  # slow decay: the state remembers
    scale = 1.0 if name.startswith("token_embd") else 1.5 / np.sqrt(shape[-1])
    return (random.standard_normal(shape) * scale).astype(np.float32)


def _describe(writer: Any) -> None:
    tokens = vocabulary()
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(HEAD)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template(TEMPLATE)


def _ends(family: str) -> Shapes:
    yield "token_embd.weight", (len(vocabulary()), WIDTH)
    yield "token_embd_norm.weight" if family == "lfm2" else "output_norm.weight", (WIDTH,)


def _attention(i: int, *, normed: bool) -> Shapes:
    yield f"blk.{i}.attn_q.weight", (HEADS * HEAD, WIDTH)
    yield f"blk.{i}.attn_k.weight", (KV_HEADS * HEAD, WIDTH)
    yield f"blk.{i}.attn_v.weight", (KV_HEADS * HEAD, WIDTH)
    yield f"blk.{i}.attn_output.weight", (WIDTH, HEADS * HEAD)
    if normed:
        yield f"blk.{i}.attn_q_norm.weight", (HEAD,)
        yield f"blk.{i}.attn_k_norm.weight", (HEAD,)


def _block(i: int) -> Shapes:
    yield f"blk.{i}.attn_norm.weight", (WIDTH,)
    yield f"blk.{i}.ffn_norm.weight", (WIDTH,)
    yield f"blk.{i}.ffn_gate.weight", (INNER, WIDTH)
    yield f"blk.{i}.ffn_up.weight", (INNER, WIDTH)
    yield f"blk.{i}.ffn_down.weight", (WIDTH, INNER)


def _llama(i: int) -> Shapes:
    yield from _block(i)
    yield from _attention(i, normed=False)


def _qwen3(i: int) -> Shapes:
    yield from _block(i)
    yield from _attention(i, normed=True)


def _gemma3(i: int) -> Shapes:
    yield from _qwen3(i)
    yield f"blk.{i}.post_attention_norm.weight", (WIDTH,)
    yield f"blk.{i}.post_ffw_norm.weight", (WIDTH,)


def _lfm2(i: int) -> Shapes:
    yield from _block(i)
    if i % 2:
        yield from _attention(i, normed=True)
    else:
        yield f"blk.{i}.shortconv.conv.weight", (WIDTH, 3)
        yield f"blk.{i}.shortconv.in_proj.weight", (3 * WIDTH, WIDTH)
        yield f"blk.{i}.shortconv.out_proj.weight", (WIDTH, WIDTH)


def _granitehybrid(i: int) -> Shapes:
    yield from _block(i)
    if i % 2:
        yield from _attention(i, normed=False)
        return
    inner, groups = SSM["inner_size"], 2 * SSM["group_count"] * SSM["state_size"]
    yield f"blk.{i}.ssm_in.weight", (2 * inner + groups + SSM["time_step_rank"], WIDTH)
    yield f"blk.{i}.ssm_conv1d.weight", (inner + groups, SSM["conv_kernel"])
    yield f"blk.{i}.ssm_conv1d.bias", (inner + groups,)
    yield f"blk.{i}.ssm_dt.bias", (SSM["time_step_rank"],)
    yield f"blk.{i}.ssm_a", (SSM["time_step_rank"], 1)
    yield f"blk.{i}.ssm_d", (SSM["time_step_rank"], 1)
    yield f"blk.{i}.ssm_norm.weight", (SSM["group_count"], inner // SSM["group_count"])
    yield f"blk.{i}.ssm_out.weight", (WIDTH, inner)


def _all_attend(writer: Any) -> None:
    writer.add_head_count_kv(KV_HEADS)


def _half_slide(writer: Any) -> None:
    writer.add_head_count_kv(KV_HEADS)
    writer.add_sliding_window(WINDOW)
    writer.add_array("gemma3.attention.sliding_window_pattern", [i % 2 == 0 for i in range(LAYERS)])


def _half_convolve(writer: Any) -> None:
    writer.add_head_count_kv([KV_HEADS if i % 2 else 0 for i in range(LAYERS)])
    writer.add_shortconv_l_cache(3)


def _half_recur(writer: Any) -> None:
    writer.add_head_count_kv([KV_HEADS if i % 2 else 0 for i in range(LAYERS)])
    writer.add_ssm_conv_kernel(SSM["conv_kernel"])
    writer.add_ssm_inner_size(SSM["inner_size"])
    writer.add_ssm_state_size(SSM["state_size"])
    writer.add_ssm_time_step_rank(SSM["time_step_rank"])
    writer.add_ssm_group_count(SSM["group_count"])
    writer.add_logit_scale(1.0)
    writer.add_residual_scale(1.0)
    writer.add_embedding_scale(1.0)
    writer.add_attention_scale(HEAD**-0.5)


FAMILIES: dict[str, tuple[Callable[[Any], None], Callable[[int], Shapes]]] = {
    "llama": (_all_attend, _llama),
    "qwen3": (_all_attend, _qwen3),
    "gemma3": (_half_slide, _gemma3),
    "lfm2": (_half_convolve, _lfm2),
    "granitehybrid": (_half_recur, _granitehybrid),
}
