"""The plan of a GGUF's memory beside what llama.cpp then allocates, and which engine computes what."""

import json
from pathlib import Path

import pytest
import torch
from required_extras import needs_llama
from tiny_gguf import write_gguf
from tiny_ggufs import FAMILIES, write_tiny_gguf

from localctx.budget import Measured
from localctx.engine import model_loader
from localctx.engine.planning import plan
from localctx.engine.planning.capacity import plan_memory
from localctx.errors import ModelError, TooLong, UserError
from localctx.models.choice import engine_choice
from localctx.models.choice.engine_choice import choose_engine
from localctx.models.llama_cpp import trial
from localctx.models.llama_cpp.context import LlamaContext
from localctx.models.llama_cpp.library import llama_library, llama_log
from localctx.models.llama_cpp.model import load_llama_model
from localctx.models.llama_cpp.trial import ContextBytes, LlamaSizes, context_bytes
from localctx.session import Session
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

SMALL = 64 << 10  # bytes by which llama.cpp's log rounds the sizes of tiny models


def test_sizes_between_and_beyond_two_measured_contexts_are_linear():
    contexts = ContextBytes(8192, 8192.0, 5.0, 100.0), ContextBytes(65536, 65536.0, 5.0, 800.0)
    sizes = LlamaSizes(1, 1, 0, False, True, [], True, {"f16": contexts})
    assert (sizes.at("f16", 16384).kv, sizes.at("f16", 16384).states, sizes.bytes_per_token("f16")) == (16384, 5, 1)
    most = sizes.largest("f16", 40_000)
    assert sizes.at("f16", most).need.total <= 40_000 < sizes.at("f16", most + 256).need.total


@needs_llama
@pytest.mark.parametrize("family", FAMILIES)
def test_the_plan_is_what_is_then_allocated(family, home, tmp_path):
    path = write_tiny_gguf(tmp_path / "model.gguf", family)
    for kv, context in (("auto", 4096), ("auto", 32_768), ("int8", 16_384)):
        settings = load_settings(home=home, model=str(path), engine="llama.cpp", kv=kv)
        plan = plan_memory(settings, context=context)
        model = load_llama_model(path, family, home / "tried", threads=1)
        codec = plan.kv["codec"]
        options = model.memory_options(codec)
        with llama_log() as log:
            made = LlamaContext(model._weights.pointer, model, type(options)(**{**vars(options), "cells": context}))
        allocated = context_bytes(context, log)
        made.close()
        planned = plan.kv["bytes"] + plan.activation_bytes
        assert planned == pytest.approx(allocated.need.total, rel=0.05, abs=SMALL)
        assert plan.weights_bytes == pytest.approx(model.nbytes, rel=0.01)


@needs_llama
@pytest.mark.parametrize("crashes", [True, False])
def test_weights_are_not_repacked_if_llama_cpp_crashes_with_that(tmp_path, monkeypatch, crashes):
    path, run_trial, loaded = write_tiny_gguf(tmp_path / "model.gguf", "llama"), trial.run_trial, []

    def run(module, arguments, gguf):
        if len(arguments) == 1 and crashes:
            raise ModelError("llama.cpp ended by a signal", "take another model")
        return b"" if len(arguments) == 1 else run_trial(module, arguments, gguf)

    library, load = llama_library(), llama_library().llama_model_load_from_file
    monkeypatch.setattr(trial, "run_trial", run)
    monkeypatch.setattr(
        library, "llama_model_load_from_file", lambda *a: loaded.append(a[1].use_extra_bufts) or load(*a)
    )
    for _ in range(2):  # tried, then by the record
        assert load_llama_model(path, "llama", tmp_path / "tried", threads=1).sizes.repacks is not crashes
    assert loaded == [not crashes] * 2


@needs_llama
def test_a_document_that_does_not_fit_is_refused_with_numbers(home, tmp_path):
    path = write_tiny_gguf(tmp_path / "model.gguf", "llama")
    text = tmp_path / "long.txt"
    text.write_text("A river is long. " * 700)
    settings = load_settings(
        home=home, model=str(path), engine="llama.cpp", memory="4MiB", mode="full", embedder="none"
    )
    with (
        Session(settings) as session,
        pytest.raises(TooLong, match=r"tokens take .* MiB in llama.cpp; there are 4.0 MiB"),
    ):
        session.ask("How long?", [str(text)])


@needs_llama
def test_a_file_that_memory_does_not_hold_is_refused_before_it_is_loaded(home, tmp_path, monkeypatch):
    path = write_tiny_gguf(tmp_path / "model.gguf", "llama")
    monkeypatch.setattr(plan, "measure_ram", lambda: Measured(1000, 1000))
    monkeypatch.setattr(model_loader, "load_llama_model", None)
    with (
        Session(load_settings(home=home, model=str(path), engine="llama.cpp", device="cpu")) as session,
        pytest.raises(ModelError, match=r"takes 0.0 GiB, and 0.0 GiB are free; close programs"),
    ):
        session.runtime.load()


def test_auto_takes_llama_for_what_torch_cannot_run(tmp_path, monkeypatch):
    plain = write_gguf(tmp_path / "plain.gguf")
    recurrent = write_tiny_gguf(tmp_path / "recurrent.gguf", "granitehybrid")
    monkeypatch.setattr(engine_choice, "llama_cpp_is_installed", lambda: True)
    chosen = {name: choose_engine(str(path), "auto") for name, path in (("plain", plain), ("recurrent", recurrent))}
    assert chosen == {"plain": "torch", "recurrent": "llama.cpp"}
    assert choose_engine(str(plain), "llama.cpp") == "llama.cpp"
    assert choose_engine("owner/name:*Q4_K_M*", "auto") == "llama.cpp"
    assert choose_engine("smollm2-135m-instruct", "auto") == "torch"
    with pytest.raises(ModelError, match=r"llama\.cpp runs GGUF files"):
        choose_engine("smollm2-135m-instruct", "llama.cpp")


def test_a_split_gguf_is_one_model(tmp_path):
    from localctx.models.files.gguf_file import find_gguf, open_gguf

    whole = write_tiny_gguf(tmp_path / "whole.gguf", "llama")
    parts = split(whole, tmp_path / "parts")
    assert find_gguf(str(parts)) == parts / "model-00001-of-00002.gguf"
    assert open_gguf(parts / "model-00001-of-00002.gguf").nbytes == open_gguf(whole).nbytes
    (parts / "model-00002-of-00002.gguf").rename(parts / "gone")
    with pytest.raises(ModelError, match=r"lacks model-00002-of-00002\.gguf"):
        open_gguf(parts / "model-00001-of-00002.gguf")


@needs_llama
def test_a_split_gguf_computes_what_the_whole_does(tmp_path):
    whole = write_tiny_gguf(tmp_path / "whole.gguf", "llama")
    parts = split(whole, tmp_path / "parts") / "model-00001-of-00002.gguf"
    tokens, logits = list(range(40)), []
    for path in (whole, parts):
        model = load_llama_model(path, "tiny", tmp_path / "tried", threads=1)
        model.memory("f16").allow(4096)
        logits.append(model.forward(tokens, model.new_cache("f16")))
    assert torch.equal(*logits)


def split(whole: Path, folder: Path) -> Path:
    """The file ``whole`` in two parts: metadata with a half of the tensors, and the other half."""
    from gguf import GGUFReader, GGUFWriter

    folder.mkdir()
    reader = GGUFReader(whole)
    half = len(reader.tensors) // 2
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        writer = GGUFWriter(folder / f"model-{number + 1:05}-of-00002.gguf", "llama")
        for field in reader.fields.values() if not number else ():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                kind, item = field.types[0], field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), kind, item)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in tensors:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder


@needs_llama
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"weights": "int8"}, "not with int8 weights"),
        ({"adapter": "smollm2-135m-reader"}, "cannot compute the adapter smollm2-135m-reader"),
        ({"adapter": "nobody"}, "there is no adapter 'nobody'"),
    ],
)
def test_what_a_gguf_cannot_follow_is_refused_before_it_is_loaded(home, tmp_path, monkeypatch, settings, problem):
    monkeypatch.setattr(model_loader, "load_llama_model", lambda *a, **how: pytest.fail("it was loaded"))
    path = write_tiny_gguf(tmp_path / "model.gguf", "llama")
    asked = load_settings(home=home, model=str(path), engine="llama.cpp", **settings)
    with pytest.raises(UserError, match=problem):
        plan_memory(asked)
    (tmp_path / "text.txt").write_text("A river is long.")
    with Session(asked) as session, pytest.raises(UserError, match=problem):
        session.ask("How long?", [tmp_path / "text.txt"])


@needs_llama
def test_without_a_named_adapter_a_gguf_answers_without_one_and_the_plan_says_so(run, tmp_path):
    path = write_tiny_gguf(tmp_path / "model.gguf", "llama")
    (tmp_path / "text.txt").write_text("A river is long.")
    flags = ("--engine", "llama.cpp", "--model", path)
    done = run("ask", tmp_path / "text.txt", "How long?", *flags, "--max-tokens", 4, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["adapter"] is None
    assert report["kv"]["engine"] == "llama.cpp"
    assert "adapter      none" in run("plan", *flags).stdout
