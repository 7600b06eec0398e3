"""A tiny random encoder of the BERT family, as transformers has it and as a GGUF that llama.cpp pools vectors from."""

from pathlib import Path
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WIDTH, HEADS, INNER, LAYERS, CONTEXT = 32, 4, 64, 2, 64

_ENDS = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
_OF_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def tiny_bert() -> Any:
    """The model in transformers, float32, the same every time. Every letter is a token."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
    }
    vocabulary = len(SPECIAL) + 2 * len(LETTERS)
    config = BertConfig(vocab_size=vocabulary, max_position_embeddings=CONTEXT, initializer_range=0.5, **sizes)
    return BertModel(config, add_pooling_layer=False).eval()


def save_bert(folder: Path, module: Any) -> Path:
    """Save ``tiny_bert``, or a model with its config, as transformers does, with a tokenizer of letters."""
    from transformers import BertTokenizer

    tokens = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    tokenizer = BertTokenizer(vocab={token: i for i, token in enumerate(tokens)}, model_max_length=512)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_multilingual_bert(folder: Path) -> Path:
    """Save a model as ``multilingual-e5-small`` is: ``tiny_bert`` with XLM-R's unigrams as its tokenizer."""
    from transformers import XLMRobertaTokenizer

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [(token, 0.0) for token in special] + [(piece, -float(len(piece))) for piece in ("▁", *LETTERS, ":")]
    pieces += [("▁query", -3.0), ("▁passage", -3.0), ("der", -2.5), ("▁a", -1.5), ("租金", -2.0), ("<mask>", 0.0)]
    tiny_bert().save_pretrained(folder)
    XLMRobertaTokenizer(vocab=pieces, model_max_length=512).save_pretrained(folder)
    return folder


def write_bert_gguf(path: Path, module: Any, pooling: int | None = 1) -> Path:
    """Write ``tiny_bert`` as a GGUF; ``pooling`` is llama.cpp's number of it (1: the mean; None: not told)."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, "bert")
    writer.add_context_length(CONTEXT)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    if pooling is not None:
        writer.add_uint32("bert.pooling_type", pooling)
    _describe_vocabulary(writer)
    for name, tensor in module.state_dict().items():
        if (known := _named(name)) is not None:
            writer.add_tensor(known, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe_vocabulary(writer: Any) -> None:
    tokens = [*SPECIAL, *(f"\N{LOWER ONE EIGHTH BLOCK}{letter}" for letter in LETTERS), *LETTERS]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)


def _named(name: str) -> str | None:
    """The name in a GGUF of a tensor in transformers; None for one that no GGUF has."""
    if not name.startswith("encoder.layer."):
        stem, dot, kind = name.rpartition(".")
        return _ENDS.get(name) or (f"{_ENDS[stem]}{dot}{kind}" if stem in _ENDS else None)
    layer, _, rest = name.removeprefix("encoder.layer.").partition(".")
    stem, _, kind = rest.rpartition(".")
    return f"blk.{layer}.{_OF_LAYER[stem]}.{kind}"
