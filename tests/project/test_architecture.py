"""The architecture page says what the imports and a run say."""

import json
import subprocess
import sys

import pytest
from architecture import PAGE, from_a_run, from_imports, made_parts, picture, sub_packages, with_parts
from import_graph import import_graph, sources
from repository import ROOT

pytestmark = pytest.mark.process

WRITE = "python tests/helpers/architecture.py --write brings the page up to date"


@pytest.fixture(scope="module")
def paths_of_a_model() -> dict[str, dict]:
    """What ``measure_layers`` says, in a process of its own: it hooks into every call of a function."""
    command = [sys.executable, ROOT / "tests" / "measure" / "measure_layers.py", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_shows_the_imports_as_they_are():
    assert made_parts(PAGE.read_text())[0] == from_imports(import_graph(sources())), WRITE


@pytest.mark.slow
def test_the_page_shows_the_paths_as_they_are(paths_of_a_model):
    files = {name: path["files"] for name, path in paths_of_a_model.items()}
    assert made_parts(PAGE.read_text())[1] == from_a_run(files), WRITE


@pytest.mark.slow
def test_the_paths_lead_through_the_rooms_they_should(paths_of_a_model):
    through = {"ask": "cli engine kv", "page": "kv engine store", "window": "serving workflows engine kv"}
    for name, rooms in through.items():
        files, executed = paths_of_a_model[name]["files"], paths_of_a_model[name]["executed"]
        assert all(any(file.startswith(f"localctx/{room}/") for file in files) for room in rooms.split())
        assert set(files) <= set(executed)
        assert paths_of_a_model[name]["frames"] >= len(files)


def test_the_made_parts_are_found_and_replaced():
    text = with_parts("# Title\n<!-- from the imports -->\nold\n<!-- end of the made part -->\nafter\n", "one", "two")
    assert made_parts(text) == ("one", "two")
    assert made_parts(with_parts(text, "three", "four")) == ("three", "four")
    assert text.startswith("# Title\n")
    assert text.endswith("\nafter\n")


def test_a_picture_has_a_row_of_boxes_for_each_layer():
    assert list(picture([["errors", "shape"], ["kv"]])) == [
        "    ┌────┐",
        " 1  │ kv │",
        "    └────┘",
        "    ▼",
        "    ┌────────┐   ┌───────┐",
        " 0  │ errors │   │ shape │",
        "    └────────┘   └───────┘",
    ]


def test_a_wide_layer_takes_several_rows():
    lines = list(picture([[f"room{i}" for i in range(12)]]))
    assert max(map(len, lines)) < 80
    assert sum(line.startswith(" 0  │") for line in lines) == 1
    assert sum("room" in line for line in lines) > 1
    assert all(" ".join(lines).count(f"room{i} ") == 1 for i in range(12))


def test_every_sub_package_has_a_row_with_its_purpose():
    rows = list(sub_packages())
    assert "| `kernels/py/cpu/` |" in "\n".join(rows)
    assert all(row.count("|") == 4 and row.endswith(". |") for row in rows[2:])
