"""Every model of the catalogue runs in this version, and takes what ``plan`` computes from its config."""

import json
import sys

import pytest
from repository import ROOT

from localctx.models.catalog import load_catalog

sys.path.insert(0, str(ROOT / "packaging"))
from size_models import CATALOG, PAGE, TABLE, sizes, table, updated

CHATS = [e for e in load_catalog().values() if e.kind == "chat"]


@pytest.mark.slow
@pytest.mark.parametrize("entry", CHATS, ids=lambda e: e.name)
def test_a_model_is_supported_and_its_sizes_are_those_of_a_plan(entry):
    computed = sizes(entry)
    assert {name: getattr(entry, name) for name in computed} == computed, "run: python packaging/size_models.py"
    config = json.loads(entry.config_file.read_text())
    assert config["model_type"] == entry.family


def test_there_is_a_config_for_each_model_and_for_no_other():
    assert {file.stem for file in CHATS[0].config_file.parent.iterdir()} == {e.name for e in CHATS}


@pytest.mark.parametrize("entry", CHATS, ids=lambda e: e.name)
def test_the_catalogue_is_written_where_it_was_read(entry):
    text = CATALOG.read_text()
    values = {"nf4": entry.nf4, "kv": entry.kv}
    assert updated(text, entry.name, values) == text
    changed = updated(text, entry.name, {"nf4": 12_345})
    assert changed.count("nf4 = 12_345\n") == 1
    assert len(changed.splitlines()) == len(text.splitlines())


def test_the_page_has_the_table_of_the_catalogue():
    (shown,) = TABLE.findall(PAGE.read_text())
    assert shown == table(load_catalog().values()), "run: python packaging/size_models.py"


def test_a_model_that_this_version_refuses_cannot_be_listed(tmp_path, monkeypatch):
    entry = CHATS[0]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "doge", "num_hidden_layers": 2}))
    monkeypatch.setattr(type(entry), "config_file", tmp_path / "config.json")
    with pytest.raises(ValueError, match="doge models are not supported"):
        sizes(entry)
