"""Folders of adapters: what is not computed, damaged, or another model's is refused in one line with a remedy."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tiny_adapters import INVOCATION, save_adapter
from tiny_models import make_tokenizer, save_tiny_model

from localctx.engine.decoding.confidence import calibrations
from localctx.errors import ModelError
from localctx.models import adapter_folders
from localctx.models.adapter import load_adapter
from localctx.models.adapter_folders import SHIPPED, find_adapter, shipped_adapters
from localctx.models.catalog import load_catalog
from localctx.models.load import load_model

pytestmark = pytest.mark.slow

NAME = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"


@pytest.fixture(scope="module")
def made(tiny_model, tmp_path_factory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapters") / "made", tiny_model)


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """A copy of an adapter, to change."""
    return Path(shutil.copytree(made, tmp_path / "adapter"))


def configure(folder: Path, **changes: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def reweigh(folder: Path, change) -> None:
    weights = load_file(folder / "adapter_model.safetensors")
    change(weights)
    save_file(weights, folder / "adapter_model.safetensors")


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as refused:
        load_adapter(folder)
    text = str(refused.value)
    assert "\n" not in text
    assert refused.value.remedy
    return text


def test_an_adapter_has_the_name_of_its_folder_its_invocation_and_a_reader_file_if_there_is_one(folder):
    plain = load_adapter(folder)
    assert plain.invocation == tuple(make_tokenizer().encode(INVOCATION))
    assert (plain.name, plain.form, plain.not_said, plain.measured) == ("adapter", "", "", {})
    reader = {"form": "{documents}\n\nAsked: {question}", "not_said": "No.", "threshold": 0.5}
    (folder / "reader.json").write_text(json.dumps(reader))
    told = load_adapter(folder)
    assert (told.form, told.not_said, told.measured) == ("Asked: {question}", "No.", {"threshold": 0.5})
    assert told.fingerprint == plain.fingerprint, "the words of a prompt are in its tokens"


def test_a_fingerprint_is_of_what_is_computed(folder):
    first = load_adapter(folder).fingerprint
    configure(folder, base_model_name_or_path="elsewhere", lora_dropout=0.1)
    assert load_adapter(folder).fingerprint == first
    configure(folder, lora_alpha=3)
    second = load_adapter(folder).fingerprint
    reweigh(folder, lambda weights: weights[NAME.format("A")].add_(1))
    assert len({first, second, load_adapter(folder).fingerprint}) == 3


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"alora_invocation_tokens": None}, "alora_invocation_tokens"),
        ({"alora_invocation_tokens": ["a"]}, "invocation tokens"),
        ({"use_dora": True}, "use_dora"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 8}}, "alpha_pattern"),
        ({"bias": "all"}, "bias"),
        ({"peft_type": "IA3"}, "peft_type"),
        ({"task_type": "SEQ_CLS"}, "task_type"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"a_key_of_tomorrow": {"on": True}}, "a_key_of_tomorrow"),
        ({"r": 0}, "rank"),
        ({"r": 5}, "rank"),
        ({"lora_alpha": "many"}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"use_rslora": "no"}, "use_rslora"),
        ({"a\nkey\x1b[2J": 1}, r"'a\nkey\x1b[2J'"),
    ],
)
def test_what_is_not_computed_is_refused(folder, changes, said):
    configure(folder, **changes)
    assert said in refusal(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop(NAME.format("B")), "lacks a matrix"),
        (lambda w: w.update({"base_model.model.lm_head.lora_A.weight": torch.zeros(4, 64)}), "lm_head"),
        (lambda w: w.update({NAME.format("A"): torch.zeros(3, 64)}), "rank"),
        (lambda w: w[NAME.format("A")].fill_(float("nan")), "finite"),
        (lambda w: w[NAME.format("B")].fill_(float("inf")), "finite"),
        (lambda w: w[NAME.format("B")].fill_(3e38), "finite"),  # times its scale
        (lambda w: w.update({NAME.replace("q_proj", "\x1b[2J").format("A"): torch.zeros(4, 64)}), r"\x1b[2J"),
        (lambda w: w.update({NAME.format("A"): torch.zeros(4, 64, dtype=torch.int8)}), "floating-point"),
        (lambda w: w.clear(), "floating-point"),
    ],
)
def test_weights_that_are_wrong_are_refused(folder, change, said):
    reweigh(folder, change)
    assert said in refusal(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
@pytest.mark.parametrize("content", [None, b"", b"[]", b"\xff" * 100])
def test_files_that_are_damaged_or_missing_are_refused(folder, name, content):
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    assert name in refusal(folder)


FORMS = [7, "no question", "{question.__class__}", "{question} {other}", "{question", "{0}", "{question:>999999999}"]
FORMS += ["{question!x}", "{question:{s}}", "\ud800 {question}"]


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_file_without_a_form_is_refused(folder, form):
    (folder / "reader.json").write_text(json.dumps({"form": form}))
    assert "form" in refusal(folder)


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ("[]", "reader.json: it is no object"),
        ('{"not_said"', "reader.json"),
        ("[" * 100_000, "reader.json"),
        ('{"not_said": 7}', "not_said"),
        (r'{"not_said": "\ud800"}', "not_said"),
        ('{"effective": "all"}', "effective"),
        ('{"passages": 0}', "passages"),
        ('{"answers": "sing"}', "answers"),
    ],
)
def test_a_reader_file_that_is_wrong_is_refused(folder, reader, said):
    (folder / "reader.json").write_text(reader)
    assert said in refusal(folder)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=9), values, max_size=3),
    max_leaves=6,
)
KEYS = ["r", "lora_alpha", "use_rslora", "alora_invocation_tokens", "target_modules", "bias", "peft_type", "new"]
KEYS += ["form", "not_said", "effective", "passages", "answers", "confidence"]


@settings(max_examples=300)
@given(st.sampled_from(KEYS), VALUES)
def test_any_value_of_any_key_is_taken_or_refused(made, key, value):
    with TemporaryDirectory() as name:
        folder = Path(shutil.copytree(made, Path(name) / "adapter"))
        configure(folder, **{key: value})
        (folder / "reader.json").write_text(json.dumps({key: value}))
        assert_taken_or_refused(folder)


@settings(max_examples=200)
@given(st.sampled_from(["adapter_config.json", "adapter_model.safetensors"]), st.data())
def test_any_changed_byte_is_taken_or_refused(made, name, data):
    with TemporaryDirectory() as temporary:
        file = Path(shutil.copytree(made, Path(temporary) / "adapter")) / name
        content = bytearray(file.read_bytes())
        at = data.draw(st.integers(0, min(len(content), 2000) - 1))
        content[at] = data.draw(st.integers(0, 255))
        file.write_bytes(content[: data.draw(st.sampled_from([len(content), at]))])
        assert_taken_or_refused(file.parent)


def assert_taken_or_refused(folder: Path) -> None:
    refused = ""
    try:
        calibrations(load_adapter(folder))
    except ModelError as e:
        refused = str(e)
    assert "\n" not in refused


def test_pickled_weights_are_never_read(folder):
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    assert "adapter_model.safetensors is missing" in refusal(folder)


@pytest.mark.parametrize("dtype", ["f32", "f16"])  # the native decoder, and transformers
def test_an_adapter_of_another_model_is_refused(folder, tiny_model, tmp_path, dtype):
    model = load_model(tiny_model, "tiny", dtype=dtype)
    for key, other in (("A", torch.zeros(4, 32)), ("B", torch.zeros(32, 4))):
        before = load_file(folder / "adapter_model.safetensors")[NAME.format(key)]
        reweigh(folder, lambda weights, key=key, other=other: weights.update({NAME.format(key): other}))
        with pytest.raises(ModelError, match="another model: the shape of"):
            model.add_adapter(load_adapter(folder))
        reweigh(folder, lambda weights, key=key, before=before: weights.update({NAME.format(key): before}))
    deeper = NAME.replace("layers.0", "layers.9")
    reweigh(
        folder, lambda w: w.update({deeper.format("A"): torch.zeros(4, 64), deeper.format("B"): torch.zeros(64, 4)})
    )
    with pytest.raises(ModelError, match=r"layers\.9"):
        model.add_adapter(load_adapter(folder))


def test_the_setting_names_a_folder_a_shipped_reader_what_the_catalogue_says_or_none(folder, tmp_path, monkeypatch):
    assert find_adapter(str(folder), "any") == folder
    assert find_adapter("none", "smollm2-135m-instruct") is None
    assert find_adapter("auto", "a model that nobody knows") is None
    for wrong in ("nothing-of-this-name", str(tmp_path), "~nobody-of-this-name/adapter", "long" * 5000, "\0"):
        with pytest.raises(ModelError, match="there is no adapter"):
            find_adapter(wrong, "any")
    shutil.copytree(folder, tmp_path / "readers" / "made")
    monkeypatch.setattr(adapter_folders, "SHIPPED", tmp_path / "readers")
    assert shipped_adapters() == ["made"]
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "made").parent)
    assert find_adapter("made", "any") == tmp_path / "readers" / "made"
    assert find_adapter("./made", "any") == Path("made")


def test_every_reader_that_the_catalogue_names_is_there_and_loads():
    named = {entry.reader for entry in load_catalog().values() if entry.reader}
    assert named == set(shipped_adapters()), f"readers are in {SHIPPED}, and each is some model's"
    for name in named:
        adapter = load_adapter(SHIPPED / name)
        assert adapter.form
        assert adapter.not_said
        assert adapter.nbytes <= 20 << 20


def test_a_model_of_another_seed_takes_the_same_adapter(folder, tmp_path):
    adapter, model = load_adapter(folder), load_model(save_tiny_model(tmp_path / "other", seed=5), "other")
    model.add_adapter(adapter)
    assert adapter.fingerprint in model._adapters


def test_a_name_that_is_too_long_is_refused_at_once(sharp_model, tmp_path):
    folder = save_adapter(tmp_path / "long", sharp_model)
    name = f"base_model.model.{'a.layers.1.' * 20_000}lora_C.weight"
    save_file({name: torch.zeros(4, 4)}, folder / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="train it on the linear layers"):
        load_adapter(folder)
