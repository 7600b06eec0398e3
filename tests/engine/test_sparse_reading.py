"""Sparse reading: what it promises, which pages it may reuse, and where it is refused."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import promises
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import save_sharp_model

from localctx.engine.planning import plan
from localctx.engine.planning.plan import refuse_for_gguf
from localctx.engine.torch_engine import TorchEngine
from localctx.errors import DocumentError, UsageError
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.quality.variants import Variant, group_by_prefill, make_variants
from localctx.session import Session
from localctx.settings import Settings, load_settings, prefill_loss
from localctx.shape import KVShape, LayerShape
from localctx.workflows.check_bundle import check_pages

pytestmark = pytest.mark.slow

QUESTIONS = ["How long is river 3?", "Where does it end?"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return save_sharp_model(tmp_path_factory.mktemp("models") / "sharp", seed=0)


@pytest.fixture
def document(tmp_path) -> Path:
    (file := tmp_path / "rivers.txt").write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(60)))
    return file


@pytest.fixture
def open_session(home, model):
    def open_session(**how):
        how = {"embedder": "none", "adapter": "none", "mode": "full", "max_tokens": 12, "draft": 0, "chunk": 256, **how}
        return closing(Session(load_settings(home=home, **{"model": str(model), **how}), lambda event: None))

    return open_session


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_restored_is_as_read_and_alone_is_as_side_by_side(open_session, document, precision):
    with open_session(dtype=precision, reading="sparse:0.3") as s:
        assert promises.difference(*promises.restored(s, document, QUESTIONS[0]))[0] == 0
        assert promises.difference(*promises.alone(s, document, QUESTIONS[0], QUESTIONS[1:]))[0] == 0


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("keys", ["plain", "biased"])
def test_it_skips_pages_of_a_long_text(open_session, document, precision, keys, model, tmp_path):
    """Also where the stored keys lack the bias of k_proj."""
    name, answers = str(save_biased(model, tmp_path / "biased") if keys == "biased" else model), []
    for reading in ("full", "sparse:0.3"):
        with open_session(dtype=precision, reading=reading, model=name) as s:
            answers.append(promises.ask(s, document, QUESTIONS[0]))
    assert promises.difference(*answers)[1] > 0


def save_biased(model: Path, folder: Path) -> Path:
    """The model as a Qwen 2, with biased queries and keys."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    weights, random = load_file(folder / "model.safetensors"), torch.Generator().manual_seed(0)
    for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
        weights[name.replace("weight", "bias")] = torch.randn(len(weights[name]), generator=random)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_pages_are_reused_by_the_same_way_of_reading_only(open_session):
    names = []
    for reading in ("full", "sparse", "sparse:0.1", "sparse:0.05"):
        with open_session(reading=reading) as s:
            names.append(s.model.fingerprint("int8"))
    assert names[1] == names[2], "0.1 is the share that is meant where none is said"
    assert len({*names}) == 3


@pytest.mark.parametrize("reading", ["", "sparsely", "sparse:", "sparse:0", "sparse:1", "sparse:2", "sparse:-0.1"])
def test_other_words_are_refused(reading):
    with pytest.raises(UsageError, match=r"^reading = .* is not valid"):
        prefill_loss(reading)


def test_it_is_refused_on_a_gpu_and_by_llama_cpp(home, monkeypatch):
    settings = Settings(home, reading="sparse")
    monkeypatch.setattr(plan, "pick_device", lambda name: torch.device("cuda"))
    with pytest.raises(UsageError, match="not on cuda"):
        plan.refuse_sparse_reading(settings)
    plan.refuse_sparse_reading(replace(settings, reading="full"))
    with pytest.raises(UsageError, match="does not support --reading sparse"):
        refuse_for_gguf(settings)


def test_pages_that_were_read_sparsely_are_not_taken_from_others(open_session):
    with open_session(reading="sparse") as s:
        assert s.model.prefill_loss == 0.1
        with pytest.raises(DocumentError, match="sparsely cannot be checked"):
            check_pages(s.runtime, None, [None])


def test_a_codec_that_passed_is_trusted_however_texts_are_read(open_session):
    """And sparse reading that failed says nothing about its codec."""
    with open_session(reading="full") as s:
        full, store = s.model.fingerprint("int4"), s.runtime.store
        store.quality_results.note(full, "sharp", "int4", True, {})
        failed = Variant("int8", "full", "sparse").key(s.model.fingerprint("int8"))
        store.quality_results.note(failed, "sharp", "int8 sparse", False, {})
    with open_session(reading="sparse") as s:
        engine = TorchEngine(s.runtime)
        assert s.model.fingerprint("int4") != full
        assert engine._passed("int4") is True
        assert engine._passed("int8") is None


def test_a_question_skips_nothing():
    cache = Cache(Pool(KVShape((LayerShape(1, 8, 8),)), "f32", prefill_loss=0.2), torch.float32)
    assert [cache.prefill_loss, cache.pool.with_codec("int8").prefill_loss] == [0.2, 0.2]
    cache.enter_phase("asking")
    assert cache.prefill_loss == 0


def test_quality_compares_it_with_full_reading():
    found = make_variants([], [], "sparse")
    assert [v.name for v in found] == ["f32", "int8 sparse"]
    assert [v.name for v in make_variants(["int8"], ["select:1/4"], "sparse:0.2")] == [
        *("f32", "int8", "int8 sparse:0.2", "int8 select:1/4"),
    ]
    groups = group_by_prefill([Variant("f32"), Variant("int8"), Variant("int8", "full", "sparse")])
    assert [len(group) for group in groups] == [1, 1, 1], "they do not share a prefill"
