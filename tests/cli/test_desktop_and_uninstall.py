"""``desktop`` writes into the user's own folders and takes out what it wrote; ``uninstall`` deletes only its own."""

import configparser
import json
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from localctx import uninstall
from localctx.bench.history import append_run
from localctx.errors import UserError
from localctx.serving.http import access_key
from localctx.settings import Settings
from localctx.ui import desktop_entry

pytestmark = pytest.mark.slow


@pytest.fixture
def share(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    return tmp_path / "share"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- desktop


def test_entry_and_icon_are_where_a_desktop_looks_and_go_again(run, share):
    wrote = json.loads(run("desktop", "install", "--json").stdout)["installed"]
    assert files(share) == {"applications/localctx.desktop", "icons/hicolor/scalable/apps/localctx.svg"}
    assert {str(share / name) for name in files(share)} == set(wrote)
    assert run("desktop", "install").stdout.count("wrote ") == 2  # again does no harm
    assert json.loads(run("desktop", "remove", "--json").stdout)["removed"] == wrote
    assert files(share) == set()
    assert run("desktop", "remove").stdout == "there was none\n"


def test_the_entry_starts_this_installation(share):
    entry, icon = desktop_entry.install_entry()
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(entry.read_text())
    fields = dict(parser["Desktop Entry"])
    assert {"Type", "Name", "Exec", "Icon", "Terminal", "Categories"} <= fields.keys()
    program, *rest = shlex.split(fields["Exec"])
    assert Path(program).parent == Path(sys.executable).parent
    assert rest[-1] == "ui"
    assert ElementTree.parse(icon).getroot().tag.endswith("svg")


@pytest.mark.parametrize("word", ["/a b/localctx", '/a"b`c$d\\e/localctx', "/100%/localctx"])
def test_a_path_is_quoted_as_the_specification_says(word):
    quoted = desktop_entry._quoted([word])
    string = quoted.replace("\\\\", "\\")  # as a string of the file; then as an argument:
    assert string[0] == string[-1] == '"'
    argument = "".join(c for i, c in enumerate(string[1:-1]) if not (c == "\\" and string[i] != "\\"))
    assert argument.replace("%%", "%") == word


def test_a_system_without_entries_says_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UserError, match="localctx ui"):
        desktop_entry.install_entry()


def test_a_relative_data_folder_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert desktop_entry.entry_files()[0] == tmp_path / ".local/share/applications/localctx.desktop"


# --- uninstall


@pytest.fixture
def filled(home, tmp_path) -> Path:
    """A data folder with some of localctx's names, a link, and a file of somebody else."""
    (home / "pages").mkdir(parents=True, exist_ok=True)
    (home / "pages" / "0").write_bytes(b"x" * 5000)
    (home / "settings.toml").write_text("")
    (home / "diary.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "weights").write_text("kept")
    (home / "models").symlink_to(tmp_path / "elsewhere")
    return home


def test_without_data_everything_stays_but_the_entry(run, share, filled):
    run("desktop", "install")
    before = files(filled)
    done = run("uninstall", "--yes")
    assert done.returncode == 0
    assert "stay" in done.stderr
    assert "pages" in done.stderr
    assert files(filled) == before
    assert files(share) == set()


def test_with_data_its_own_goes_and_what_is_not_its_own_stays(run, share, filled, tmp_path):
    done = run("uninstall", "--data", "--yes", "--json")
    report = json.loads(done.stdout)
    assert report["data"] == "deleted"
    assert report["bytes"] >= 5000
    assert "diary.txt" in done.stderr
    assert files(filled) == {"diary.txt"}
    assert (tmp_path / "elsewhere" / "weights").read_text() == "kept"


@pytest.mark.parametrize("arguments", [("--data",), ()])
def test_without_an_answer_nothing_is_deleted(run, share, filled, arguments):
    run("desktop", "install")
    before = files(filled), files(share)
    done = run("uninstall", *arguments)  # stdin is empty
    assert done.returncode == 130
    assert (files(filled), files(share)) == before


def test_nothing_is_deleted_while_a_server_is_open(run, share, filled):
    from localctx.serving.open_servers import registered

    with registered(filled, "127.0.0.1", 1, "key"):
        done = run("uninstall", "--data", "--yes")
    assert done.returncode == 1
    assert "close it" in done.stderr
    assert (filled / "pages" / "0").exists()


def test_an_empty_data_folder_goes_too(tmp_path):
    (tmp_path / "home" / "pages").mkdir(parents=True)
    data = uninstall.kept_data(Settings(tmp_path / "home"))
    uninstall.delete_data(data)
    assert not (tmp_path / "home").exists()
    assert uninstall.kept_data(Settings(tmp_path / "home")).own == {}


def test_all_names_in_a_data_folder_are_known(run, tmp_path, home, tiny_model):
    """Otherwise ``--data`` would leave some of it."""
    (tmp_path / "a.txt").write_text("The lamp is lit at eight. " * 40)
    assert run("ask", tmp_path / "a.txt", "When?", "--model", tiny_model, "--max-tokens", 2, "--alone").returncode == 0
    assert run("library", "add", tmp_path / "a.txt").returncode == 0
    access_key(home)
    append_run(home, {"decode": []})
    assert uninstall.kept_data(Settings(home)).others == []


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/a/.local/share/pipx/venvs/localctx", "pipx uninstall localctx"),
        ("/home/a/.local/share/uv/tools/localctx", "uv tool uninstall localctx"),
        ("/usr/lib/localctx/env", "sudo apt remove localctx"),
        ("/opt/env", f"{sys.executable} -m pip uninstall localctx"),
    ],
)
def test_the_program_is_removed_by_what_installed_it(monkeypatch, prefix, command):
    monkeypatch.setattr(sys, "prefix", prefix)
    assert uninstall.removing_command() == command
