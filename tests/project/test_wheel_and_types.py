"""What the wheel holds, types on it for three systems, lint and format."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from import_graph import package_folders
from repository import FORMAT, LINT, ROOT
from test_house import files


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Where a wheel of the present source is installed. Built from a copy: setuptools leaves things behind."""
    source, wheels, site = (tmp_path_factory.mktemp(name) for name in ("source", "wheels", "site"))
    for path in files():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    run("pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source)
    run("pip", "install", "--no-index", "--no-deps", "--no-compile", "--target", site, *wheels.glob("*.whl"))
    return site


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_ours_and_nothing_else(installed):
    wanted = {
        Path(*package.split(".")) / path.name
        for package, place in package_folders().items()
        for path in files()
        if ROOT / path.parent == place and path.name != "README.md"
    }
    data = ("models", "readers"), ("models", "configs")  # readers with their cards
    wanted |= {"localctx" / path for path in files() if path.parts[:2] in data}
    found = {path.relative_to(installed) for path in (installed / "localctx").rglob("*") if path.is_file()}
    assert found == wanted


@pytest.mark.slow
def test_the_wheel_adds_no_other_name(installed):
    names = {path.name for path in installed.iterdir() if path.suffix != ".dist-info"}
    assert names == {"localctx", "bin"}  # bin/localctx, the command


def mypy(installed: Path, *arguments: str | Path, path: Sequence[Path] = (), cache: str = "all") -> str:
    """What mypy prints with ``installed`` and ``path`` in its path. Runs with other options need another ``cache``."""
    listing = "\n".join(sorted(map(str, files())))  # mypy misreads a cache of before modules moved
    kept = ROOT / ".mypy_cache" / f"{sha256(listing.encode()).hexdigest()[:12]}-{cache}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", "--cache-dir", kept, *arguments],
        cwd=installed,
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, (installed, *path)))},
        capture_output=True,
        text=True,
    )
    assert "source file" in done.stdout, done.stderr
    return done.stdout


@pytest.mark.slow
def test_types(installed):
    found = mypy(installed, "--platform", "linux", "-p", "localctx")
    assert "\nSuccess: " in f"\n{found}", found


@pytest.mark.slow
def test_types_are_the_same_on_other_platforms(installed):
    """Where imports of libraries are not followed, which takes a sixth of the time. This leaves some errors, but the
    same everywhere, unless something of Python's own library is missing on a platform.
    """
    options = ("--follow-imports", "skip", "--no-warn-unused-ignores", "-p", "localctx")
    linux, darwin, win32 = (
        sorted(mypy(installed, "--platform", platform, *options, cache=platform).splitlines())
        for platform in ("linux", "darwin", "win32")
    )
    assert darwin == linux
    assert win32 == linux


@pytest.mark.slow
def test_measurements_call_what_there_is(installed):
    """They take too long to be run here, so that a changed function would be noticed only by who measures."""
    folders = [ROOT / "tests" / "helpers", ROOT / "tests" / "measure"]
    found = mypy(installed, "--platform", "linux", *sorted(folders[-1].glob("*.py")), path=folders)
    absent = ("[call-arg]", "[name-defined]", 'Module "localctx')
    assert [line for line in found.splitlines() if any(kind in line for kind in absent)] == []


def test_lint():
    run(*LINT)


def test_format():
    run(*FORMAT)
