"""A model of the hub arrives whole and without anything that runs code, or not at all."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_sources import COMMIT, Hub, running_hub, silent, stop_at
from tiny_gguf import write_gguf

from localctx.errors import ModelError
from localctx.models.catalog import HubSource
from localctx.models.hub import download
from localctx.models.hub import hub_download as hub_child
from localctx.models.hub.installed import MANIFEST
from localctx.models.hub.resolve import check_known, list_installed, pull, resolve_gguf, resolve_model

pytestmark = pytest.mark.slow

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
    source = json.loads((folder / "localctx.json").read_text())["source"]
    assert (source["commit"], source["licence"]) == (COMMIT, "mit")
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


def test_a_file_goes_on_where_it_was_cut(hub: Hub, models: Path) -> None:
    hub.go.clear()
    with pytest.raises(KeyboardInterrupt):
        resolve_model("org/tiny", models, stop_at("fetching", 10 << 20))
    (part,) = (models / ".partial/org--tiny/hub").glob("model.safetensors.*.part")
    kept, sent = part.stat().st_size, hub.sent["model.safetensors"]
    assert kept >= 10 << 20
    hub.go.set()
    folder = resolve_model("org/tiny", models, silent)
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert hub.sent["model.safetensors"] - sent == len(FILES["model.safetensors"]) - kept
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json", MANIFEST}


def test_a_download_that_is_killed_goes_on(hub: Hub, models: Path) -> None:
    """As with a power cut: neither process gets to clean up."""
    hub.go.clear()
    code = f"""from pathlib import Path; from localctx.models.hub.resolve import pull
pull("org/tiny", Path({str(models)!r}), lambda *p: print(*p, flush=True))"""
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout
        assert any(int(line.split()[1]) >= 10 << 20 for line in process.stdout if "fetching" in line)
        os.killpg(process.pid, signal.SIGKILL)
    kept = sum(path.stat().st_size for path in models.rglob("*.part"))
    assert kept >= 10 << 20
    hub.go.set()
    sent = hub.sent["model.safetensors"]
    assert (pull("org/tiny", models, silent) / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert hub.sent["model.safetensors"] - sent == len(FILES["model.safetensors"]) - kept


def test_a_hub_that_cannot_continue_sends_all_again(hub: Hub, models: Path) -> None:
    hub.go.clear()
    with pytest.raises(KeyboardInterrupt):
        resolve_model("org/tiny", models, stop_at("fetching", 10 << 20))
    hub.go.set()
    hub.whole = True
    folder = resolve_model("org/tiny", models, silent)
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_another_content_than_announced_is_refused_and_fetched_again(hub: Hub, models: Path, name: str) -> None:
    hub.told = {name: "0" * (64 if name.endswith("safetensors") else 40)}
    with pytest.raises(ModelError, match=f"{name} came with another content"):
        resolve_model("org/tiny", models, silent)
    hub.told.clear()
    folder = resolve_model("org/tiny", models, silent)
    assert (folder / name).read_bytes() == FILES[name]


def test_a_part_that_is_longer_than_its_file_is_not_continued(hub: Hub, models: Path) -> None:
    hub.go.clear()
    with pytest.raises(KeyboardInterrupt):
        resolve_model("org/tiny", models, stop_at("fetching", 10 << 20))
    hub.go.set()
    (part,) = (models / ".partial/org--tiny/hub").glob("model.safetensors.*.part")
    part.write_bytes(b"x" * (len(FILES["model.safetensors"]) + 1))
    folder = resolve_model("org/tiny", models, silent)
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_a_part_of_another_version_is_not_continued(hub: Hub, models: Path) -> None:
    hub.go.clear()
    with pytest.raises(KeyboardInterrupt):
        resolve_model("org/tiny", models, stop_at("fetching", 10 << 20))
    hub.go.set()
    hub.files = {**FILES, "model.safetensors": os.urandom(3 << 20)}
    folder = resolve_model("org/tiny", models, silent)
    assert (folder / "model.safetensors").read_bytes() == hub.files["model.safetensors"]


def test_a_full_disk_is_told_with_what_to_do(hub: Hub, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = "hub.shutil.disk_usage = lambda _: SimpleNamespace(free=0); hub.main(*sys.argv[1:])"
    imports = "import sys; from types import SimpleNamespace; import localctx.models.hub.hub_download as hub"
    command = [sys.executable, "-c", f"{imports}; {calls}"]
    made = download._hub_command
    monkeypatch.setattr(download, "_hub_command", lambda *given: [*command, *made(*given)[3:]])
    with pytest.raises(ModelError, match=r"the disk is too full: it needs 0.0 GB more.*free some space"):
        resolve_model("org/tiny", models, silent)
    assert hub.asked == []


def test_what_the_hub_tells_of_a_model_is_known_before_it_is_fetched(hub: Hub) -> None:
    entry = download.look_up("org/tiny", HubSource("org/tiny"))
    named = [content for name, content in FILES.items() if hub_child.wanted(name)]
    assert (entry.title, entry.licence, entry.family) == ("tiny", "mit", "llama")
    assert (entry.parameters, entry.bytes) == (12_000_000, sum(map(len, named)))
    assert hub.asked == []
    with pytest.raises(download.SourceFailed, match="no such model"):
        download.look_up("org/none", HubSource("org/none"))


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
    code = f"from localctx.models.hub import hub_download as hub; {call}"
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


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ({"license": "mit", "license_name": "x"}, "mit"),
        ({"license": "other", "license_name": "lfm1.0"}, "lfm1.0"),
        ({"license": "other"}, "other"),
        ({}, ""),
    ],
)
def test_a_licence_that_the_hub_does_not_know_has_the_name_its_makers_gave(card, licence):
    info = SimpleNamespace(sha="1", card_data=card, safetensors=None, config=None)
    assert hub_child._described(info, [])["licence"] == licence


@pytest.mark.parametrize(("name", "why"), [("org/none", "no such model"), ("org/gated", "accept its licence at")])
def test_what_the_hub_will_not_give_is_told(hub: Hub, models: Path, name: str, why: str) -> None:
    with pytest.raises(ModelError, match=why) as error:
        resolve_model(name, models, silent)
    assert "no hub can be reached" not in str(error.value)
    assert list_installed(models) == []
