"""A model of the hub arrives whole and without anything that runs code, or not at all."""

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fake_sources import COMMIT, Hub, running_hub, silent, stop_at
from tiny_gguf import write_gguf

from localctx.errors import ModelError
from localctx.models import hub_download as hub_child
from localctx.models.resolve import check_known, list_installed, pull, resolve_gguf, resolve_model

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": os.urandom(24 << 20),  # the library writes 10 MiB at a time
    "consolidated.safetensors": b"the same once more",
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "onnx/config.json": b"{}",
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running_hub(FILES) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


def test_safetensors_arrive_and_nothing_else(hub: Hub, models: Path) -> None:
    folder = resolve_model("org/tiny", models, silent)
    assert folder == models / "org--tiny"
    names = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == {*names, "localctx.json"}
    assert set(hub.asked) == names
    assert json.loads((folder / "localctx.json").read_text())["source"]["commit"] == COMMIT
    assert resolve_model("org/tiny", models, stop_at("fetching")) == folder
    assert resolve_model("org--tiny", models, stop_at("fetching")) == folder


def test_of_the_ggufs_of_a_repository_the_one_that_is_named_arrives(hub: Hub, models: Path, tmp_path: Path) -> None:
    content = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    hub.files = {**FILES, "tiny-Q4_K_M.gguf": content, "tiny-Q8_0.gguf": content}
    folder = pull("org/tiny:*Q4_K_M*", models, silent)
    assert hub.asked == ["tiny-Q4_K_M.gguf"]
    assert resolve_gguf("org/tiny:*Q4_K_M*", models, stop_at("fetching")) == folder / "tiny-Q4_K_M.gguf"
    assert check_known("org/tiny:*Q4_K_M*", models) == ("org/tiny:*Q4_K_M*", True)
    with pytest.raises(ModelError, match="names several models"):
        pull("org/tiny:*", models, silent)
    with pytest.raises(ModelError, match="no GGUF file like"):
        pull("org/tiny:*Q2*", models, silent)


def test_files_that_came_whole_are_not_fetched_again(hub: Hub, models: Path) -> None:
    hub.go.clear()
    with pytest.raises(KeyboardInterrupt):
        resolve_model("org/tiny", models, stop_at("fetching", 8 << 20))
    hub.go.set()
    assert not (models / "org--tiny").exists()
    folder = resolve_model("org/tiny", models, silent)
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert Counter(hub.asked) == {"model.safetensors": 2, "config.json": 1, "tokenizer.json": 1}


def test_a_half_filled_folder_is_no_model_when_the_network_goes(
    hub: Hub, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.go.clear()
    with pytest.raises(KeyboardInterrupt):
        resolve_model("org/tiny", models, stop_at("fetching", 8 << 20))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"hub: Connect.*no hub can be reached.*a \.gguf file that you bring yourself"):
        resolve_model("org/tiny", models, silent)
    assert [model.state for model in list_installed(models)] == ["partial"]


def test_a_hub_that_says_nothing_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    """As behind a firewall that drops packets: there is a connection, and no answer."""
    call = f"hub.TIMEOUT = 0.3; hub.main('org/tiny', 'main', {str(tmp_path)!r}, 'plan')"
    code = f"from localctx.models import hub_download as hub; {call}"
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        endpoint = f"http://127.0.0.1:{mute.getsockname()[1]}"
        environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
        environment |= {"HF_ENDPOINT": endpoint, "NO_PROXY": "127.0.0.1"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == hub_child.HUB_UNREACHABLE
    assert "imeout" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("files", [{"config.json": b"{}", "pytorch_model.bin": b"pickle"}, {"model.gguf": b"GGUF"}])
def test_a_model_without_safetensors_is_refused(hub: Hub, models: Path, files: dict[str, bytes]) -> None:
    hub.files = files
    with pytest.raises(ModelError, match="pickled weights are never loaded"):
        resolve_model("org/tiny", models, silent)
    assert hub.asked == []


@pytest.mark.parametrize(("name", "why"), [("org/none", "no such model"), ("org/gated", "accept its licence at")])
def test_what_the_hub_will_not_give_is_told(hub: Hub, models: Path, name: str, why: str) -> None:
    with pytest.raises(ModelError, match=why) as error:
        resolve_model(name, models, silent)
    assert "no hub can be reached" not in str(error.value)
    assert list_installed(models) == []
