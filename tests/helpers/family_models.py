"""Tiny random models, as folders, of the families with a text model inside, heads of several widths, shared layers, or
layers that remember in states.
"""

from pathlib import Path

from hybrid_models import HYBRIDS, save_hybrid_model

WRAPPED = {  # the type, and what its text config has beside
    "gemma4 with one projection": (
        "gemma4",
        {"num_kv_shared_layers": 0, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
    ),
    "gemma4 with shared layers": ("gemma4", {}),
    "gemma3n": ("gemma3n", {}),
    "mistral3": ("mistral3", {"sliding_window": None}),  # as Ministral 3 and Mistral Small have it
    "qwen3_vl": ("qwen3_vl", {}),
    "qwen3_5": ("qwen3_5", {}),
}
FAMILIES = (*WRAPPED, *HYBRIDS)
BYTES = {"vocab_size": 260, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": None}
SIZES = {**BYTES, "max_position_embeddings": 32768}


def save_family(folder: Path, family: str) -> Path:
    """A random model of one of ``FAMILIES`` whose tokens are bytes."""
    if family in HYBRIDS:
        return save_hybrid_model(folder, family)
    from tiny_models import make_tokenizer
    from tiny_wrapped_models import save_wrapped, whole

    kind, text = WRAPPED[family]
    if kind == "qwen3_vl":
        whole(kind, **SIZES).save_pretrained(folder)
    else:
        words = {"vocab_size_per_layer_input": 260} if kind.startswith("gemma") else {}
        save_wrapped(folder, kind, **SIZES, **words, **text)
    make_tokenizer().save_pretrained(folder)
    return folder
