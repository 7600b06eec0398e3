"""Tiny random models with layers that remember in states, made on the spot, as folders."""

from pathlib import Path

HYBRIDS = ("lfm2", "qwen3_5_text", "granitemoehybrid", "falcon_h1")
"""A convolution alone; a delta rule; Mamba 2; Mamba 2 and attention in the same layer."""


def save_hybrid_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """A random model of the type ``kind`` whose tokens are bytes."""
    import torch
    from tiny_family_configs import tiny_config
    from tiny_models import make_tokenizer
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    config = tiny_config(kind)
    config.vocab_size, config.bos_token_id, config.eos_token_id = 260, 256, 257
    config.max_position_embeddings = 32768
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
