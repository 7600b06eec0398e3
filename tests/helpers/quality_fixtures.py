"""Fixtures that the tests of quality share. A module takes them by assignment: ``model = quality_fixtures.model``."""

import pytest
from ask_in_process import PLAIN


@pytest.fixture(scope="module")
def model(tiny_model):
    from localctx.models.load import load_model

    return load_model(tiny_model, "tiny", dtype="f32")


@pytest.fixture
def run(home, monkeypatch, capsys, tiny_model):
    """``localctx quality`` in this process with the tiny model: (code, stdout, stderr)."""
    from localctx import cli

    for name, value in {**PLAIN, "dtype": "f32"}.items():  # as ``model`` is loaded
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))

    def run(*arguments):
        model = [] if "--model" in arguments else ["--model", str(tiny_model)]
        monkeypatch.setattr("sys.argv", ["localctx", "quality", *map(str, arguments), *model])
        return cli.run(), *capsys.readouterr()

    return run
