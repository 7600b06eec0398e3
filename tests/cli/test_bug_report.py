"""A report of a bug says what helps, and nothing of what documents say, are called, or where they are."""

import json

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture
def report(run, home, tmp_path, monkeypatch) -> str:
    folder = tmp_path / "divorce of the Marigolds"
    folder.mkdir()
    (folder / "lawyer's letter.txt").write_text("The clockmaker owes nine hundred.")
    assert run("library", "add", folder / "lawyer's letter.txt", "--embedder", "none").returncode == 0
    log = f"took a second\nfailed: {folder}/lawyer's letter.txt\nlawyer's letter.txt again\n"
    (home / "localctx.log").write_text(log)
    monkeypatch.setenv("LOCALCTX_REMOTE", "s3://name:secret@store/pages")
    monkeypatch.setenv("LOCALCTX_THREADS", "2")
    done = run("doctor", "--report", tmp_path / "bug.txt")
    assert done.returncode == 0, done.stderr
    return (tmp_path / "bug.txt").read_text()


def test_it_says_what_helps_and_nothing_private(report, home, tmp_path):
    for private in ("clockmaker", "nine hundred", "lawyer", "divorce", "Marigold", "secret", str(home)):
        assert private not in report
    found = json.loads(report)
    assert {"localctx", "versions", "device", "memory", "store", "problems"} <= found.keys()
    assert found["settings"]["threads"] == 2
    assert found["settings"]["remote"] == "(a path or an address)"
    assert found["log"][:3] == ["took a second", "failed: (document)", "(document) again"]
