"""BertEncoder makes the vectors that transformers makes, and does not import it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_bert import save_bert, tiny_bert

from localctx.errors import ModelError
from localctx.models import embedder
from localctx.models.decoder.bert_encoder import read_bert_sizes
from localctx.models.embedder import TransformerEmbedder
from localctx.models.hub.resolve import resolve_model
from localctx.settings import load_settings
from localctx.settings.table import EMBEDDER

CPU = torch.device("cpu")
TEXTS = ["abc", "", "a much longer text than that", "[CLS] sep [MASK]", "Ünï çode 漢\x00", "word " * 90, "x" * 300]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_bert(tmp_path_factory.mktemp("encoders") / "tiny", tiny_bert())


@pytest.fixture
def changed(folder, tmp_path) -> Any:
    """Returns a function that copies the folder and changes values in one of its JSON files."""

    def change(file: str, **values: Any) -> Path:
        copy = shutil.copytree(folder, tmp_path / "changed", dirs_exist_ok=True)
        raw = json.loads((copy / file).read_text())
        (copy / file).write_text(json.dumps({**raw, **values}))
        return copy

    return change


def vectors(encoding: Any, texts: list[str]) -> np.ndarray:
    with torch.inference_mode():
        hidden, mask = encoding.encode(texts)
        return ((hidden.float() * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)).numpy()


def both(folder: Path, texts: list[str], dtype: torch.dtype = torch.float32) -> tuple[np.ndarray, np.ndarray]:
    """The means by BertEncoder, and by transformers."""
    ours = embedder._bert_encoding(folder, CPU, dtype)
    assert ours is not None
    return vectors(ours, texts), vectors(embedder._transformers_encoding(folder, CPU, dtype), texts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("texts", [*([text] for text in TEXTS), TEXTS], ids=str)
def test_means_are_those_of_transformers(folder, texts, dtype):
    ours, theirs = both(folder, texts, dtype)
    assert np.abs(theirs).max() > 0.1
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 if dtype == torch.float32 else 0.02)


def test_the_vectors_of_the_default_embedder_are_those_of_transformers():
    folder = resolve_model(EMBEDDER, load_settings().models, lambda *p: None, "embedder")
    ours, theirs = both(folder, TEXTS)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_a_checkpoint_with_a_head_is_read_by_its_prefix(tmp_path):
    from transformers import BertForMaskedLM

    torch.manual_seed(0)
    whole = BertForMaskedLM(tiny_bert().config).eval()
    saved = save_bert(tmp_path / "whole", whole)
    ours, theirs = both(saved, TEXTS)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"model_type": "roberta"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("config.json", {"is_decoder": True}),
        ("config.json", {"something_new": 1}),
        ("config.json", {"num_attention_heads": 5}),
        ("config.json", {"hidden_size": "32"}),
        ("tokenizer_config.json", {"padding_side": "left"}),
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizer"}),
        ("tokenizer_config.json", {"cls_token": "[START]"}),
    ],
)
def test_what_may_be_computed_otherwise_is_left_to_transformers(changed, file, values):
    assert embedder._bert_encoding(changed(file), CPU, torch.float32) is not None
    assert embedder._bert_encoding(changed(file, **values), CPU, torch.float32) is None


def test_an_encoder_that_is_left_to_transformers_still_makes_vectors(changed):
    relu = TransformerEmbedder(changed("config.json", hidden_act="relu"), "relu").embed(["abc"])
    gelu = TransformerEmbedder(changed("config.json", hidden_act="gelu"), "gelu").embed(["abc"])
    assert 0.1 < (relu @ gelu.T).item() < 0.9999


@pytest.mark.parametrize("values", [{"num_hidden_layers": 10**9}, {"intermediate_size": 65}, {"vocab_size": 10**12}])
def test_weights_that_are_not_those_of_the_config_are_refused_at_once(changed, values):
    with pytest.raises(ModelError, match=r"it lacks|its (num_hidden_layers|vocab_size) is"):
        TransformerEmbedder(changed("config.json", **values), "wrong").embed(["abc"])


def test_sizes_that_are_absent_are_those_of_transformers(tmp_path):
    from transformers import BertConfig

    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    ours, theirs = read_bert_sizes(tmp_path), BertConfig()
    assert ours
    assert vars(ours) == {name: getattr(theirs, name) for name in vars(ours)}


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"model_type": ["bert"]}'])
def test_a_damaged_config_is_left_to_transformers(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    assert read_bert_sizes(tmp_path) is None


@pytest.mark.slow
def test_vectors_are_made_without_importing_transformers(folder):
    code = """if True:
        import sys
        from pathlib import Path
        from localctx.models.embedder import TransformerEmbedder
        assert TransformerEmbedder(Path(sys.argv[1]), "tiny").embed(["abc"]).shape == (1, 32)
        print(sorted(sys.modules.keys() & {"transformers", "accelerate", "huggingface_hub"}))
    """
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
