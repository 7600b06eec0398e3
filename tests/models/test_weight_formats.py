"""Weights in fewer bits: chosen by a setting, part of a page's name, sized beforehand, refused in a line."""

import json

import pytest
import torch
from ask_in_process import PLAIN
from command_checks import assert_one_line
from safetensors.torch import load_file
from tiny_models import save_tiny_model

from localctx.engine.model_loader import same_model
from localctx.errors import ModelError
from localctx.kernels.simd import SIGNED
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.load import load_model, loading_bytes
from localctx.models.sizing import sizing_of
from localctx.models.weight_formats import parameter_bytes, refuse_weights
from localctx.settings import load_settings
from localctx.workflows.summary_task import SummaryTask

CPU = torch.device("cpu")
TEXT = [(i * 37 + i // 7) % 250 for i in range(200)]


def kinds(model) -> set[int]:
    of = model._weights
    return {of.head.kind, *(b.kind for entry, e in of.layers for b in (entry.qkv, e.output, e.gate_up, e.down))}


def logits(model) -> torch.Tensor:
    return model.forward(TEXT, Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype), len(TEXT))


def test_int8_weights_are_computed_with_and_are_near_the_full_ones(tiny_model):
    full, small = (load_model(tiny_model, "m", dtype="f32", weights=w) for w in ("full", "int8"))
    assert kinds(small) == {SIGNED}
    assert SIGNED not in kinds(full)
    a, b = logits(full), logits(small)
    assert not torch.equal(a, b)
    assert (a - b).abs().max() < 0.05 * a.abs().max()


def test_pages_of_other_weights_are_other_pages(tiny_model):
    plain, full, small = (
        load_model(tiny_model, "m", dtype="f32", **how).fingerprint("int8")
        for how in ({}, {"weights": "full"}, {"weights": "int8"})
    )
    assert plain == full != small


def test_who_wants_other_weights_loads_another_model_and_does_other_work(home):
    full, small = (load_settings(weights=weights, summaries="write") for weights in ("full", "int8"))
    assert not same_model(full, small)
    recipes = {SummaryTask("medium").recipe(settings) for settings in (full, small)}
    assert len(recipes) == 2


# Sizes


@pytest.mark.parametrize("name", ["full", "int8"])
def test_what_was_sized_is_what_it_takes(tiny_model, name):
    """Blocks are filled up to 32 outputs; full ones may be narrower than the precision."""
    model = load_model(tiny_model, "m", dtype="f32", weights=name)
    sized = sizing_of(tiny_model / "config.json", torch.float32, name).weights
    assert 0.5 * sized <= model.nbytes <= 1.3 * sized
    assert name == "full" or sized < sizing_of(tiny_model / "config.json", torch.float32).weights


def test_bytes_by_hand():
    module = torch.nn.Sequential(torch.nn.Embedding(100, 64), torch.nn.Linear(64, 100, dtype=torch.bfloat16))
    module[0].weight.data = module[0].weight.data.bfloat16()
    assert parameter_bytes(module, "full") == 2 * (6400 + 6400 + 100)
    int8 = 128 * (64 + 4)  # filled up to 128 outputs, each with one scale
    assert parameter_bytes(module, "int8") == 2 * (6400 + 100) + int8
    module[1].weight = module[0].weight
    assert parameter_bytes(module, "full") == 2 * (6400 + 100), "tied"
    assert parameter_bytes(module, "int8") == 2 * (6400 + 100) + int8, "the embedding stays as it is"


def test_a_processor_has_whole_weights_while_transformers_loads_them(tmp_path):
    folder = save_tiny_model(tmp_path)
    whole = loading_bytes(folder, CPU, torch.float16, "full")  # a precision that no NativeDecoder has
    assert whole == 2 * sum(p.numel() for p in load_file(folder / "model.safetensors").values())
    assert loading_bytes(folder, CPU, torch.float16, "int8") < 0.7 * whole, "packed one after another"


def test_plan_and_doctor_tell_of_them(run, tiny_model, home, monkeypatch):
    monkeypatch.delenv("LOCALCTX_DTYPE", raising=False)  # the file says it
    plans = [
        json.loads(run("plan", "--json", "--model", tiny_model, "--dtype", "f32", "--weights", w).stdout)
        for w in ("full", "int8")
    ]
    assert [plan["weights"] for plan in plans] == ["full", "int8"]
    assert plans[1]["weights_bytes"] < plans[0]["weights_bytes"]
    shown = run("plan", "--model", tiny_model, "--dtype", "f32", "--weights", "int8").stdout
    assert any(line.startswith("weights ") and line.endswith(" in int8") for line in shown.splitlines())
    home.mkdir(exist_ok=True)
    (home / "settings.toml").write_text('weights = "int8"\ndtype = "f32"\n')
    assert json.loads(run("doctor", "--json").stdout)["device"]["precision"] == "float32, int8 weights"
    (home / "settings.toml").write_text('weights = "nf4"\ndevice = "cpu"\n')
    assert any(
        "nf4 weights are for a GPU" in problem for problem in json.loads(run("doctor", "--json").stdout)["problems"]
    )


def test_an_answer_with_them_does_not_take_pages_of_the_full_ones(run, document, tiny_model, monkeypatch):
    for name, value in {**PLAIN, "dtype": "f32"}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    ask = ("ask", document, "why?", "--model", tiny_model, "--json", "--max-tokens", 2)
    reused = [
        json.loads(run(*ask, *flags).stdout)["tokens"]["reused"] for flags in ([], ["--weights", "int8"]) for _ in "ab"
    ]
    assert reused[1] == reused[3] > 0 == reused[0] == reused[2]


# Refusals


@pytest.mark.parametrize(
    ("flags", "code", "problem", "remedy"),
    [
        (["--weights", "int3"], 2, "no 'int3' weights", "full, int8, nf4"),
        (["--weights", "nf4", "--device", "cpu"], 1, "nf4 weights are for a GPU", "--weights int8"),
        (["--weights", "int8", "--dtype", "bf16", "--device", "cpu"], 1, "not in bfloat16", "--dtype f32"),
    ],
)
@pytest.mark.parametrize("command", ["ask", "plan"])
def test_what_nothing_multiplies_by_is_told_in_one_line(
    run, document, tiny_model, command, flags, code, problem, remedy
):
    asked = [document, "why?"] if command == "ask" else []
    assert_one_line(run(command, *asked, "--model", tiny_model, *flags), code, problem, remedy)


def test_a_processor_in_bf16_keeps_full_weights(tiny_model):
    refuse_weights("full", CPU, torch.bfloat16)
    with pytest.raises(ModelError, match="--dtype f32"):
        load_model(tiny_model, "m", device="cpu", dtype="bf16", weights="int8")
