"""A machine for packaging/start and packaging/check, whose Python, venv and pip only note what they are asked to do."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from clock import wait_until
from repository import ROOT

import packaging  # the library, not the folder

# Stands for the Python of the machine and, copied into it, for that of .venv. Files beside the project steer it:
# `wheel` is a torch at hand, pip fails while there is `broken` and hangs while there is `slow`; for one tool it fails
# while there is `no TOOL`, else the tool is then in `site`. Playwright has a Chromium where there is `download`.
PYTHON = r"""#!/bin/sh
case "$1 ${2-}" in
"--version "*) echo "Python 3.11.7" ;;
-c*playwright*) [ -e "$STAGE/downloaded" ] ;;
*larger.py*) PYTHONPATH="$STAGE/site" exec "$REAL_PYTHON" -S "$@" ;;
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
    [ "$1 $#" != "install 2" ] || {
        tool=$(echo "$2" | sed 's/[[<>=].*//; s/-/_/g')
        [ ! -e "$STAGE/no $tool" ] || { echo "no compiler"; exit 1; }
        mkdir -p "$STAGE/site/$tool-1.dist-info"
    }
    for tool in localctx pytest; do
        printf '#!/bin/sh\nfor a; do echo "%s [$a]"; done\nexit "${EXIT:-0}"\n' "$tool" >"${0%/*}/$tool"
        chmod +x "${0%/*}/$tool"
    done
    ;;
"-m playwright")
    shift 2
    echo "playwright $*" >>"$STAGE/calls"
    [ -e "$STAGE/download" ] && touch "$STAGE/downloaded"
    ;;
esac
"""

TOOLS = ["llama-cpp-python", "ray", "rapidocr", "onnxruntime", *["triton"] * (sys.platform == "linux")]
SOON = 10  # seconds, for what should happen at once


class Stage:
    """A copy of packaging/ in a folder with a blank in its name, and a machine to run it on that has all the tools."""

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
        (path / "site").mkdir()
        (path / "site" / "packaging").symlink_to(packaging.__path__[0])
        for tool in TOOLS:
            self.dist(tool).mkdir()
        self.environment = {
            **os.environ,
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "STAGE": str(path),
            "REAL_PYTHON": sys.executable,
            "LOCALCTX_PYTHON": str(self.python),
        }
        self.environment.pop("CI", None)

    def dist(self, tool: str) -> Path:
        """What there is of a tool of the tests where it is installed."""
        return self.path / "site" / f"{tool.replace('-', '_')}-1.dist-info"

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


def interrupt(stage: Stage, script: str, *arguments: str) -> None:
    """Ctrl-C while pip is at work, then everything as before."""
    (stage.path / "slow").touch()
    process = stage.begin(script, *arguments, start_new_session=True)
    wait_until(lambda: any("install" in call for call in stage.calls()))
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=SOON)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("Stopped. Run it again to go on.\n")
    (stage.path / "slow").unlink()
