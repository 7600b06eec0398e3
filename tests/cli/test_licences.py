"""A licence that is not open source is said before the download; all that is installed is listed with its licence."""

import json
from dataclasses import replace
from importlib.metadata import Distribution, version

import pytest

from localctx import licences
from localctx.errors import ModelError
from localctx.licences import licence_of
from localctx.models import catalog
from localctx.models.catalog import load_catalog
from localctx.models.choice import model_advice
from localctx.models.hub import resolve
from localctx.models.hub.download import SourceFailed

pytestmark = pytest.mark.slow

TERMS = "its licence, Some Licence, is not open source: not for large companies (https://a.b/licence)"


@pytest.fixture(autouse=True)
def restricted(home, monkeypatch):
    """The catalogue's Qwen3 0.6B has a licence that is not open source, and no source answers."""

    def fail(*_: object) -> None:
        raise SourceFailed("no network")

    known = dict(load_catalog())
    terms = "not for large companies (https://a.b/licence)"
    known["qwen3-0.6b"] = replace(known["qwen3-0.6b"], licence="Some Licence", terms=terms)
    for room in (catalog, licences, model_advice, resolve):
        monkeypatch.setattr(room, "load_catalog", lambda: known)
    monkeypatch.setattr(resolve, "from_hub", fail)


def test_pull_says_it_before_it_asks_the_hub(run):
    done = run("models", "pull", "qwen3-0.6b")
    first, *rest = done.stderr.splitlines()
    assert first == f"localctx: {TERMS}"
    assert "qwen3-0.6b cannot be fetched" in rest[-1]
    assert "licence" not in run("models", "pull", "qwen3-1.7b").stderr


def test_the_list_and_the_choice_say_it(run):
    (line,) = [line for line in run("models", "list").stdout.splitlines() if line.startswith("qwen3-0.6b ")]
    assert line.endswith("Some Licence (not open source)")
    assert run("models", "use", "qwen3-0.6b").stdout.endswith(f"pull qwen3-0.6b ({TERMS})\n")


def test_a_question_does_not_download_it(home):
    with pytest.raises(ModelError, match=r"is not open source: .*; localctx models pull qwen3-0.6b"):
        resolve.resolve_model("qwen3-0.6b", home / "models", lambda *_: None)


def test_all_that_is_installed_is_listed_with_its_licence(run):
    done = run("doctor", "--licences")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[:-1]}
    assert "Apache-2.0" in rows["localctx"]
    assert "BSD-3-Clause" in rows["torch"]
    assert "https://" in rows["numpy"]
    assert "CC-BY-SA-4.0" in rows["smollm2-135m-reader"]
    assert {"click", "sqlite-utils", "sample.md"} <= rows.keys()
    assert "parts; of " in done.stdout.splitlines()[-1]


def test_the_bill_of_materials_is_whole_and_the_same_each_time(run, home):
    for model in ("qwen3-0.6b", "mine"):
        (home / "models" / model).mkdir(parents=True)
    done = run("doctor", "--licences", "--json")
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert bill["metadata"]["component"]["name"] == "localctx"
    parts = {part["name"]: part for part in bill["components"]}
    refs = [part["bom-ref"] for part in bill["components"]]
    assert len(refs) == len(set(refs)) == len(parts)
    assert all(part["type"] in ("library", "machine-learning-model", "file") for part in parts.values())
    assert parts["click"]["purl"] == f"pkg:pypi/click@{version('click')}"
    assert parts["click"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    known = {*refs, bill["metadata"]["component"]["bom-ref"]}
    assert all({d["ref"], *d["dependsOn"]} <= known for d in bill["dependencies"])
    assert any(ref.startswith("pkg:pypi/torch@") for ref in bill["dependencies"][0]["dependsOn"])
    assert parts["qwen3-0.6b"]["licenses"] == [{"license": {"name": "Some Licence"}}]
    assert "licenses" not in parts["mine"]
    assert run("doctor", "--licences", "--json").stdout == done.stdout


@pytest.mark.parametrize(
    ("told", "licence"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: another\n", ("MIT OR Apache-2.0", True)),
        ("License: BSD License\n", ("BSD License", False)),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", ("MIT License", False)),
        (f"License: {'all of the text ' * 9}\nClassifier: License :: OSI Approved :: ISC\n", ("ISC", False)),
        ("Summary: says nothing\n", ("not told", False)),
        (f"License: {'all of the text ' * 9}\n", ("not told", False)),
    ],
)
def test_the_licence_is_what_the_metadata_says(tmp_path, told, licence):
    (tmp_path / "METADATA").write_text(f"Metadata-Version: 2.4\nName: a\nVersion: 1\n{told}")
    assert licence_of(Distribution.at(tmp_path)) == licence
