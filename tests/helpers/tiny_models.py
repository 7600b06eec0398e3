"""Tiny random models made on the spot, as folders."""

from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)

KEPT = 653  # tokens of ``document`` that every question shares, as the tiny models read it: 11 pages, the last open


def make_tokenizer():
    """A byte-level tokenizer without merges: a token a byte, and the two that mark turns."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def save_tiny_model(folder: Path, seed: int = 0) -> Path:
    """A random Llama of two layers with two KV heads for four query heads, and a tokenizer, as a model folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        bos_token_id=256,
        eos_token_id=257,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_sharp_model(folder: Path, seed: int) -> Path:
    """A tiny model whose attention is sharp, so that its answer hangs on the keys and values of every page."""
    import torch
    from safetensors.torch import load_file, save_file

    save_tiny_model(folder, seed)
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "self_attn" in name:
            weights[name] = weights[name] * 20
    assert all(w.dtype == torch.float32 for w in weights.values())
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
