"""A licence that is not open source is said before the download."""

from dataclasses import replace

import pytest

from localctx.errors import ModelError
from localctx.models import catalog, model_advice, resolve
from localctx.models.catalog import load_catalog
from localctx.models.download import SourceFailed

TERMS = "its licence, Some Licence, is not open source: not for large companies (https://a.b/licence)"


@pytest.fixture(autouse=True)
def restricted(home, monkeypatch):
    """The catalogue's Qwen3 0.6B has a licence that is not open source, and no source answers."""

    def fail(*_: object) -> None:
        raise SourceFailed("no network")

    known = dict(load_catalog())
    terms = "not for large companies (https://a.b/licence)"
    known["qwen3-0.6b"] = replace(known["qwen3-0.6b"], licence="Some Licence", terms=terms)
    for room in (catalog, model_advice, resolve):
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
