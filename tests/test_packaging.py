"""packaging/start and packaging/check, with a Python whose venv and pip only note what they were asked to do."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Stands for the Python of the machine and, copied into it, for that of .venv. Files beside the project steer it:
# `wheel` is a torch at hand, pip fails while there is `broken` and hangs while there is `slow`.
PYTHON = r"""#!/bin/sh
case "$1 ${2-}" in
"--version "*) echo "Python 3.11.7" ;;
-c*playwright*) exit 1 ;;
-c*) exec "$REAL_PYTHON" "$@" ;;
"-m venv")
    echo "venv" >>"$STAGE/calls"
    rm -rf "$4"/*
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    ;;
"-m pip")
    shift 2
    echo "$*" >>"$STAGE/calls"
    echo "pip talks"
    while [ -e "$STAGE/slow" ]; do sleep 0.02; done
    case "$*" in *--no-index*) [ -e "$STAGE/wheel" ] || exit 1 ;; esac
    [ ! -e "$STAGE/broken" ] || { echo "pip is broken"; exit 1; }
    for tool in localctx pytest; do
        printf '#!/bin/sh\nfor a; do echo "%s [$a]"; done\nexit "${EXIT:-0}"\n' "$tool" >"${0%/*}/$tool"
        chmod +x "${0%/*}/$tool"
    done
    ;;
esac
"""

TORCH = "install torch==2.13.*"
SOON = 10  # seconds, for what should happen at once


class Stage:
    """A copy of packaging/ in a folder with a blank in its name, and a machine to run it on."""

    def __init__(self, path: Path):
        self.path = path
        self.project = path / "the project"
        self.venv = self.project / ".venv"
        self.bin = path / "bin"
        self.bin.mkdir()
        shutil.copytree(ROOT / "packaging", self.project / "packaging")
        shutil.copy(ROOT / "pyproject.toml", self.project)
        self.python = self.command("a python", PYTHON)
        self.command("uname", "#!/bin/sh\necho Linux\n")
        self.command("nvidia-smi", "#!/bin/sh\necho 'No devices were found'\n")
        self.command("chromium", "#!/bin/sh\n")
        self.environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "STAGE": str(path),
            "REAL_PYTHON": sys.executable,
            "LOCALCTX_PYTHON": str(self.python),
        }

    def command(self, name: str, script: str) -> Path:
        path = self.bin / name
        path.write_text(script)
        path.chmod(0o755)
        return path

    def begin(self, script: str, *arguments: str, **options) -> subprocess.Popen:
        command = ["sh", str(self.project / "packaging" / script), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(command, cwd=self.path, env=self.environment, text=True, **pipes)

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess:
        process = self.begin(script, *arguments)
        out, err = process.communicate(timeout=6 * SOON)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def calls(self) -> list[str]:
        """What venv and pip have been asked to do since the last look."""
        noted = self.path / "calls"
        lines = noted.read_text().splitlines() if noted.exists() else []
        noted.unlink(missing_ok=True)
        return lines

    def torch(self) -> list[str]:
        self.run("start")
        return [call for call in self.calls() if "torch==" in call]


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, "still not so"
        time.sleep(0.02)


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


def test_a_project_that_was_moved_is_installed_anew(stage):
    stage.run("start")
    stage.calls()
    stage.project = stage.project.rename(stage.path / "elsewhere")
    assert stage.run("start").returncode == 0
    assert "venv" in stage.calls()


def interrupt(stage, script: str) -> None:
    """Ctrl-C while pip is at work, then everything as before."""
    (stage.path / "slow").touch()
    process = stage.begin(script, start_new_session=True)
    eventually(lambda: any("install" in call for call in stage.calls()))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=SOON)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("Stopped. Run it again to go on.\n")
    (stage.path / "slow").unlink()


def test_an_interrupted_run_is_repaired_by_the_next(stage):
    interrupt(stage, "start")
    assert stage.run("start", "x").stdout == "localctx [x]\n"
    assert stage.calls()[0] == "venv"


def test_of_two_at_once_the_second_waits(stage):
    (stage.path / "slow").touch()
    first = stage.begin("start", "1")
    eventually((stage.path / "calls").exists)
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


# --- The browser of the tests

APT = r"""#!/bin/sh
echo "apt-get $*" >>"$STAGE/calls"
[ "$1" = update ] || { printf '#!/bin/sh\n' >"$STAGE/bin/chromium"; chmod +x "$STAGE/bin/chromium"; }
"""
SKIPPED = "localctx: the tests of the window were skipped: no Chromium here (Debian: apt install chromium)"


@pytest.fixture
def bare(stage):
    """A machine without any Chromium: only what is in its own folder and the plainest of tools are on its path."""
    (stage.bin / "chromium").unlink()
    for tool in ("sh", "cat", "cksum", "dirname", "mkdir", "mv", "rm", "cp", "chmod", "sed", "tail", "grep"):
        (stage.bin / tool).symlink_to(shutil.which(tool))
    stage.command("id", "#!/bin/sh\necho 0\n")
    stage.command("apt-get", APT)
    (stage.path / "debian_version").touch()
    stage.environment |= {"PATH": str(stage.bin), "DEBIAN": str(stage.path / "debian_version")}
    stage.environment.pop("CI", None)
    return stage


def test_where_there_is_a_chromium_nothing_is_installed_or_said(stage):
    stage.environment["CI"] = "1"
    assert "window" not in stage.run("check").stderr


def test_without_a_chromium_the_last_line_says_what_was_skipped(bare):
    bare.environment["EXIT"] = "3"
    done = bare.run("check", "-q")
    assert (done.returncode, done.stdout) == (3, "pytest [-q]\n")
    assert done.stderr.splitlines()[-1] == SKIPPED
    assert not [call for call in bare.calls() if "apt-get" in call]


def test_ci_installs_one(bare):
    bare.environment["CI"] = "true"
    done = bare.run("check")
    assert [c for c in bare.calls() if c.startswith("apt-get")] == [
        "apt-get update",
        "apt-get install -y --no-install-recommends chromium",
    ]
    assert SKIPPED not in done.stderr


def test_ci_that_cannot_install_it_goes_on_and_says_so(bare):
    bare.environment["CI"] = "true"
    bare.command("apt-get", "#!/bin/sh\nexit 100\n")
    done = bare.run("check")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1] == SKIPPED


# --- Which torch


def test_without_a_gpu_a_wheel_at_hand_is_taken_without_asking_an_index(stage):
    (stage.path / "wheel").touch()
    assert stage.torch() == ["install --no-index --no-deps torch==2.13.*"]


def test_without_a_gpu_and_a_wheel_the_cpu_index_is_asked(stage):
    _, asked = stage.torch()
    assert asked.startswith("install --extra-index-url https://download.pytorch.org/whl/cpu ")


def test_with_a_gpu_the_plain_build_is_taken(stage):
    stage.command("nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n")
    (stage.path / "wheel").touch()
    assert stage.torch() == [TORCH]


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


# --- check


def test_check_adds_the_tools_once_and_hands_its_arguments_to_pytest(stage):
    done = stage.run("check", "-k", "a or b")
    assert done.stdout == "pytest [-k]\npytest [a or b]\n"
    assert stage.calls()[-1] == f"install -e {stage.project}[test]"
    assert stage.run("check").stderr == ""
    assert stage.run("start").stderr == ""
    assert stage.calls() == []


def test_a_check_without_a_network_leaves_what_worked(stage):
    stage.run("start")
    (stage.path / "broken").touch()
    assert stage.run("check").returncode == 1
    stage.calls()
    assert stage.run("start", "x").stdout == "localctx [x]\n"
    assert stage.calls() == []


def test_a_check_stopped_while_adding_tools_leaves_nothing_half_made(stage):
    stage.run("start")
    stage.calls()
    interrupt(stage, "check")
    assert stage.run("start", "x").stdout == "localctx [x]\n"
    assert stage.calls()[0] == "venv"


def test_ci_runs_check(stage):
    shutil.copytree(ROOT / ".ci", stage.project / ".ci")
    stage.environment["EXIT"] = "5"
    assert subprocess.run([stage.project / ".ci" / "run"], env=stage.environment, capture_output=True).returncode == 5
