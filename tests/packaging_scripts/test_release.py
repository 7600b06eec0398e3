"""packaging/release.py: the same bytes when built twice, and a wheel that runs with nothing else but what it names."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import click
import platformdirs
import pytest
from repository import ROOT

pytestmark = pytest.mark.slow

VERSION = "9.8.7"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A repository of its own with the present source, as version 9.8.7, which its changelog knows."""
    folder = tmp_path_factory.mktemp("checkout")
    listing = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(lambda name: name and (ROOT / name).is_file(), listing.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "localctx" / "version.py").write_text(f'"""The version."""\n\n__version__ = "{VERSION}"\n')
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION}\n\n- It is new.\n\n## 0.0.1\n\n- It was.\n")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "All of it")
    return folder


def release(checkout: Path, out: Path, umask: int = 0o022) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, checkout / "packaging" / "release.py", "--out", out],
        capture_output=True,
        text=True,
        umask=umask,
    )


@pytest.fixture(scope="module")
def released(checkout, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("out")
    done = release(checkout, out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith((out / "SHA256SUMS").read_text())
    return out


def test_a_second_build_elsewhere_has_the_same_bytes(checkout, released, tmp_path):
    other = Path(shutil.copytree(checkout, tmp_path / "a place with another name"))
    for path in other.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    (other / "localctx" / "left_behind.py").write_text("not committed = True")
    again = release(other, tmp_path / "out", umask=0o077)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "changes that are not committed are left out" in again.stdout
    assert (tmp_path / "out" / "SHA256SUMS").read_text() == (released / "SHA256SUMS").read_text()


def test_the_sums_are_those_of_the_files(released):
    names = {path.name for path in released.iterdir()}
    made = {"tar.gz", "cdx.json"}
    assert names == {f"localctx-{VERSION}-py3-none-any.whl", "SHA256SUMS", *(f"localctx-{VERSION}.{x}" for x in made)}
    subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=released, check=True, capture_output=True)


def test_the_bill_of_materials_names_what_the_wheel_requires(released):
    bill = json.loads((released / f"localctx-{VERSION}.cdx.json").read_text())
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/localctx@{VERSION}"
    parts = {part["name"]: part for part in bill["components"]}
    assert parts["torch"]["version"].startswith("2.13.")
    refs = {part["bom-ref"] for part in bill["components"]}
    (needs,) = bill["dependencies"]
    assert parts["click"]["bom-ref"] in needs["dependsOn"]
    assert set(needs["dependsOn"]) <= refs


def test_the_sdist_has_no_owners_and_one_time(checkout, released):
    with tarfile.open(released / f"localctx-{VERSION}.tar.gz") as archive:
        members = archive.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, "", "")}
    assert {m.mtime for m in members} == {int(git(checkout, "log", "-1", "--format=%ct"))}
    assert {m.mode for m in members} <= {0o644, 0o755}


@pytest.mark.parametrize("text", ["# Changelog\n\n## Unreleased\n\n- Things.\n", f"## {VERSION}\n\n## 0.0.1\n\n- x\n"])
def test_a_version_that_the_changelog_does_not_tell_of_is_refused(checkout, tmp_path, text):
    other = Path(shutil.copytree(checkout, tmp_path / "other"))
    (other / "CHANGELOG.md").write_text(text)
    git(other, "commit", "-qam", "Changelog")
    done = release(other, tmp_path / "out")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert f"says nothing of {VERSION}" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_wheel_runs_in_an_environment_of_its_own(released, tmp_path):
    """The environment has click and platformdirs besides, which is all that the version and the help need."""
    venv.create(tmp_path / "clean", with_pip=False)
    python = tmp_path / "clean" / "bin" / "python"
    (wheel,) = released.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--no-compile", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    (tmp_path / "libraries").mkdir()
    for library in (click, platformdirs):
        (tmp_path / "libraries" / library.__name__).symlink_to(Path(library.__file__).parent)

    def run(*arguments: str) -> str:
        command = [tmp_path / "clean" / "bin" / "localctx", *arguments]
        environment = {"PYTHONPATH": str(tmp_path / "libraries"), "PATH": os.environ["PATH"]}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("--version") == f"localctx, version {VERSION}\n"
    assert "memory" in run("help")
    assert run("help", "memory").startswith("# ")
    assert "localctx ask" in run("--help")
