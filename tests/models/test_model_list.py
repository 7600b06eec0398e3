"""The models to choose from: those of the catalogue, those in the models folder, GGUF files, and one that is named."""

import shutil
from pathlib import Path

import pytest
from fake_sources import silent
from tiny_gguf import write_gguf

from localctx.errors import ModelError
from localctx.machine import Machine, Rates
from localctx.models.catalog import CatalogEntry, load_catalog, title_of
from localctx.models.choice import model_list
from localctx.models.choice.model_advice import Advice, recommend
from localctx.models.choice.model_estimate import estimate, estimate_packed, usefulness
from localctx.models.choice.model_list import find_model, list_models
from localctx.models.hub.installed import install
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

GIB = 1 << 30
MACHINE = Machine("cpu", "made up", "bfloat16", 8 * GIB, 8 * GIB, Rates(20e9, 200e9))
CHATS = [e for e in load_catalog().values() if e.kind == "chat"]


@pytest.fixture
def advice() -> Advice:
    estimates = {e.name: estimate(e, MACHINE) for e in CHATS}
    return Advice(MACHINE, estimates, recommend(estimates.values()), False, False)


def install_files(files: list[Path], name: str, models: Path, **source: str) -> Path:
    def build(work: Path):
        (work / "made").mkdir()
        for file in files:
            shutil.copy(file, work / "made")
        return work / "made", {"kind": "test", **source}

    return install(name, models, silent, build)


def listed(advice: Advice, **flags: str) -> dict[str, model_list.ListedModel]:
    return {m.name: m for m in list_models(load_settings(**flags), advice)}


def test_all_known_models_are_listed_with_their_state_the_most_useful_here_first(advice, home, tiny_model):
    install_files(list(tiny_model.iterdir()), "qwen3-0.6b", home / "models")
    part = home / "models/.partial/qwen3-1.7b/hub"
    part.mkdir(parents=True)
    (part / "model.safetensors.0.part").write_bytes(bytes(1000))
    (install_files(list(tiny_model.iterdir()), "smollm3-3b", home / "models") / "tokenizer.json").unlink()
    found = listed(advice)
    assert sorted(found) == sorted(e.name for e in CHATS)
    keys = [usefulness(m.estimate) for m in found.values()]
    assert keys == sorted(keys)
    assert next(iter(found)) == advice.best.name
    states = {name: m.state for name, m in found.items() if m.state != "available"}
    assert states == {"qwen3-0.6b": "installed", "qwen3-1.7b": "partial", "smollm3-3b": "damaged"}
    assert found["qwen3-1.7b"].present == 1000
    assert found["qwen3-8b"].estimate == advice.models["qwen3-8b"]


def test_models_that_are_not_known_are_listed_by_what_they_are(advice, home, tiny_model, tmp_path):
    gguf = write_gguf(tmp_path / "small-Q8_0.gguf")
    install_files(list(tiny_model.iterdir()), "org--tiny", home / "models", repo="org/tiny")
    install_files(list(tiny_model.iterdir()), "gguf-0123", home / "models", file="mine.gguf")
    folder = install_files([gguf], "org--ggufs___Q8_0_", home / "models", repo="org/ggufs")
    found = listed(advice)
    assert {"org/tiny", "gguf-0123", str(folder)} == found.keys() - {e.name for e in CHATS}
    assert [found[name].entry.title for name in ("org/tiny", "gguf-0123", str(folder))] == [
        *("tiny", "mine", "small-Q8_0"),
    ]
    assert all(found[name].estimate for name in ("org/tiny", "gguf-0123", str(folder)))
    assert found["org/tiny"].entry.family == "llama"


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, (8).to_bytes(8, "little") + b'{"a": 1}', bytes(40)])
def test_a_model_whose_weights_are_garbage_hides_no_other(advice, home, tiny_model, tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    files = [tmp_path / "model.safetensors", tiny_model / "config.json"]
    install_files(files, "org--garbage", home / "models", repo="org/garbage")
    found = listed(advice)
    assert len(found) == len(CHATS) + 1
    assert found["org/garbage"].estimate is None


def test_the_model_in_use_is_listed_wherever_it_is(advice, home, tiny_model, tmp_path):
    assert listed(advice, model=str(tiny_model))[str(tiny_model)].state == "installed"
    gone = str(tmp_path / "gone")
    assert gone not in listed(advice, model=gone)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("smolm2", "there is no model 'smolm2' .near: smollm3"),
        ("all-minilm-l6-v2", "is not a model that answers"),
        ("{folder}/empty", "has no config.json"),
        ("{folder}/broken.gguf", "not a complete GGUF"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_do(home, tmp_path, name, why):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(40))
    with pytest.raises(ModelError, match=why) as error:
        find_model(name.format(folder=tmp_path), load_settings(), MACHINE)
    assert error.value.remedy == "type owner/name of the Hugging Face hub, or the path of a folder or a .gguf file"


def test_a_gguf_without_llama_cpp_says_what_it_needs(home, tmp_path, monkeypatch):
    gguf = write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(model_list, "choose_engine", lambda *_: "llama.cpp")
    monkeypatch.setattr(model_list, "llama_cpp_is_installed", lambda: False)
    assert "needs llama.cpp" in find_model(str(gguf), load_settings(), MACHINE).problem
    monkeypatch.setattr(model_list, "llama_cpp_is_installed", lambda: True)
    assert find_model(str(gguf), load_settings(), MACHINE).problem == ""


def test_a_quantized_file_is_estimated_by_its_bytes():
    entry = CatalogEntry("m", "M", "", 0, bytes=2 * GIB, parameters=4_000_000_000, fits=0, sources=())
    e = estimate_packed(entry, MACHINE)
    assert (e.fits, e.memory) == (True, 2 * GIB)
    assert e.decode_per_second == pytest.approx(1 / (0.01 + 2 * GIB / (0.85 * 20e9)))
    assert e.prefill_per_second < estimate(entry, MACHINE).prefill_per_second
    assert not estimate_packed(entry, Machine("cpu", "small", "bfloat16", GIB, GIB, Rates())).fits


def test_models_are_called_by_short_names():
    assert title_of("smollm2-135m-instruct") == "SmolLM2 135M"
    assert title_of("qwen3-4b-instruct-2507") == "Qwen3 4B"
    assert title_of("/somewhere/My model.gguf") == "My model"
    assert title_of("org/tiny") == "tiny"


def test_every_known_model_says_in_a_short_line_what_it_is_good_for():
    for entry in CHATS:
        assert 20 <= len(entry.strength) <= 80, entry.name
        assert entry.strength.endswith(".")
