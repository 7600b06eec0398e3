"""The Debian package is built, installed into a root of its own, and removed; the Dockerfile is read, not built."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import platformdirs
import pytest
from packaging.requirements import Requirement
from repository import ROOT
from test_release import VERSION, checkout

__all__ = ["checkout"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")]


def build(checkout: Path, out: Path, *wheel: str | Path) -> Path:
    command = [sys.executable, checkout / "packaging" / "deb.py", "--out", out, *wheel]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def package(checkout, tmp_path_factory) -> Path:
    return build(checkout, tmp_path_factory.mktemp("package"))


def dpkg(root: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess:
    """Runs dpkg on a root folder, whose maintainer scripts run here; pip fetches nothing."""
    (root / "var/lib/dpkg/info").mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/updates").mkdir(exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PATH": path, **environment}
    forced = ["--force-script-chrootless", "--force-depends", "--force-not-root"]
    return subprocess.run(
        ["dpkg", f"--root={root}", *forced, *arguments], env={**os.environ, **offline}, capture_output=True, text=True
    )


def test_what_is_in_the_package(package, tmp_path):
    fields = subprocess.run(["dpkg-deb", "--field", package], check=True, capture_output=True, text=True).stdout
    assert f"Version: {VERSION}\n" in fields
    assert "Depends: python3 (>= 3.11), python3-venv\n" in fields
    listing = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
    assert {line.split()[1] for line in listing.splitlines()} == {"root/root"}
    assert {line[:10] for line in listing.splitlines()} == {"drwxr-xr-x", "-rw-r--r--", "lrwxrwxrwx"}
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path], check=True)
    doc = tmp_path / "usr/share/doc/localctx"
    assert "Apache-2.0" in (doc / "copyright").read_text()
    assert VERSION in gzip.decompress((doc / "changelog.gz").read_bytes()).decode()
    assert (tmp_path / "usr/share/icons/hicolor/scalable/apps/localctx.svg").is_file()
    assert "Exec=/usr/bin/localctx ui\n" in (tmp_path / "usr/share/applications/localctx.desktop").read_text()


def test_it_has_the_same_bytes_when_it_is_built_again(checkout, package, tmp_path):
    subprocess.run(["dpkg-deb", "--extract", package, tmp_path / "files"], check=True)
    (wheel,) = (tmp_path / "files" / "usr/share/localctx").glob("*.whl")
    assert build(checkout, tmp_path, "--wheel", wheel).read_bytes() == package.read_bytes()


def test_it_is_installed_run_and_removed(package, tmp_path):
    root = tmp_path / "root"
    done = dpkg(root, "--install", package)
    assert done.returncode == 0, done.stdout + done.stderr
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for library in (click, platformdirs):  # pip fetched nothing
        (libraries / library.__name__).symlink_to(Path(library.__file__).parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(libraries)}
    command = [root / "usr/bin/localctx", "--version"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert shown.stdout == f"localctx, version {VERSION}\n", shown.stderr
    done = dpkg(root, "--remove", "localctx")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (root / "usr/lib/localctx").exists()
    assert not [path for path in (root / "usr").rglob("*") if not path.is_dir()]


def test_where_the_libraries_cannot_be_had_it_says_so_and_leaves_no_half_environment(package, tmp_path):
    root = tmp_path / "root"
    done = dpkg(root, "--install", package, PIP_NO_DEPS="0")
    assert done.returncode != 0
    assert "sudo dpkg --configure localctx" in done.stderr
    assert not (root / "usr/lib/localctx").exists()
    again = dpkg(root, "--configure", "localctx")  # now it needs nothing that is not there
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("script", ["postinst", "prerm"])
def test_the_scripts_are_shell(script):
    subprocess.run(["sh", "-n", ROOT / "packaging" / "debian" / script], check=True)


# --- Versions and container


def test_the_tested_versions_are_of_all_that_localctx_needs():
    lines = (ROOT / "packaging" / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["dependencies"]):
        assert requirement.specifier.contains(pinned[requirement.name.lower()]), requirement


def test_the_dockerfile_is_well_formed():
    text = (ROOT / "packaging" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    known = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}
    words = [line.split() for line in lines]
    assert {first for first, *_ in words} <= known
    images = [line[1] for line in words if line[0] == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim", image) for image in images)  # a version, not "latest"
    assert [line for line in words if line[0] == "USER"][-1] == ["USER", "localctx"]
    named = set(re.findall(r"\bpackaging/[\w.]+", text))
    assert named >= {"packaging/constraints.txt"}
    assert all((ROOT / name).exists() for name in named)
