"""The default model on documents of the repository: read whole, kept, answered from kept pages, and honest."""

import json
import os
import re
from pathlib import Path

import pytest
from repository import ROOT

from localctx.models.catalog import DEFAULT
from localctx.settings.table import EMBEDDER

pytestmark = pytest.mark.slow

README = ROOT / "README.md"


@pytest.fixture(scope="module")
def models(pull) -> Path:
    """The folder of models, with the default one and the embedder."""
    pull(EMBEDDER)
    return pull(DEFAULT)


@pytest.fixture
def home(models, tmp_path, monkeypatch) -> Path:
    """A data folder of this test's own that has the default model; nothing is set that a user would not have."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "models").symlink_to(models.resolve())
    monkeypatch.setenv("LOCALCTX_HOME", str(folder))
    for name in [name for name in os.environ if name.startswith("LOCALCTX_") and name != "LOCALCTX_HOME"]:
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def ask(home, localctx):
    """``ask`` of the real command, as JSON."""

    def run(*arguments):
        done = localctx("ask", "--json", *arguments, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_the_first_command_of_the_readme_is_answered_whole_and_the_next_process_goes_on(ask, precision):
    first, second = (ask(README, question, "--dtype", precision) for question in
                     ("What licence does localctx have?", "Which port does the window listen on?"))  # fmt: skip
    assert (first["mode"], second["mode"]) == ("full", "full")
    assert "Apache-2.0" in first["answer"]
    assert "Apache-2.0" in first["citations"][0]["quote"]
    assert "7860" in second["answer"]
    assert second["tokens"]["reused"] >= 0.97 * second["tokens"]["prompt"]


def test_what_the_document_does_not_say_is_told_as_that(ask):
    done = ask(README, "Who won the battle of Hastings?")
    assert done["stopped"] == "unanswered"
    assert done["citations"] == []


def test_a_height_is_not_answered_with_a_length(ask, tmp_path):
    report = tmp_path / "weir.txt"
    report.write_text(
        "The weir was inspected in May. The crest has a crack 3.4 metres long. The fish pass is clean. The gate was "
        "painted in 2019. The apron is 12 metres long and 6 metres wide.\n"
    )
    high, wide = (ask(report, f"How {question}?") for question in ("high is the crest", "wide is the apron"))
    assert (high["stopped"], high["citations"]) == ("unanswered", [])
    assert high["nearest"]["quote"] == "The crest has a crack 3.4 metres long."
    assert "6 metres" in wide["answer"]


def test_a_no_is_shown_with_its_sentence(home, localctx, tmp_path):
    lease = tmp_path / "lease.txt"
    lease.write_text("The monthly rent is £1,150. Pets are not allowed. Smoking is not allowed inside the flat.\n")
    done = localctx("ask", lease, "Is smoking allowed?", timeout=300)
    assert done.stdout == 'No.\n\n"Smoking is not allowed inside the flat." (lease.txt)\n'


def test_the_transcript_of_the_readme_is_true(home, localctx):
    transcript = re.search(r"```console\n\$ sh packaging/start (.+)\n(.+)\n\n(.+)\n```", README.read_text())
    assert transcript, "the README has no transcript"
    command, answer, quotation = transcript.groups()
    words = [word.strip('"') for word in re.findall(r'"[^"]+"|\S+', command)]
    done = localctx(*words, timeout=300, cwd=README.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{answer}\n\n{quotation}\n"
