"""Files with the same text in the library's commands: each is listed, found, cited and removed under its own name."""

import json
import sys
from pathlib import Path

import pytest

from localctx import cli

MILL = "House rules.\n\nThe gate code of the mill is heron.\n\nDogs must be kept on a leash in the yard.\n"
FORGE = "House rules.\n\nThe gate code of the forge is otter.\n\nCats are welcome in the yard.\n"


@pytest.fixture
def localctx(home, monkeypatch, capsys):
    """Runs a command in this process; returns what it prints."""
    for name, value in (("EMBEDDER", "none"), ("SUMMARIES", "extract")):
        monkeypatch.setenv(f"LOCALCTX_{name}", value)

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["localctx", *map(str, words)])
        code, printed = cli.run(), capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    return run


@pytest.fixture
def twins(tmp_path, localctx) -> tuple[Path, Path]:
    invoice, copy = tmp_path / "a" / "invoice.txt", tmp_path / "b" / "copy.txt"
    for file in (invoice, copy):
        file.parent.mkdir()
        file.write_text(MILL)
    localctx("library", "add", invoice, copy)
    return invoice, copy


def listed(localctx) -> set[tuple[str, str, bool]]:
    rows = json.loads(localctx("library", "list", "--json"))
    return {(row["name"], row["path"], bool(row["superseded"])) for row in rows}


def test_both_are_listed_shown_and_searched_by_name(twins, localctx):
    invoice, copy = twins
    assert listed(localctx) == {("invoice.txt", str(invoice), False), ("copy.txt", str(copy), False)}
    table = localctx("library", "list")
    assert "invoice.txt" in table
    assert "copy.txt" in table
    assert f"the same text as {copy}" in localctx("library", "show", "invoice.txt")
    assert set(json.loads(localctx("library", "show", copy, "--json"))["files"]) == {str(invoice), str(copy)}
    for name in ("invoice.txt", "copy.txt", invoice):
        assert json.loads(localctx("library", "search", "heron", "--document", name, "--json"))["passages"]


def test_an_edited_one_leaves_the_other_current(twins, localctx):
    _, copy = twins
    copy.write_text(FORGE)
    localctx("library", "add", copy)
    assert {(name, superseded) for name, _, superseded in listed(localctx)} == {
        ("invoice.txt", False),
        ("copy.txt", False),
    }
    found = json.loads(localctx("library", "search", "gate code", "--json"))["passages"]
    assert {(p["name"], p["superseded"]) for p in found} == {("invoice.txt", None), ("copy.txt", None)}


def test_summaries_name_the_file_that_was_asked_also_after_a_rename(twins, localctx, tmp_path):
    for file in twins:
        (document,) = json.loads(localctx("summarize", file, "--json"))["documents"]
        assert document["name"] == file.name
        assert {c["name"] for c in document["citations"]} == {file.name}
    renamed = twins[0].rename(tmp_path / "renamed.txt")
    (document,) = json.loads(localctx("summarize", renamed, "--json"))["documents"]
    assert {c["name"] for c in document["citations"]} == {document["name"]} == {"renamed.txt"}
    localctx("library", "add", renamed)
    assert {name for name, *_ in listed(localctx)} == {"renamed.txt", "copy.txt"}


def test_removing_one_leaves_the_other(twins, localctx):
    invoice, copy = twins
    assert f"its text stays as {invoice}" in localctx("library", "rm", copy)
    assert listed(localctx) == {("invoice.txt", str(invoice), False)}
    assert "moved to the trash" in localctx("library", "rm", "invoice.txt")
    assert listed(localctx) == set()
    localctx("library", "trash", "restore", "invoice.txt")
    assert listed(localctx) == {("invoice.txt", str(invoice), False)}


def test_an_older_version_is_marked_in_search(tmp_path, localctx):
    lease = tmp_path / "lease.txt"
    for text in (
        "The monthly rent of the mill is 1200 crowns.",
        "Rent review: the tenant pays 1450 crowns from now on.",
    ):
        lease.write_text(text)
        localctx("library", "add", lease)
    first, second = json.loads(localctx("library", "search", "monthly rent crowns", "--json"))["passages"]
    assert ("1450" in first["text"], first["superseded"]) == (True, None)
    assert second["superseded"] == first["document"]
    lines = localctx("library", "search", "monthly rent crowns").splitlines()
    assert ["older version" in line for line in lines if "lease.txt" in line] == [False, True]
