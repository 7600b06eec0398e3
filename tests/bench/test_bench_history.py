"""Each run is a line of a file, read again whatever happened to that file, and shown over time."""

import json
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from command_checks import assert_one_line

from localctx.bench.history import FILE, append_run, draw_history, history_rows, read_history

FAST = ("--what", "decode,prefill", "--context", "128,256", "--repeat", 1, "--engines", "localctx", "--keep", "full")


def report(model: str = "tiny", cpu: str = "a processor", precision: str = "float32", ms: float = 9.0) -> dict:
    def row(engine: str, context: int) -> dict:
        return {"engine": engine, "kv": "int8", "context": context, "ms_per_token": ms, "spread": None}

    machine, versions = {"cpu": cpu, "precision": precision}, {"model": model}
    decode = [row("localctx", 512), row("localctx", 1024), row("llama.cpp", 512)]
    return {"machine": machine, "versions": versions, "decode": decode, "prefill": []}


def test_runs_come_back_oldest_first(tmp_path):
    for ms in (3.0, 2.0):
        append_run(tmp_path / "new", report(ms=ms))
    history = read_history(tmp_path / "new")
    assert [run["decode"][0]["ms_per_token"] for run in history.runs] == [3.0, 2.0]
    assert history.damaged == 0
    assert read_history(tmp_path / "nowhere").runs == []


@pytest.mark.parametrize(
    "line",
    [
        "x",
        "[]",
        "null",
        '{"time": "yesterday"}',
        json.dumps({**report(), "time": 5}),
        json.dumps({"time": "2026-11-25T02:00:00+00:00", **report(), "decode": [{"engine": "a"}]}),
        json.dumps({"time": "2026-11-25T02:00:00+00:00", **report(), "decode": 5}),
        json.dumps({"time": "2026-11-25T02:00:00+00:00", **report(), "versions": {"model": ["a"]}}),
    ],
)
def test_a_damaged_line_costs_no_other_run(tmp_path, line):
    append_run(tmp_path, report(ms=3.0))
    with (tmp_path / FILE).open("a") as file:
        file.write(f"{line}\n")
    append_run(tmp_path, report(ms=2.0))
    history = read_history(tmp_path)
    assert ([run["decode"][0]["ms_per_token"] for run in history.runs], history.damaged) == ([3.0, 2.0], 1)


def test_a_run_after_one_that_was_cut_off_has_a_line_of_its_own(tmp_path):
    append_run(tmp_path, report())
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() * 2)
    path.write_bytes(path.read_bytes()[:-40])
    append_run(tmp_path, report(ms=2.0))
    history = read_history(tmp_path)
    assert ([run["decode"][0]["ms_per_token"] for run in history.runs], history.damaged) == ([9.0, 2.0], 1)


def test_only_runs_of_one_model_on_one_processor_are_compared(tmp_path):
    for how in ({}, {"model": "other"}, {"cpu": "another"}):
        append_run(tmp_path, report(**how))
    assert len(read_history(tmp_path).of("tiny", "a processor")) == 1


def test_rows_are_engines_over_time(tmp_path):
    for precision, ms in (("float32", 3.0), ("float32, int8 weights", 2.0), ("float32", 1.0)):
        append_run(tmp_path, report(precision=precision, ms=ms))
    rows = history_rows(read_history(tmp_path).runs, "decode", "DECODE")
    assert [(row["DECODE"], row["512"], row["1,024"]) for row in rows] == [
        ("localctx int8, float32", "3.0", "3.0"),
        ("localctx int8, float32", "1.0", "1.0"),
        ("llama.cpp int8", "3.0", ""),
        ("llama.cpp int8", "2.0", ""),
        ("llama.cpp int8", "1.0", ""),
        ("localctx int8, float32, int8 weights", "2.0", "2.0"),
    ]


@pytest.mark.slow
def test_a_picture_of_one_run_and_of_many(tmp_path):
    for _ in range(3):
        append_run(tmp_path, report())
        draw_history(read_history(tmp_path).runs, tmp_path / "history.png", "tiny")
        assert (tmp_path / "history.png").read_bytes().startswith(b"\x89PNG")


# The command


@pytest.fixture
def bench(run, monkeypatch, tiny_model, document):
    for name, value in PLAIN.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))
    return lambda *arguments: run("bench", document, "--model", tiny_model, *arguments)


@pytest.mark.slow
def test_a_run_is_recorded_and_shown(bench, home, tmp_path):
    assert_one_line(bench("--history"), 2, "no run with .* on this processor is recorded", "run: localctx bench")
    measured = json.loads(bench(*FAST, "--json").stdout)
    assert bench(*FAST).returncode == 0
    told = json.loads(bench("--history", "--json").stdout)
    assert len(told["runs"]) == 2
    assert {key: told["runs"][0][key] for key in ("decode", "prefill")} == {
        key: measured[key] for key in ("decode", "prefill")
    }
    assert Path(told["picture"]) == home / "bench-history.png"
    assert Path(told["picture"]).read_bytes().startswith(b"\x89PNG")
    shown = bench("--history", "--plot", tmp_path / "own.png")
    assert (tmp_path / "own.png").exists()
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["DECODE,", "ms/token", "WHEN", "128", "256"]
    assert sum(line.startswith("localctx int8, float32") for line in lines) == 4, "two of decode and two of prefill"


@pytest.mark.slow
def test_history_is_kept_when_states_are_forgotten_and_other_runs_are_counted(bench, home):
    append_run(home, report(model="other"))
    assert bench(*FAST).returncode == 0
    bench("--forget")
    shown = bench("--history")
    assert shown.returncode == 0
    assert "1 runs of other models or processors" in shown.stderr


@pytest.mark.slow
def test_a_history_that_cannot_be_written_loses_no_result(bench, home):
    (home / FILE).mkdir(parents=True)
    done = bench(*FAST, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["decode"]
    assert "this run is not in the history" in done.stderr
