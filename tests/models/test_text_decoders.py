"""The text model inside a model that also reads images or sound: it is loaded alone, and answers as the whole does."""

import json
from pathlib import Path

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from tiny_family_configs import VOCABULARY, tiny_config
from tiny_wrapped_models import PREFIXES, save_wrapped, whole

from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.architecture.text_decoder import build_without_weights, decoder_of, loading_options
from localctx.models.choice.sizing import sizing_of
from localctx.models.decoder.transformers_model import TransformersModel, load_whole
from localctx.models.load import decoder_parameters

KINDS = ("mistral3", "qwen3_vl", "qwen2_5_vl", "glm4v", "gemma3", "gemma4")  # the first by its text class
TOKENS = torch.randint(3, VOCABULARY, (150,), generator=torch.Generator().manual_seed(1)).tolist()


def load(folder: Path) -> TransformersModel:
    kind, how = loading_options(folder, tf.AutoConfig.from_pretrained(folder))
    return TransformersModel(load_whole(kind, folder, dtype=torch.float32, **how))


def logits(model: TransformersModel) -> torch.Tensor:
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    return torch.cat([model.forward(TOKENS[:100], cache, num_logits=100), model.forward(TOKENS[100:], cache, 50)])


@pytest.fixture(scope="module", params=KINDS)
def saved(request, tmp_path_factory) -> tuple[str, Path, torch.Tensor]:
    """A kind, the folder of a whole model of it, and the logits of its eager attention."""
    module = whole(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    module.save_pretrained(folder)
    with torch.inference_mode():
        return request.param, folder, module(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0]


def test_it_equals_the_whole_model(saved):
    torch.testing.assert_close(logits(load(saved[1])), saved[2], atol=1e-4, rtol=1e-4)


def is_of_the_text(name: str) -> bool:
    return not any(tower in name for tower in ("vis", "multi_modal", "projector"))


@pytest.mark.slow
@pytest.mark.parametrize("towers", ["absent", "garbage"])
def test_towers_do_not_matter(saved, tmp_path, towers):
    kind, folder, _ = saved
    expected = logits(load(folder))
    weights = load_file(folder / "model.safetensors")
    text = {name: w for name, w in weights.items() if is_of_the_text(name)}
    assert len(text) < len(weights) or kind == "gemma4"  # whose tiny config has no towers
    garbage = {name: torch.full_like(w, torch.nan) for name, w in weights.items() if name not in text}
    save_file({**text, **(garbage if towers == "garbage" else {})}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    assert torch.equal(logits(load(tmp_path)), expected)


class CountedFile:
    """A safetensors file that notes which tensors are read."""

    def __init__(self, file, names):
        self._file, self._names = file, names

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __exit__(self, *error):
        return self._file.__exit__(*error)

    def get_slice(self, name):
        return CountedSlice(self._file.get_slice(name), name, self._names)


class CountedSlice:
    def __init__(self, tensor, name, names):
        self._tensor, self._name, self._names = tensor, name, names

    def __getattr__(self, name):
        return getattr(self._tensor, name)

    def __getitem__(self, index):
        self._names.add(self._name)
        return self._tensor[index]


def test_weights_of_towers_are_not_read(saved, monkeypatch):
    names, given = set(), tf.modeling_utils.safe_open
    monkeypatch.setattr(tf.modeling_utils, "safe_open", lambda *a, **how: CountedFile(given(*a, **how), names))
    load(saved[1])
    assert names
    assert all(map(is_of_the_text, names))


@pytest.mark.slow
def test_a_plan_counts_the_text_alone(saved):
    folder = saved[1]
    model, size = load(folder), sizing_of(folder / "config.json", torch.float16)
    module = build_without_weights(tf.AutoConfig.from_pretrained(folder))
    assert decoder_parameters(folder) == sum(p.numel() for p in module.parameters())
    assert size.weights == 2 * decoder_parameters(folder)
    assert size.shape == model.shape
    if tf.AutoConfig.from_pretrained(folder).tie_word_embeddings == module.config.tie_word_embeddings:
        assert model.parameters == decoder_parameters(folder)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("kind", ["mistral3", "gemma3n"])
def test_whatever_its_weights_are_called(tmp_path, kind, prefix):
    module = save_wrapped(tmp_path, kind, prefix)
    with torch.inference_mode():
        expected = module(input_ids=torch.tensor([TOKENS]), use_cache=False).logits[0]
    torch.testing.assert_close(logits(load(tmp_path)), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["mistral3", "qwen3_vl"])
def test_a_weight_that_is_absent_is_named(tmp_path, kind):
    whole(kind).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in weights if name.endswith("layers.1.self_attn.k_proj.weight") and is_of_the_text(name))
    del weights[lost]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"it lacks \S*layers\.1\.self_attn\.k_proj\.weight"):
        load(tmp_path)


def test_a_stretched_window_is_the_text_models(tmp_path):
    whole("qwen3_vl").save_pretrained(tmp_path)
    model = load(tmp_path)
    plain = logits(model)
    model.scale_rope("yarn:2")
    assert model.context == 2 * model.trained
    assert not torch.allclose(logits(model), plain, atol=1e-4)


def test_codes_of_a_quantized_checkpoint_are_not_taken_for_numbers():
    config = tiny_config("mistral3")
    config.quantization_config = {"quant_method": "fp8"}
    assert decoder_of(config).config.quantization_config == {"quant_method": "fp8"}
    assert not hasattr(config.text_config, "quantization_config")


def test_what_has_no_text_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "siglip"}))
    with pytest.raises(ModelError, match="siglip models are not supported: transformers builds no text"):
        sizing_of(tmp_path / "config.json", torch.float16)
