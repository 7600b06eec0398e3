"""packaging/start: what is installed, once, and with which Python."""

import os
import pty

import pytest
from clock import wait_until
from fake_machine import PYTHON, SOON, Stage, interrupt

pytestmark = pytest.mark.process

TORCH = "install torch==2.13.*"


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


# --- Installing


def test_the_first_run_installs_and_the_second_only_runs(stage):
    first = stage.run("start", "doctor")
    assert first.returncode == 0, first.stderr
    steps = stage.calls()
    assert steps[0] == "venv"
    assert steps[-1] == f"install -e {stage.project}"
    assert [line[:5] for line in first.stderr.splitlines()] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert first.stdout == "localctx [doctor]\n"

    second = stage.run("start", "doctor")
    assert (second.returncode, second.stdout, second.stderr) == (0, "localctx [doctor]\n", "")
    assert stage.calls() == []


def test_arguments_arrive_as_they_were_given(stage):
    assert stage.run("start", "ask", "a file.md", "", "what's $HOME *?").stdout.splitlines() == [
        "localctx [ask]",
        "localctx [a file.md]",
        "localctx []",
        "localctx [what's $HOME *?]",
    ]
    assert stage.run("start").stdout == "localctx [--help]\n"


def test_the_exit_code_is_that_of_the_command(stage):
    stage.environment["EXIT"] = "3"
    assert stage.run("start").returncode == 3
    assert stage.run("check").returncode == 3


def test_a_changed_pyproject_is_installed_into_what_is_there(stage):
    stage.run("check")
    stage.calls()
    with (stage.project / "pyproject.toml").open("a") as file:
        file.write("# one more dependency\n")
    assert "[1/4] pyproject.toml has changed" in stage.run("check").stderr
    calls = stage.calls()
    assert "venv" not in calls
    assert calls[-2:] == [f"install -e {stage.project}", f"install -e {stage.project}[test]"]


LLAMA = "install llama-cpp-python>=0.3.36"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask", "--model", "a model.gguf"),
        ("ask", "--engine", "llama.cpp"),
        ("ask", "--model", "owner/name:*Q4_K_M*"),
        ("ask", "--model=owner/name:*Q4_K_M*"),
        ("ask", "--model", "folder of parts"),
    ],
)
def test_llama_is_compiled_when_a_gguf_is_named_first(stage, arguments):
    parts = stage.path / "folder of parts"
    parts.mkdir()
    (parts / "a-00001-of-00002.gguf").touch()
    arguments = [str(parts) if argument == parts.name else argument for argument in arguments]
    stage.run("start", "doctor")
    assert LLAMA not in stage.calls()
    first = stage.run("start", *arguments)
    assert (first.returncode, stage.calls()) == (0, [LLAMA])
    assert "takes some minutes and needs a C++ compiler" in first.stderr
    assert (stage.run("start", *arguments).stderr, stage.calls()) == ("", [])


def test_llama_is_not_compiled_for_a_question_or_another_model(stage):
    folder = stage.path / "folder"
    folder.mkdir()
    (folder / "config.json").touch()
    (folder / "model.gguf").touch()
    stage.run("start", "doctor")
    stage.calls()
    for arguments in (("ask", "a/b: what?"), ("ask", "--model", str(folder)), ("ask", "--model", "qwen3-0.6b")):
        stage.run("start", *arguments)
        assert LLAMA not in stage.calls()


def test_without_a_compiler_everything_else_goes_on(stage):
    (stage.path / "no llama_cpp_python").touch()
    first = stage.run("start", "ask", "x.gguf")
    assert (first.returncode, first.stdout) == (0, "localctx [ask]\nlocalctx [x.gguf]\n")
    assert sum("could not be compiled" in line for line in first.stderr.splitlines()) == 1
    assert first.stderr.splitlines()[-1].endswith(f"then: rm '{stage.venv}/gguf'")
    assert LLAMA in stage.calls()
    assert (stage.run("start", "ask", "x.gguf").stderr, stage.calls()) == ("", [])


def test_a_project_that_was_moved_is_installed_anew(stage):
    stage.run("start")
    stage.calls()
    stage.project = stage.project.rename(stage.path / "elsewhere")
    assert stage.run("start").returncode == 0
    assert "venv" in stage.calls()


def test_an_interrupted_run_is_repaired_by_the_next(stage):
    interrupt(stage, "start")
    assert stage.run("start", "x").stdout == "localctx [x]\n"
    assert stage.calls()[0] == "venv"


def test_of_two_at_once_the_second_waits(stage):
    (stage.path / "slow").touch()
    first = stage.begin("start", "1")
    wait_until((stage.path / "calls").exists)
    second = stage.begin("start", "2")
    assert second.stderr.readline().startswith("Another installation is at work")
    assert second.poll() is None

    (stage.path / "slow").unlink()
    assert first.communicate(timeout=SOON)[0] == "localctx [1]\n"
    assert second.communicate(timeout=SOON) == ("localctx [2]\n", "")
    assert stage.calls().count("venv") == 1


def test_when_pip_fails_it_says_why_and_the_next_run_goes_on(stage):
    (stage.path / "broken").touch()
    failed = stage.run("start")
    assert (failed.returncode, failed.stdout) == (1, "")
    *_, reason, remedy = failed.stderr.splitlines()
    assert reason == "pip is broken"
    assert "could not install torch==2.13.*" in remedy
    assert str(stage.venv / "install.log") in remedy

    (stage.path / "broken").unlink()
    assert stage.run("start", "x").stdout == "localctx [x]\n"


def test_on_a_terminal_pip_is_seen_and_stdout_stays_clean(stage):
    ours, theirs = pty.openpty()
    process = stage.begin("start", "x", stderr=theirs)
    assert process.communicate(timeout=6 * SOON)[0] == "localctx [x]\n"
    assert "pip talks" in os.read(ours, 10_000).decode()
    assert f"--log {stage.venv}/install.log install -e {stage.project}" in stage.calls()
    os.close(ours)
    os.close(theirs)


# --- Which torch


def test_without_a_gpu_a_wheel_at_hand_is_taken_without_asking_an_index(stage):
    (stage.path / "wheel").touch()
    assert stage.torch() == ["install --no-index --no-deps torch==2.13.*"]


def test_without_a_gpu_and_a_wheel_the_cpu_index_is_asked(stage):
    _, asked = stage.torch()
    assert asked.startswith("install --extra-index-url https://download.pytorch.org/whl/cpu ")


def test_with_a_gpu_the_plain_build_is_taken(stage):
    stage.command("nvidia-smi", SMI)
    (stage.path / "wheel").touch()
    assert stage.torch() == [TORCH]


BITSANDBYTES = "install bitsandbytes>=0.50.2"
SMI = "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n"


def test_with_a_gpu_bitsandbytes_is_installed_with_the_rest_and_once(stage):
    stage.command("nvidia-smi", SMI)
    first = stage.run("start", "doctor")
    assert (first.returncode, first.stdout) == (0, "localctx [doctor]\n")
    assert stage.calls()[-2:] == [f"install -e {stage.project}", BITSANDBYTES]
    assert "bitsandbytes>=0.50.2, for --weights int8 and nf4 on the GPU" in first.stderr
    assert (stage.run("start", "doctor").stderr, stage.calls()) == ("", [])


@pytest.mark.parametrize("nvidia_smi", ["#!/bin/sh\necho 'No devices were found'\n", "#!/bin/sh\nexit 9\n"])
def test_without_a_gpu_there_is_no_bitsandbytes(stage, nvidia_smi):
    stage.command("nvidia-smi", nvidia_smi)
    assert stage.run("start").returncode == 0
    assert BITSANDBYTES not in stage.calls()


def test_where_bitsandbytes_cannot_be_had_everything_else_goes_on(stage):
    stage.command("nvidia-smi", SMI)
    (stage.path / "no bitsandbytes").touch()
    first = stage.run("start", "doctor")
    assert (first.returncode, first.stdout) == (0, "localctx [doctor]\n")
    assert BITSANDBYTES in stage.calls()
    (told,) = [line for line in first.stderr.splitlines() if line.startswith("localctx:")]
    assert "bitsandbytes>=0.50.2 could not be installed, so --weights int8 and nf4 are refused; all else works" in told
    assert f"To try again: '{stage.venv}/bin/python' -m pip install 'bitsandbytes>=0.50.2'" in told
    assert (stage.run("start", "doctor").stderr, stage.calls()) == ("", [])


def test_a_mac_has_only_one_build(stage):
    stage.command("uname", "#!/bin/sh\necho Darwin\n")
    assert stage.torch() == [TORCH]


# --- Which Python


def refused(stage) -> str:
    done = stage.run("start")
    assert (done.returncode, done.stdout) == (1, "")
    assert stage.calls() == []
    assert not stage.venv.exists()
    (line,) = done.stderr.splitlines()
    return line


def test_no_python(stage):
    stage.environment["LOCALCTX_PYTHON"] = "/nowhere/python3"
    assert "needs Python 3.11 or newer" in refused(stage)


def test_an_old_python(stage):
    stage.environment["LOCALCTX_PYTHON"] = str(stage.command("python3", "#!/bin/sh\nexit 1\n"))
    assert "needs Python 3.11 or newer" in refused(stage)


def test_a_python_without_venv(stage):
    stage.environment["LOCALCTX_PYTHON"] = str(stage.command("python3", "#!/bin/sh\necho 3.12.4\nexit 1\n"))
    line = refused(stage)
    assert "Python 3.12.4 cannot make environments" in line
    assert "apt install python3.12-venv" in line


def test_the_first_python_that_will_do_is_taken(stage):
    del stage.environment["LOCALCTX_PYTHON"]
    stage.command("python3", "#!/bin/sh\necho 3.11.2\nexit 1\n")  # has no venv
    for shim in ("python3.14", "python3.13"):
        stage.command(shim, "#!/bin/sh\nexit 127\n")  # leads nowhere
    stage.command("python3.12", PYTHON)
    assert stage.run("start", "x").stdout == "localctx [x]\n"
