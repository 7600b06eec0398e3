"""The default model, or another Llama folder with a byte-level vocabulary, as a GGUF with its tokenizer and template.

python tests/helpers/default_gguf.py FOLDER FILE.gguf
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from localctx.models.peers.llama_gguf import write_gguf


def write_with_vocabulary(folder: Path, path: Path) -> Path:
    """Write the model in ``folder`` as a GGUF in f16 that llama.cpp tokenizes for."""
    write_gguf(folder, path, partial(_describe, folder))
    return path


def _describe(folder: Path, writer: Any) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    template = folder / "chat_template.jinja"
    tokens = dict(tokenizer["model"]["vocab"])
    special = {token["content"] for token in tokenizer["added_tokens"] if token["special"]}
    tokens |= {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    ordered = sorted(tokens, key=tokens.__getitem__)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(ordered)
    writer.add_token_types([3 if token in special else 1 for token in ordered])
    writer.add_token_merges(merges)
    for name, add in (("bos_token", writer.add_bos_token_id), ("eos_token", writer.add_eos_token_id)):
        value = config.get(name)
        add(tokens[value["content"] if isinstance(value, dict) else value])
    writer.add_chat_template(template.read_text() if template.is_file() else config["chat_template"])


if __name__ == "__main__":
    print(write_with_vocabulary(Path(sys.argv[1]), Path(sys.argv[2])))
