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
from localctx.kernels.llvm.vector_math import NIBBLES, SIGNED
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.choice.sizing import sizing_of
from localctx.models.load import load_model, loading_bytes
from localctx.models.quantized.weight_formats import parameter_bytes, refuse_weights
from localctx.settings import load_settings
from localctx.workflows.summary_task import SummaryTask

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
TEXT = [(i * 37 + i // 7) % 250 for i in range(200)]


def kinds(model) -> set[int]:
    of = model._weights
    return {of.head.kind, *(b.kind for entry, e in of.layers for b in (entry.qkv, e.output, e.gate_up, e.down))}


def logits(model) -> torch.Tensor:
    return model.forward(TEXT, Cache(Pool(model.shape, "f32", rope=model.rope), model.dtype), len(TEXT))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("weights", "expected", "near"), [("int8", {SIGNED}, 0.05), ("int4", {NIBBLES, SIGNED}, 0.3)])
def test_weights_in_few_bits_are_computed_with_and_are_near_the_full_ones(tiny_model, weights, expected, near, dtype):
    full, small = (load_model(tiny_model, "m", dtype=dtype, weights=w) for w in ("full", weights))
    assert kinds(small) == expected
    assert small._weights.head.kind == SIGNED, "the output layer has 8 bits"
    assert not kinds(full) & {SIGNED, NIBBLES}
    a, b = logits(full), logits(small)
    assert not torch.equal(a, b)
    assert (a - b).abs().max() < near * a.abs().max()


def test_the_precision_is_no_matter_where_rows_are_rounded(tiny_model):
    f32, bf16 = (load_model(tiny_model, "m", dtype=dtype, weights="int4") for dtype in ("f32", "bf16"))
    assert torch.equal(logits(f32), logits(bf16))


def test_pages_of_other_weights_are_other_pages(tiny_model):
    plain, full, small, smaller = (
        load_model(tiny_model, "m", dtype="f32", **how).fingerprint("int8")
        for how in ({}, {"weights": "full"}, {"weights": "int8"}, {"weights": "int4"})
    )
    assert plain == full
    assert len({full, small, smaller}) == 3


def test_who_wants_other_weights_loads_another_model_and_does_other_work(home):
    full, small = (load_settings(weights=weights, summaries="write") for weights in ("full", "int8"))
    assert not same_model(full, small)
    recipes = {SummaryTask("medium").recipe(settings) for settings in (full, small)}
    assert len(recipes) == 2


# Sizes


@pytest.mark.parametrize("name", ["full", "int8", "int4"])
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
    int8 = 128 * (64 + 4)  # filled up to 128 outputs, each with two scales in 16 bits
    int4 = 128 * (32 + 8)  # and two minima
    assert parameter_bytes(module, "int8") == 2 * (6400 + 100) + int8
    assert parameter_bytes(module, "int4") == 2 * (6400 + 100) + int4
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
        for w in ("full", "int8", "int4")
    ]
    assert [plan["weights"] for plan in plans] == ["full", "int8", "int4"]
    assert plans[2]["weights_bytes"] < plans[1]["weights_bytes"] < plans[0]["weights_bytes"]
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
        (["--weights", "int3"], 2, "weights = 'int3' is not valid", "full, int8, int4 or nf4"),
        (["--weights", "nf4", "--device", "cpu"], 1, "nf4 weights are for a GPU", "--weights int4"),
        (["--weights", "int4", "--dtype", "f16", "--device", "cpu"], 1, "not computed in float16", "--dtype f32"),
    ],
)
@pytest.mark.parametrize("command", ["ask", "plan"])
def test_what_nothing_multiplies_by_is_told_in_one_line(
    run, document, tiny_model, command, flags, code, problem, remedy
):
    asked = [document, "why?"] if command == "ask" else []
    assert_one_line(run(command, *asked, "--model", tiny_model, *flags), code, problem, remedy)


def test_what_a_device_does_not_compute_is_refused():
    for precision in (torch.float32, torch.bfloat16):
        for weights in ("full", "int8", "int4"):
            refuse_weights(weights, CPU, precision)
    with pytest.raises(ModelError, match="int4 weights are for a processor") as refused:
        refuse_weights("int4", torch.device("cuda"), torch.bfloat16)
    assert "nf4" in str(refused.value.remedy)
