"""The real command, twice, with families that have a text model inside, heads of several widths, shared layers, or
layers that remember in states.
"""

import json

import pytest
from hybrid_models import HYBRIDS, save_hybrid_model
from tiny_models import KEPT, make_tokenizer
from tiny_wrapped_models import save_wrapped, whole

KINDS = {  # what their text configs have beside
    "gemma4 with one projection": (
        "gemma4",
        {"num_kv_shared_layers": 0, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
    ),
    "gemma4 with shared layers": ("gemma4", {}),
    "gemma3n": ("gemma3n", {}),
    "mistral3": ("mistral3", {}),
    "qwen3_vl": ("qwen3_vl", {}),
    "qwen3_5": ("qwen3_5", {}),
}
BYTES = {"vocab_size": 260, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": None}


@pytest.fixture(scope="module", params=[*KINDS, *HYBRIDS])
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    if request.param in HYBRIDS:
        return save_hybrid_model(folder, request.param)
    kind, text = KINDS[request.param]
    if kind == "qwen3_vl":
        whole(kind, **BYTES).save_pretrained(folder)
    else:
        words = {"vocab_size_per_layer_input": 260} if kind.startswith("gemma") else {}
        save_wrapped(folder, kind, **BYTES, **words, **text)
    make_tokenizer().save_pretrained(folder)
    return folder


def test_what_is_asked_again_is_not_read_again(localctx, folder, document):
    def ask():
        how = ("--json", "--model", folder, "--kv", "int8", "--dtype", "f32", "--max-tokens", 24)
        done = localctx("ask", document, "How long is river 3?", *how)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    cold, warm = ask(), ask()
    assert cold["tokens"]["reused"] == 0
    assert warm["tokens"]["reused"] >= 0.95 * KEPT
    assert cold["answer"] == warm["answer"]
