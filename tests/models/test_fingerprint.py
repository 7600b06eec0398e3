"""Fingerprints: everything that decides a page's bytes changes the name."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from localctx.errors import ModelError
from localctx.models.load import load_model

pytestmark = pytest.mark.slow


@pytest.fixture
def model_folder(tiny_model, tmp_path):
    return shutil.copytree(tiny_model, tmp_path / "model")


def change_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def fingerprint(folder, codec="int8", **how):
    return load_model(folder, "m", **how).fingerprint(codec)


@pytest.mark.parametrize(
    "change",
    [{"rms_norm_eps": 1e-3}, {"hidden_act": "relu"}, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}],
)
def test_another_config_is_another_fingerprint(model_folder, change):
    before = fingerprint(model_folder)
    assert fingerprint(model_folder) == before
    change_config(model_folder, **change)
    assert fingerprint(model_folder) != before


def test_codec_precision_weights_template_and_tokenizer_count(model_folder):
    seen = {fingerprint(model_folder, dtype=dtype) for dtype in ("f32", "bf16")} | {fingerprint(model_folder, "f32")}
    weights = load_file(model_folder / "model.safetensors")
    name = next(iter(weights))
    weights[name].view(-1)[0] += 1
    save_file(weights, model_folder / "model.safetensors", metadata={"format": "pt"})
    seen.add(fingerprint(model_folder))
    template = model_folder / "chat_template.jinja"
    template.write_text(template.read_text() + " ")
    seen.add(fingerprint(model_folder))
    tokenizer = model_folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"add_prefix_space":false', '"add_prefix_space":true', 1))
    tokenizer.write_text(tokenizer.read_text().replace('"add_prefix_space": false', '"add_prefix_space": true', 1))
    seen.add(fingerprint(model_folder))
    assert len(seen) == 6


def test_a_name_in_the_config_decides_nothing(model_folder, tiny_model):
    change_config(model_folder, _name_or_path="elsewhere", transformers_version="4.0.0")
    assert fingerprint(model_folder) == fingerprint(tiny_model)


def test_weights_that_are_missing_are_not_made_up(model_folder):
    weights = load_file(model_folder / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, model_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(model_folder, "m")
