"""Random models of published shapes as folders, to measure requests where no weights can be fetched.

python tests/helpers/random_models.py FOLDER NAME [TOKENIZER_FOLDER]
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from tiny_models import make_tokenizer

SIZES: dict[str, dict[str, Any]] = {
    "llama-3-1b": {
        **{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131_072},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    },
    "qwen3-1.7b": {
        **{"model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28},
        **{"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
    },
    "qwen3-4b": {
        **{"model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
    },
    "llama-3-8b": {
        **{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    },
    "qwen3-8b": {
        **{"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 36},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960},
        **{"rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}},
    },
    "tiny": {
        **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 8192},
    },
}
SHARD = 2 << 30  # bytes of weights in a file


def save_random_model(
    folder: Path, name: str, device: str, layers: int | None = None, tokenizer: Path | None = None
) -> Path:
    """A random decoder of SIZES in bf16, with as many ``layers``, made on the device and written in shards. Attention
    is neither flat nor on a single token, and a token that ends an answer is never the likeliest.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    folder.mkdir()
    tokens, ends = save_tokenizer(folder, tokenizer)
    size = {**SIZES[name], "vocab_size": tokens, "tie_word_embeddings": False, "dtype": "bfloat16"}
    size |= {"num_hidden_layers": layers} if layers else {}
    config = AutoConfig.for_model(**size, eos_token_id=ends[0], bos_token_id=ends[0])
    with torch.device("meta"):
        module = AutoModelForCausalLM.from_config(config)
    config.architectures = [type(module).__name__]
    config.save_pretrained(folder)
    save_weights(folder, {key: p.shape for key, p in module.state_dict().items()}, ends, device)
    return folder


def save_tokenizer(folder: Path, source: Path | None) -> tuple[int, list[int]]:
    """Write the tokenizer; returns the size of its vocabulary, and its special tokens."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=True) if source else make_tokenizer()
    tokenizer.save_pretrained(folder)
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    return len(tokenizer), sorted(special, key=lambda token: (token != tokenizer.eos_token_id, token))


def save_weights(folder: Path, shapes: dict[str, torch.Size], ends: list[int], device: str) -> None:
    """Write random weights in shards, with their index."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    shards, places, size, total = [dict[str, torch.Tensor]()], dict[str, int](), 0, 0

    def flush() -> None:
        if shards[-1]:
            save_file(shards[-1], folder / f"model-{len(shards):05}.safetensors", {"format": "pt"})
        shards[-1] = {}  # frees the memory

    for name, shape in shapes.items():
        shards[-1][name] = weight = random_weight(name, shape, ends, device).cpu()
        places[name], size, total = len(shards), size + weight.nbytes, total + weight.nbytes
        if size > SHARD:
            flush()
            shards.append({})
            size = 0
    flush()
    files = {name: f"model-{place:05}.safetensors" for name, place in places.items()}
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    if device == "cuda":
        torch.cuda.empty_cache()  # which processes that load the model need


def random_weight(name: str, shape: torch.Size, ends: list[int], device: str) -> torch.Tensor:
    """Norms are ones; the rest is random, so that what leaves a layer is about as large as what enters it."""
    how: dict[str, Any] = {"dtype": torch.bfloat16, "device": device}
    if len(shape) == 1:
        return torch.ones(shape, **how) if "norm" in name else torch.zeros(shape, **how)
    weight = torch.randn(shape, **how)
    if "embed_tokens" not in name:
        weight *= (1.5 if "self_attn" in name else 1.0) * shape[-1] ** -0.5
    if "lm_head" in name:
        weight[ends] = 0  # a logit of 0: never the largest of many random ones
    return weight


if __name__ == "__main__":
    print(save_random_model(Path(sys.argv[1]), sys.argv[2], "cpu", tokenizer=next(map(Path, sys.argv[3:4]), None)))
