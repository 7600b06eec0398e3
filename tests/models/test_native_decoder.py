"""Plain decoders without transformers: their configs, weights and numbers are those that it would read and compute."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as tf
from native_models import SIZES, build, config_in, plain
from safetensors.torch import load_file, save_file

from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.keepers.select import DENSE_LAYERS, Select
from localctx.kv.pool import Pool
from localctx.models.architecture.decoder_config import parse_native_config, read_native_config
from localctx.models.architecture.frequencies import frequencies
from localctx.models.architecture.geometry import geometry_of, shape_of
from localctx.models.base import ForwardRequest
from localctx.models.decoder.forward_batch import ForwardBatch
from localctx.models.decoder.native_decoder import NativeDecoder
from localctx.models.decoder.rope import positions_of
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.load import load_model
from localctx.models.quantized.blocked_linear import block_linears
from localctx.shape import PAGE

pytestmark = pytest.mark.slow

YARN = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}
ODD = {"hidden_size": 72, "intermediate_size": 50, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 10}

# --- Configs

CONFIGS = [
    ("llama", {}),
    ("llama", {"num_key_value_heads": 4, "head_dim": 96, "tie_word_embeddings": True, "eos_token_id": [1, 2]}),
    ("llama", {"rope_theta": 5e5, "rope_scaling": None, "eos_token_id": None}),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 1e5}),
    (
        "llama",
        {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8192}, "max_position_embeddings": 131072},
    ),
    ("llama", {"rope_parameters": LLAMA3, "sliding_window": None, "pretraining_tp": 2, "bos_token_id": 5}),
    ("mistral", {}),
    ("mistral", {"sliding_window": None, "rope_theta": 1e6}),
    ("mistral", {"head_dim": None, "sliding_window": 100}),
    ("qwen2", {}),
    ("qwen2", {"use_sliding_window": True, "max_window_layers": 20}),
    (
        "qwen2",
        {"use_sliding_window": False, "sliding_window": 32768, "max_window_layers": 21, "num_key_value_heads": 2},
    ),
    ("qwen2", {"rope_scaling": {**YARN, "original_max_position_embeddings": 32768}, "hidden_size": 2048}),
    ("qwen2", {"layer_types": ["full_attention", "sliding_attention"] * 16, "use_sliding_window": True}),
    ("qwen3", {}),
    ("qwen3", {"head_dim": 64, "attention_bias": False, "rope_parameters": YARN, "tie_word_embeddings": True}),
]


@pytest.mark.parametrize(("family", "said"), CONFIGS)
def test_a_config_says_what_it_says_to_transformers(family, said, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family, **said}))
    mine, theirs = read_native_config(tmp_path), tf.AutoConfig.from_pretrained(tmp_path)
    assert mine
    assert shape_of(mine) == shape_of(theirs)
    assert geometry_of(mine) == geometry_of(theirs)
    assert positions_of(mine) == positions_of(theirs)
    for name in mine.to_dict().keys() - {"qkv_bias", "head_norms", "head_dim", "sliding_window", "layer_types"}:
        assert getattr(mine, name) == getattr(theirs, name), name
    for name in ("sliding_window", "layer_types"):  # what a family does not look at, it need not have
        assert getattr(mine, name) == getattr(theirs, name, None), name


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("gemma", {}),
        ("phi3", {}),
        (None, {}),
        ("llama", {"hidden_act": "gelu"}),
        ("llama", {"mlp_bias": True}),
        ("llama", {"attention_bias": True}),
        ("qwen3", {"attention_bias": True}),
        ("llama", {"quantization_config": {"quant_method": "gptq"}}),
        ("llama", {"partial_rotary_factor": 0.5}),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("llama", {"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}),
        ("llama", {"rope_scaling": {"type": "linear"}}),
        ("llama", {"rope_scaling": [2.0]}),
        ("llama", {"sliding_window": 100}),
        ("mistral", {"layer_types": ["full_attention"] * 32}),
        ("qwen2", {"layer_types": ["sliding_attention"] * 32}),
        ("qwen2", {"max_window_layers": None}),
        ("llama", {"num_hidden_layers": "32"}),
        ("llama", {"num_attention_heads": 0}),
        ("llama", {"num_key_value_heads": 5}),
        ("llama", {"head_dim": 5}),
        ("llama", {"a_word_of_tomorrow": 1}),
    ],
)
def test_what_may_be_no_plain_decoder_is_left_to_transformers(family, said):
    assert parse_native_config({"model_type": family, **said}) is None


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 1e5},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0},
        {**LLAMA3, "original_max_position_embeddings": 8192},
        *(
            {**YARN, "original_max_position_embeddings": 4096, **more}
            for more in (
                {},
                {"factor": 1.0},
                {"attention_factor": 0.7},
                {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
                {"mscale": 1.0, "mscale_all_dim": 0.5, "factor": 40.0},
                {"beta_fast": 3.0, "beta_slow": 3.0, "truncate": False},
            )
        ),
    ],
)
@pytest.mark.parametrize("dim", [16, 64, 128])
def test_frequencies_are_those_of_transformers(rope, dim):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    theirs = LlamaRotaryEmbedding(tf.LlamaConfig(**{**SIZES, "head_dim": dim}, rope_parameters=dict(rope)))
    mine, scale = frequencies(rope, dim)
    torch.testing.assert_close(mine, theirs.inv_freq, rtol=1e-6, atol=0)
    assert scale == pytest.approx(theirs.attention_scaling)


# --- Numbers

FAMILIES = [
    ("Llama", {}),
    ("Llama", ODD),
    ("Llama", {"tie_word_embeddings": True, "rope_parameters": {**YARN, "factor": 2}}),
    ("Mistral", {"sliding_window": 40}),
    ("Qwen2", {}),
    ("Qwen2", {**ODD, "use_sliding_window": True, "sliding_window": 70, "max_window_layers": 1}),
    ("Qwen3", {}),
]


def logits(model):
    """Of sequences that are read, and go on together: few tokens of each, and many of one."""
    pool = Pool(model.shape, "f32", rope=model.rope)
    caches = [Cache(pool, model.dtype) for _ in range(3)]
    found = [model.forward(list(range(1, 61 + 17 * i)), cache, 5) for i, cache in enumerate(caches)]
    for tokens in ([[5, 6, 7], [8], [9] * 12], [[1], [2], [3]], [[4] * 5, [6] * 76, [7]]):
        feeds = [ForwardRequest(some, cache, len(some)) for some, cache in zip(tokens, caches, strict=True)]
        found += model.forward_each(feeds)
    return torch.cat(found)


@pytest.mark.parametrize("kept", ["full", "int8"])
@pytest.mark.parametrize(("family", "more"), FAMILIES)
def test_logits_are_those_of_the_modules(family, more, kept):
    """Rows are rounded to int8 for weights in few bits: numbers that differ by a last digit may be rounded apart."""
    module = build(family, **more)
    mine = plain(module, kept)
    block_linears(module, kept)
    bound = 2e-4 if kept == "full" else 0.05
    torch.testing.assert_close(logits(mine), logits(TransformersModel(module)), atol=bound, rtol=1e-4)


@pytest.mark.parametrize(("family", "more"), FAMILIES)
def test_a_sequence_does_not_depend_on_what_is_computed_beside_it(family, more):
    """To the last bit, however few or many rows there are."""
    model = plain(build(family, **more))

    def alone_and_beside(tokens, beside):
        pool = Pool(model.shape, "f32", rope=model.rope)
        caches = [Cache(pool, model.dtype) for _ in range(3)]
        for cache in caches:
            model.forward([3, 1, 4, 1, 5], cache)
        (alone,) = model.forward_each([ForwardRequest(tokens, caches[0], len(tokens))])
        return alone, model.forward_each(
            [ForwardRequest(beside, caches[1]), ForwardRequest(tokens, caches[2], len(tokens))]
        )[1]

    for tokens, beside in (([7], [8]), ([7, 8, 9], [1] * 16), ([7], [1] * 90), ([9] * 80, [2, 3])):
        alone, together = alone_and_beside(tokens, beside)
        assert torch.equal(alone, together)


@pytest.mark.parametrize("kept", ["full", "int8"])
@pytest.mark.parametrize(("family", "more"), FAMILIES)
def test_layers_in_one_call_compute_what_they_compute_one_by_one(family, more, kept, monkeypatch):
    """To the last bit, and the recorded attention, also where a page is filled. Layers that differ are called alone."""
    model, offered = plain(build(family, **more), kept), ForwardBatch.layer_pages.fget
    taken = list[bool]()

    def tokens_by_token(pages):
        monkeypatch.setattr(ForwardBatch, "layer_pages", property(pages))
        pool = Pool(model.shape, "int8", rope=model.rope)
        caches = [Cache(pool, model.dtype) for _ in range(2)]
        for start, cache in zip((60, 90), caches, strict=True):
            model.forward(list(range(1, start)), cache)
            cache.record_attention()
        requests = [ForwardRequest([7], cache) for cache in caches]
        logits = torch.cat([model.forward_each(requests)[row] for _ in range(70) for row in range(2)])
        return logits, [cache.attention_mass for cache in caches]

    def told(batch):
        taken.append(offered(batch) is not None)
        return offered(batch)

    (at_once, masses), (one_by_one, expected) = tokens_by_token(told), tokens_by_token(lambda batch: None)
    assert torch.equal(at_once, one_by_one)
    assert all(np.array_equal(mass, same) for mass, same in zip(masses, expected, strict=True))
    assert masses[1].any() == ("sliding_window" not in more), "a sliding layer records nothing"
    assert any(taken) == ("sliding_window" not in more)


@pytest.mark.parametrize(("family", "pages"), [("Llama", 31), ("Llama", 150), ("Qwen2", 31)])
def test_layers_in_one_call_select_the_pages_that_they_select_one_by_one(family, pages, monkeypatch):
    """The same pages in every layer, which are touched; also where bounds are compared first, a page is filled, and
    keys lack their bias.
    """
    model, offered = plain(build(family, num_hidden_layers=DENSE_LAYERS + 2)), ForwardBatch.layer_pages.fget
    selected = list[int]()
    tokens = torch.randint(1, 90, (pages * PAGE + 40,), generator=torch.Generator().manual_seed(1)).tolist()

    def answer(offer):
        monkeypatch.setattr(ForwardBatch, "layer_pages", property(offer))
        pool = Pool(model.shape, "int8", rope=model.rope)
        cache = Cache(pool, model.dtype, Select(part=0.1))
        for start in range(0, len(tokens), 512):
            model.forward(tokens[start : start + 512], cache)
        cache.enter_phase("answering")
        cache.record_attention()
        return torch.cat([model.forward([7], cache) for _ in range(70)]), pool._used, cache.attention_mass

    def told(batch):
        if (found := offered(batch)) and found.selection.selected:
            selected.append(found.selection.selected)
        return offered(batch)

    (at_once, touched, mass), (one_by_one, expected, same) = answer(told), answer(lambda batch: None)
    assert np.array_equal(mass, same)
    assert len(selected) == 70, "every token of the answer selects in one call"
    assert torch.equal(at_once, one_by_one)
    assert np.array_equal(touched, expected)
    assert touched[:pages].min() < touched[:pages].max(), "some pages were not needed at the end"


@pytest.mark.parametrize("spec", ["auto", "yarn:2", "linear:2", "llama3:8"])
def test_a_stretched_window_and_a_glance_are_those_of_the_modules(spec):
    module = build("Qwen2")
    seen, turned = [], []
    for model in (plain(module, rope=spec), TransformersModel(module, rope=spec)):
        pool = Pool(model.shape, "f32", rope=model.rope)
        cache = Cache(pool, model.dtype)
        model.forward(list(range(80)), cache)
        seen.append(model.probe_layer([1, 2, 3], cache, 1))
        assert (cache.length, model.context) == (80, 512 * {"auto": 1, "llama3:8": 8}.get(spec, 2))
        k, positions = seen[-1][0], torch.arange(40, 50)
        assert model.rope.has_bias(1)
        turned.append((model.rope.rerotate(1, k, 33), model.rope.bias_keys(1, positions)))
    for mine, theirs in zip((*seen[0], *turned[0]), (*seen[1], *turned[1]), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_views_have_windows_of_their_own():
    model = plain(build("Llama"))
    other = model.view()
    other.scale_rope("yarn:2")
    cache = Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype)
    assert (model.context, other.context) == (512, 1024)
    expected = model.forward([1, 2, 3], cache.fork())
    assert torch.equal(other.forward([1, 2, 3], cache), expected), "a cache says how its keys turn"


def test_weights_are_kept_once_and_in_sixteen_bits():
    tied, untied = (plain(build("Llama", tie_word_embeddings=tie).bfloat16()) for tie in (True, False))
    numbers = sum(p.numel() for p in build("Llama", tie_word_embeddings=True).parameters())
    assert numbers * 2 <= tied.nbytes < numbers * 2.2
    assert untied.nbytes - tied.nbytes == 128 * 64 * 2  # the last block of the 100 rows is filled up


# --- Folders


@pytest.fixture
def folder(tmp_path, tiny_model) -> Path:
    """A model folder to change."""
    for file in tiny_model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_plain_decoder_needs_no_transformers(tiny_model):
    code = f"""
import sys
from pathlib import Path
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.load import load_model
model = load_model(Path({str(tiny_model)!r}), "tiny", dtype="f32")
cache = Cache(Pool(model.shape, "int8", rope=model.rope), model.dtype)
tokens = model.tokenizer.encode_chat([{{"role": "user", "content": "hello"}}])
model.forward(tokens, cache)
print("transformers" in sys.modules, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_who_computes_is_chosen_by_precision(tiny_model, dtype):
    model = load_model(tiny_model, "tiny", "cpu", dtype)
    assert isinstance(model, NativeDecoder) == (dtype != "f16")
    assert model.tokenizer.stop_ids == {257}


def change(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize("how", ["word", "tied twice", "adapter", "base names", "eight bits"])
def test_what_is_not_just_so_is_left_to_transformers(folder, how):
    file = folder / "model.safetensors"
    weights = load_file(file)
    if how == "word":
        change(
            folder,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0] * 8,
                "long_factor": [1.0] * 8,
                "original_max_position_embeddings": 4096,
            },
        )
    elif how == "tied twice":
        change(folder, tie_word_embeddings=True)
    elif how == "adapter":
        (folder / "adapter_config.json").write_text("{}")
    elif how == "base names":
        weights = {name.removeprefix("model."): w for name, w in weights.items()}
    else:
        weights["model.norm.weight"] = weights["model.norm.weight"].to(torch.float64)
    save_file(weights, file, {"format": "pt"})
    try:
        model = load_model(folder, "m", "cpu", "f32")
    except ModelError:
        assert how in ("adapter", "base names"), "as transformers sees it"
    else:
        assert isinstance(model, TransformersModel)


def test_weights_in_several_files_are_those_in_one(folder):
    one = load_model(folder, "m", dtype="f32").forward([1, 2, 3], empty(folder))
    tf.AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink()
    assert len([*folder.glob("*.safetensors")]) > 1
    several = load_model(folder, "m", dtype="f32")
    assert isinstance(several, NativeDecoder)
    assert torch.equal(several.forward([1, 2, 3], empty(folder)), one)


def empty(folder):
    return Cache(Pool(shape_of(read_native_config(folder)), "f32"), torch.float32)


@pytest.mark.parametrize("change_it", ["absent", "of another shape", "cut"])
def test_weights_that_are_wrong_are_told_by_name(folder, change_it):
    file, name = folder / "model.safetensors", "model.layers.1.mlp.up_proj.weight"
    weights = load_file(file)
    if change_it == "absent":
        weights.pop(name)
    elif change_it == "of another shape":
        weights[name] = weights[name][:-1].clone()
    save_file(weights, file, {"format": "pt"})
    if change_it == "cut":
        file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="does not load" if change_it == "cut" else rf"lacks {name}"):
        load_model(folder, "m", "cpu", "f32")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", '{"broken": 1}'),
        ("tokenizer.json", "no JSON"),
        ("tokenizer_config.json", '{"tokenizer_class": "TokenizersBackend", "added_tokens_decoder": null}'),
        ("config.json", '{"model_type": "llama", "layer_types": 5}'),
        ("config.json", '{"model_type": "llama", "hidden_size": "wide"}'),
        ("config.json", "[]"),
    ],
)
def test_files_that_are_not_what_they_should_be_are_told_in_a_line(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(ModelError) as told:
        load_model(folder, "m", "cpu", "f32")
    assert "\n" not in str(told.value)


def test_the_default_model_is_plain(default_home):
    from localctx.models.catalog import FALLBACK

    config = read_native_config(default_home / "models" / FALLBACK)
    assert config
    assert config_in(tf.AutoConfig.from_pretrained(default_home / "models" / FALLBACK)) == config
