"""What this machine can run: estimates of made-up machines, a measurement that is made once, and who is told of it."""

import json
import socket
import time
from dataclasses import asdict, replace

import pytest
import torch
from ask_in_process import PLAIN
from clock import seconds_since
from command_checks import assert_one_line
from hypothesis import given
from hypothesis import strategies as st
from tiny_gguf import write_gguf

from localctx import machine as machines
from localctx.budget import Measured
from localctx.machine import FILE, Machine, Rates, measure_machine, measure_rates
from localctx.models.catalog import FALLBACK, load_catalog
from localctx.models.choice import model_advice as advising
from localctx.models.choice.model_advice import advise, recommend
from localctx.models.choice.model_estimate import (
    MeasuredSpeed,
    correct,
    describe_estimate,
    describe_memory,
    estimate,
    format_rate,
    usefulness,
    with_speed,
)
from localctx.models.choice.model_list import find_model
from localctx.models.hub.installed import install
from localctx.settings import load_settings

pytestmark = pytest.mark.slow

GIB, GB = 1 << 30, 10**9
CPU = torch.device("cpu")
KNOWN = load_catalog()
NAMES = f"{FALLBACK} qwen3-0.6b granite-4.0-1b qwen3-1.7b smollm3-3b granite-4.1-3b"
NAMES += " qwen3-4b-instruct-2507 qwen3-8b granite-4.1-8b qwen3-14b"
SOME = [KNOWN[name] for name in NAMES.split()]  # so that what is recommended does not change with the catalogue
STEADY = Rates(20 * GB, 150 * GB)


def recommended(entries, machine: Machine, weights: str = "full"):
    return recommend([estimate(e, machine, weights) for e in entries if e.kind == "chat"])


def machine(free: float, bandwidth: float, arithmetic: float, precision="float32", device="cpu") -> Machine:
    """One with so many GiB free, and GB and billions of operations a second."""
    rates = Rates(bandwidth * GB, arithmetic * GB)
    return Machine(device, "made up", precision, int(free * GIB), int(free * GIB), rates)


TINY = machine(0.6, 8, 40)
LAPTOP = machine(5, 25, 160)
GPU = machine(22.5, 1000, 150_000, "bfloat16", "cuda")

# Of machines that nobody has here


@pytest.mark.parametrize(
    ("here", "name", "weights", "why"),
    [
        (TINY, FALLBACK, "full", "the next, Qwen3 0.6B, needs 936.2 MiB"),
        (machine(0.05, 8, 40), FALLBACK, "int8", "no larger known model"),
        (machine(16, 1, 5), FALLBACK, "full", "no larger known model"),
        (LAPTOP, "qwen3-1.7b", "full", "the next, SmolLM3 3B, needs 14.3 GiB"),
        (replace(LAPTOP, free=4 * GIB), "qwen3-1.7b", "int8", "SmolLM3"),
        (
            machine(11, 60, 600, "bfloat16"),
            "qwen3-4b-instruct-2507",
            "full",
            "Qwen3 8B, needs",
        ),
        (machine(50, 20, 140), "granite-4.0-1b", "full", "Qwen3 1.7B, would read only about 28 a second"),
        (machine(50, 20, 300), "qwen3-1.7b", "full", "SmolLM3 3B, would answer about 2.7"),
        (machine(50, 28, 400), "qwen3-4b-instruct-2507", "int8", "Qwen3 8B, would answer"),
        (GPU, "qwen3-14b", "nf4", "fits and answers at least 4 tokens a second"),
        (machine(79, 2000, 400_000, "bfloat16", "cuda"), "qwen3-14b", "full", "the largest known model"),
        (machine(7.5, 300, 60_000, "bfloat16", "cuda"), "granite-4.1-8b", "nf4", "Qwen3 14B, needs 10.3 GiB"),
        (machine(3.7, 200, 40_000, "bfloat16", "cuda"), "qwen3-4b-instruct-2507", "nf4", "Qwen3 8B, needs 6.3 GiB"),
        (Machine("cuda", "full", "bfloat16", GIB, 8 * GIB, Rates()), FALLBACK, "full", "no larger known model"),
    ],
)
def test_the_largest_that_fits_and_is_fast_enough_is_recommended(here, name, weights, why):
    best = recommended(SOME, here)
    assert (best.name, best.weights, best.title, best.bytes) == (name, weights, KNOWN[name].title, KNOWN[name].bytes)
    assert why in best.reason
    assert "\n" not in best.reason


def test_figures_of_a_machine_by_hand():
    e = estimate(KNOWN["qwen3-1.7b"], machine(10, 20, 200))
    assert e.memory == KNOWN["qwen3-1.7b"].bytes
    assert e.decode_per_second == pytest.approx(1 / (2 * 1.720574976 / (0.85 * 20) + 0.01), 1e-3)
    assert e.prefill_per_second == pytest.approx(0.7 * 200 / (2 * 1.720574976), 1e-3)
    assert estimate(KNOWN["smollm3-3b"], machine(10, 20, 200)).memory == 4 * KNOWN["smollm3-3b"].parameters
    assert estimate(KNOWN["smollm3-3b"], machine(10, 20, 200, "bfloat16")).memory == KNOWN["smollm3-3b"].bytes
    wide = estimate(KNOWN["qwen3-1.7b"], replace(GPU, precision="float32"))
    assert wide.memory == 4 * KNOWN["qwen3-1.7b"].parameters


def test_who_chose_fewer_bits_gets_estimates_of_them():
    e = estimate(KNOWN["qwen3-8b"], replace(GPU, free=6 * GIB), "nf4")
    assert (e.weights, e.fits) == ("nf4", False)
    assert e.memory < KNOWN["qwen3-8b"].bytes / 2
    assert recommended(KNOWN.values(), LAPTOP, "int8").weights == "int8"


def test_a_mixture_of_experts_is_as_fast_as_what_a_token_uses_and_ranks_between():
    dense = KNOWN["qwen3-8b"]
    mixture = replace(dense, active=dense.parameters // 4)
    slow, fast = (estimate(e, LAPTOP, "int8") for e in (dense, mixture))
    assert fast.prefill_per_second == pytest.approx(4 * slow.prefill_per_second)
    assert fast.decode_per_second > 3 * slow.decode_per_second
    assert fast.memory == slow.memory
    assert mixture.comparable_parameters == pytest.approx(dense.parameters / 2)


@pytest.mark.parametrize("here", [LAPTOP, GPU, machine(50, 20, 140), TINY])
def test_models_are_sorted_by_what_a_machine_runs(here):
    found = sorted([estimate(e, here) for e in KNOWN.values() if e.kind == "chat"], key=usefulness)
    assert found[0].name == recommended(KNOWN.values(), here).name
    groups = [0 if e.good else 1 if e.fits else 2 for e in found]
    assert groups == sorted(groups)
    assert usefulness(None) > usefulness(found[-1])


rates = st.builds(Rates, *[st.floats(0, 1e13)] * 2)
sizes = st.integers(0, 200 * GIB)
made_up = st.builds(
    Machine,
    st.sampled_from(["cpu", "cuda"]),
    st.just("any"),
    st.sampled_from(["float32", "bfloat16"]),
    sizes,
    sizes,
    rates,
)


@given(made_up, st.integers(0, 64 * GIB), st.floats(1, 10))
def test_more_memory_and_speed_never_lead_to_a_smaller_model(here, more, times):
    best = recommended(KNOWN.values(), here)
    assert best.good or best.name == FALLBACK
    assert best.entry.kind == "chat"
    better = Rates(*(rate * times for rate in vars(here.rates).values()))
    there = recommended(KNOWN.values(), replace(here, free=here.free + more, rates=better))
    assert there.entry.comparable_parameters >= best.entry.comparable_parameters


@pytest.mark.parametrize(("rate", "said"), [(0.04, "0.0"), (3.84, "3.8"), (12.4, "12"), (1074.0, "1,100")])
def test_an_estimate_is_told_to_two_digits(rate, said):
    assert format_rate(rate) == said


def test_what_was_measured_corrects_the_estimates_of_other_models():
    here, small = machine(30, 20, 200), KNOWN[FALLBACK]
    expected = estimate(small, here)
    half = MeasuredSpeed(expected.prefill_per_second / 2, 1 / (2 / expected.decode_per_second - 0.01))
    there = correct(here, KNOWN, {FALLBACK: half})
    assert vars(there.rates) == pytest.approx({"bandwidth": 10 * GB, "arithmetic": 100 * GB}, rel=1e-3)
    other, corrected = (estimate(KNOWN["qwen3-8b"], m) for m in (here, there))
    assert corrected.prefill_per_second == pytest.approx(other.prefill_per_second / 2)
    assert not corrected.measured
    known = with_speed(estimate(small, there), half)
    assert (known.prefill_per_second, known.decode_per_second) == (half.prefill, half.decode)
    assert known.measured


def test_advice_describes_the_machine_as_it_was_corrected(home, monkeypatch):
    here = machine(30, 20, 200)
    monkeypatch.setattr("localctx.models.choice.model_advice.measure_machine", lambda *_, **__: here)
    small = estimate(KNOWN[FALLBACK], here)
    half = MeasuredSpeed(small.prefill_per_second / 2, small.decode_per_second / 2)
    advice = advise(load_settings(home=home), measured={FALLBACK: half})
    assert advice.machine == correct(here, KNOWN, {FALLBACK: half}) != here
    other = find_model("qwen3-8b", load_settings(home=home), advice.machine).estimate
    assert other == advice.models["qwen3-8b"]


def test_the_largest_model_that_was_measured_counts_and_what_is_unknown_changes_nothing():
    here = machine(30, 20, 200)
    larger = estimate(KNOWN["qwen3-1.7b"], here).prefill_per_second
    speeds = {FALLBACK: MeasuredSpeed(1, 1), "qwen3-1.7b": MeasuredSpeed(prefill=1.5 * larger)}
    rates = correct(here, KNOWN, speeds).rates
    assert vars(rates) == pytest.approx({"bandwidth": 20 * GB, "arithmetic": 300 * GB}, rel=1e-3)
    assert correct(here, KNOWN, {"/a/model": MeasuredSpeed(1, 1)}) == here
    assert correct(here, KNOWN, {}) == here


@pytest.mark.parametrize("times", [1e-6, 1e6])
def test_a_busy_machine_spoils_no_estimate(times):
    here = machine(30, 20, 200)
    e = estimate(KNOWN[FALLBACK], here)
    speed = MeasuredSpeed(e.prefill_per_second * times, e.decode_per_second * times)
    rates = correct(here, KNOWN, {FALLBACK: speed}).rates
    assert 100 * GB <= rates.arithmetic <= 400 * GB
    assert 10 * GB <= rates.bandwidth <= 40 * GB


def test_what_does_not_fit_or_is_slow_is_said_in_a_few_words():
    assert describe_estimate(estimate(KNOWN["qwen3-8b"], TINY), TINY) == "too large"
    assert describe_memory(estimate(KNOWN["qwen3-8b"], TINY)) == "12.0 GiB, int8"
    assert describe_memory(estimate(KNOWN["granite-4.1-8b"], TINY)) == "40.9 GiB"
    assert describe_memory(estimate(KNOWN["qwen3-8b"], replace(GPU, free=GIB))) == "6.3 GiB, nf4"
    assert describe_estimate(estimate(KNOWN["qwen3-0.6b"], LAPTOP), LAPTOP) == "about 15 tokens/s"
    slow = machine(50, 20, 150)
    assert describe_estimate(estimate(KNOWN["qwen3-8b"], slow), slow) == "about 1.0 tokens/s, slow"
    small = replace(LAPTOP, free=4 * GIB)
    assert describe_estimate(estimate(KNOWN["qwen3-1.7b"], small), small) == "about 8.1 tokens/s"
    assert describe_memory(estimate(KNOWN["qwen3-1.7b"], small)) == "2.6 GiB, int8"


# This machine


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_measuring_takes_a_second_and_leaves_threads_as_they_were(precision):
    threads, start = torch.get_num_threads(), time.monotonic()
    found = measure_rates(CPU, precision)
    assert seconds_since(start) < 2
    assert all(rate > 1e8 for rate in asdict(found).values())
    assert torch.get_num_threads() == threads


@pytest.fixture
def measured(monkeypatch) -> list[Rates]:
    """What the next measurements find, the last again and again."""
    found = [STEADY]
    monkeypatch.setattr(machines, "measure_rates", lambda *_: found.pop(0) if len(found) > 1 else found[0])
    return found


def test_a_machine_is_measured_once_and_the_fastest_is_remembered(home, measured):
    measured[:] = [Rates(5, 1), Rates(2, 9)]
    assert measure_machine(CPU, torch.float32, home).rates == Rates(5, 1)
    assert measure_machine(CPU, torch.float32, home).rates == Rates(5, 1)
    assert measure_machine(CPU, torch.float32, home, remeasure=True).rates == Rates(5, 9)
    assert measure_machine(CPU, torch.float32, home).rates == Rates(5, 9)
    assert measure_machine(CPU, torch.bfloat16, home).rates == Rates(2, 9), "another precision is another speed"
    (first, _) = json.loads((home / FILE).read_text())
    assert f"torch {torch.__version__}" in first


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"b": 1}}', '{"a": {"bandwidth": "x"}}', "\udcff"])
def test_what_was_remembered_wrongly_is_measured_again(home, measured, text):
    home.mkdir()
    (home / FILE).write_text(text, errors="surrogateescape")
    assert measure_machine(CPU, torch.float32, home).rates == STEADY
    assert measure_machine(CPU, torch.float32, home).rates == STEADY


def test_a_folder_that_cannot_be_written_costs_the_remembering(tmp_path, measured):
    (tmp_path / "file").touch()
    assert measure_machine(CPU, torch.float32, tmp_path / "file").rates == STEADY


def test_what_is_held_counts_as_free(home, measured, monkeypatch):
    monkeypatch.setattr(machines, "measure_device", lambda _: Measured(3, 10))
    assert [measure_machine(CPU, torch.float32, home, own_bytes=n).free for n in (0, 4, 40)] == [3, 7, 10]


# Who is told


@pytest.fixture
def laptop(home, measured, monkeypatch):
    """This machine is a small laptop, and has no network."""

    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setenv("LOCALCTX_DTYPE", "f32")
    measured[:] = [LAPTOP.rates]
    monkeypatch.setattr(machines, "measure_device", lambda _: Measured(5 * GIB, 8 * GIB))
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


LINE = (
    "ecommended for this machine (5.0 GiB of memory free, no GPU, 25 GB/s): Qwen3 1.7B, 3.8 GiB to download, reads "
    "about 33 and answers about 5.8 tokens a second (estimates). Get it: "
)


@pytest.mark.usefixtures("laptop")
def test_the_list_says_what_runs_here_and_how_the_best_is_got(run):
    done = run("models", "list")
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows, _, line, why = done.stdout.splitlines()
    assert "ON THIS MACHINE" in head
    assert [row.split()[0] for row in rows if " * " in row] == ["qwen3-1.7b"]
    assert line.startswith(f"R{LINE}")
    assert "models pull qwen3-1.7b; then it is used with --model qwen3-1.7b, or for good: " in line
    assert line.endswith("models use qwen3-1.7b")
    assert why.startswith("Why: it is the largest")


@pytest.mark.usefixtures("laptop")
def test_the_list_for_programs_has_what_it_had_and_more(run):
    rows = json.loads(run("models", "list", "--json").stdout)
    assert {"name", "kind", "licence", "context", "longer", "bytes", "gpu_gib", "here"} < rows[0].keys()
    assert sorted(row["name"] for row in rows) == sorted(KNOWN)
    assert rows[0]["name"] == "qwen3-1.7b"
    assert rows[-1]["kind"] == "embedder"
    fits = [row["fits_here"] for row in rows if row["kind"] == "chat"]
    assert fits == sorted(fits, reverse=True)
    assert [row["name"] for row in rows if row["recommended"]] == ["qwen3-1.7b"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["qwen3-1.7b"]["fits_here"] is True
    assert by_name["qwen3-8b"]["fits_here"] is False
    assert by_name["qwen3-1.7b"]["answer_per_second"] == 5.8
    assert by_name["all-minilm-l6-v2"]["answer_per_second"] is None


def test_a_device_that_is_not_there_costs_the_advice_alone(run, home, measured, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("LOCALCTX_DEVICE", "cuda")
    done = run("models", "list")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("What this machine can run is not known: there is no cuda here")
    report = json.loads(run("doctor", "--json").stdout)
    assert report["advice"] == {}
    assert len(report["problems"]) == 1
    assert "advice: none" in run("doctor").stdout


@pytest.mark.usefixtures("laptop")
def test_doctor_measures_anew_and_advises_in_a_line(run, measured):
    measured[:] = [Rates(GB, GB), LAPTOP.rates]
    run("models", "list")
    report = json.loads(run("doctor", "--json").stdout)["advice"]
    assert report["machine"]["rates"] == asdict(LAPTOP.rates)
    assert report["recommended"]["name"] == "qwen3-1.7b"
    assert (report["recommended"]["here"], report["recommended"]["chosen"]) == (False, False)
    assert report["line"].startswith(f"r{LINE}localctx models pull")
    (line,) = [line for line in run("doctor").stdout.splitlines() if line.startswith("advice")]
    assert line.startswith(f"advice: r{LINE}")


def settle(home, name: str, folder) -> None:
    """Put the model in ``folder`` into the models folder as ``name``."""

    def build(work):
        (work / "made").mkdir()
        for file in folder.iterdir():
            (work / "made" / file.name).write_bytes(file.read_bytes())
        return work / "made", {"kind": "test"}

    install(name, home / "models", lambda *_: None, build)


@pytest.mark.usefixtures("laptop")
def test_what_is_here_need_not_be_fetched_and_what_answers_not_be_chosen(home, tiny_model):
    settle(home, "qwen3-1.7b", tiny_model)
    assert "installed, reads" in advise(load_settings()).line()
    assert "It is used with --model qwen3-1.7b, or" in advise(load_settings()).line()
    assert advise(load_settings(model="qwen3-1.7b")).line().endswith("(estimates). It is what answers now")


# Said once, after the first answer of the default model


@pytest.fixture
def first(laptop, run, home, tiny_model, document, monkeypatch):
    """``first(*more)``: what a question to the default model writes on stderr; the tiny one stands in for it."""
    settle(home, FALLBACK, tiny_model)
    for name, value in {**PLAIN, "model": FALLBACK, "max_tokens": 4}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    return lambda *more: run("ask", document, "How long is river 7?", *more).stderr


def test_the_first_answer_is_followed_by_one_line_and_no_other_is(first):
    said = first().splitlines()
    assert said[-1].startswith(f"localctx: r{LINE}")
    assert said[-1].endswith("(This line is shown once.)")
    assert first().splitlines() == said[:-1]


@pytest.mark.parametrize("more", [["--json"], ["-q"], ["--no-keep"], ["--model", "tiny"]])
def test_who_wants_no_words_gets_none_and_is_told_later(first, tiny_model, more):
    assert "recommended" not in first(*(tiny_model if word == "tiny" else word for word in more))
    assert "recommended" in first()


def test_what_cannot_be_remembered_is_not_said(first, home):
    (home / "advised").symlink_to(home / "nowhere" / "advised")
    assert "recommended" not in first()


def test_a_chat_says_it_too(first, run, document):
    done = run("chat", document, stdin=b"How long is river 7?\n")
    assert "recommended" in done.stderr
    assert "recommended" not in first()


# models use


def test_a_model_is_chosen_for_good(run, home, tiny_model, tmp_path, monkeypatch):
    monkeypatch.delenv("LOCALCTX_MODEL")
    (home / "settings.toml").parent.mkdir()
    (home / "settings.toml").write_text("# mine\nseed = 7\n")
    done = run("models", "use", "qwen3-1.7b", "--weights", "int8")
    assert "qwen3-1.7b is used from now on; it is not here yet" in done.stdout
    assert (home / "settings.toml").read_text() == '# mine\nseed = 7\nmodel = "qwen3-1.7b"\nweights = "int8"\n'
    monkeypatch.chdir(tiny_model.parent)
    assert run("models", "use", tiny_model.name).stdout == f"{tiny_model} is used from now on\n"
    settle(home, "mine", tiny_model)
    settle(home, "org--mine", tiny_model)
    for name in ("mine", "org/mine"):
        assert run("models", "use", name).stdout == f"{name} is used from now on\n"
        assert load_settings().model == name
    (tmp_path / "quantized").mkdir()
    gguf = write_gguf(tmp_path / "quantized" / "tiny.gguf")
    assert run("models", "use", gguf.parent).stdout == f"{gguf.parent} is used from now on\n"
    assert "pull org/mine:*Q4_K_M*, or the next" in run("models", "use", "org/mine:*Q4_K_M*").stdout


def test_who_has_the_environment_say_another_is_told(run, monkeypatch):
    monkeypatch.setenv("LOCALCTX_MODEL", FALLBACK)
    assert "LOCALCTX_MODEL is set in the environment, and overrides this" in run("models", "use", "qwen3-0.6b").stderr


@pytest.mark.parametrize(
    ("words", "code", "problem", "remedy"),
    [
        (["qwen3-1.8b"], 1, r"no model 'qwen3-1.8b' \(near: qwen3-1.7b", "models list"),
        (["org/none"], 1, "no model 'org/none'", "models list"),
        (["../x"], 1, "no model", "models list"),
        (["all-minilm-l6-v2"], 1, "not a model that answers", "models list"),
        (["qwen3-0.6b", "--weights", "int3"], 2, "weights = 'int3' is not valid", "int8"),
    ],
)
def test_what_is_neither_known_nor_here_is_not_chosen(run, home, words, code, problem, remedy):
    assert_one_line(run("models", "use", *words), code, problem, remedy)
    assert not home.exists()


def test_the_command_is_told_as_it_is_typed_here(tmp_path, monkeypatch):
    import sys

    from localctx.cli.common import with_launcher

    line = "Get it: localctx models pull m; localctx stays"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my tree" / ".venv"))
    assert with_launcher(line) == line
    (tmp_path / "my tree" / "packaging").mkdir(parents=True)
    (tmp_path / "my tree" / "packaging" / "start").touch()
    monkeypatch.chdir(tmp_path)
    assert with_launcher(line) == "Get it: sh 'my tree/packaging/start' models pull m; localctx stays"
    (tmp_path / "localctx").touch(0o755)
    assert with_launcher(line) == line


def test_advice_is_of_the_catalogue(laptop, monkeypatch):
    monkeypatch.setattr(advising, "load_catalog", lambda: {FALLBACK: KNOWN[FALLBACK]})
    assert advise(load_settings()).best.name == FALLBACK
