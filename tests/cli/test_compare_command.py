"""``compare``: the same clauses, or what changed, as text, JSON and files; its exit codes and its errors."""

import csv
import io
import json
import sys

import pytest
from made_files import docx, pdf

from localctx.cli.compare import CHANGED

pytestmark = pytest.mark.process

OLD = ("Rent", "The rent is EUR 1,200 per month.", "The tenant may keep pets in the house.", "=1+1 is due in May.")
NEW = ("Rent", "The rent is EUR 1,300 per month.", "The tenant may keep pets in the house.", "=1+1 is due in June.")


@pytest.fixture
def versions(tmp_path):
    old, new = tmp_path / "old.docx", tmp_path / "new.pdf"
    old.write_bytes(docx([("Heading 1", OLD[0]), *(("", line) for line in OLD[1:])]))
    new.write_bytes(pdf(["\n".join(NEW[:2]), "\n".join(NEW[2:])]))
    return old, new


def test_both_sentences_both_places_and_the_words(run, versions):
    done = run("compare", *versions)
    assert done.returncode == CHANGED
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("old.docx -> new.pdf: 2 changes")
    assert lines[2:6] == [
        "Numbers and money",
        "  1,200 -> 1,300",
        '    old, under "Rent": The rent is EUR 1,200 per month.',
        "    new, page 1: The rent is EUR 1,300 per month.",
    ]
    assert "    new, page 2: =1+1 is due in June." in lines


def test_a_new_layout_is_no_change(run, tmp_path, versions):
    same = tmp_path / "same.md"
    same.write_text(f"# {OLD[0]}\n\n" + "\n\n".join(line.replace(" ", "\n", 1) for line in OLD[1:]))
    done = run("compare", versions[0], same)
    assert (done.returncode, done.stdout) == (0, "old.docx -> same.md: No clause has changed.\n")
    assert json.loads(run("compare", versions[0], same, "--json").stdout)["same"] is True


def test_json_holds_all(run, versions):
    done = run("compare", *versions, "--json")
    assert done.returncode == CHANGED
    made = json.loads(done.stdout)
    first = made["changes"][0]
    assert (made["same"], first["state"], first["meaning"]) == (False, "changed", "number")
    assert first["words"] == [{"old": "1,200", "new": "1,300", "meaning": "number"}]
    assert (first["old"]["heading"], first["new"]["page"]) == ("Rent", "1")


def test_files_are_written_and_run_nothing(run, versions, tmp_path):
    old, new = tmp_path / "a.txt", tmp_path / "b.txt"
    old.write_text("The rent is due.\n\n=1+1 <script>alert(1)</script> [a](b) holds.\n")
    new.write_text("The rent is due.\n\n=1+1 <script>alert(2)</script> [a](b) holds.\n")
    for suffix in (".html", ".csv", ".md", ".jsonl"):
        done = run("compare", old, new, "-o", tmp_path / f"made{suffix}")
        assert (done.returncode, done.stdout) == (CHANGED, "")
        assert f"made{suffix}" in done.stderr
    page = (tmp_path / "made.html").read_text()
    assert "<script" not in page
    assert "<del>1</del> <ins>2</ins>" in page
    ((_, *cells),) = list(csv.reader(io.StringIO((tmp_path / "made.csv").read_text(encoding="utf-8-sig"))))[1:]
    assert cells[3].startswith("'=1+1")
    assert "\\[a\\]" in (tmp_path / "made.md").read_text()
    assert json.loads((tmp_path / "made.jsonl").read_text())["state"] == "changed"


def test_standard_input_and_documents_of_the_library_are_versions(run, versions, tmp_path):
    assert run("library", "add", versions[0]).returncode == 0
    ids = [row["id"] for row in json.loads(run("library", "list", "--json").stdout)]
    for name in (ids[0], ids[0][:12], "old.docx"):
        assert run("compare", name, versions[1]).returncode == CHANGED
        assert run("compare", versions[0], name).returncode == 0
    assert run("compare", "-", versions[1], stdin="\n\n".join(NEW).encode()).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("old.docx",), 2),
        (("-", "-"), 2),
        (("old.docx", "new.pdf", "-o", "made.doc"), 2),
        (("old.docx", "new.pdf", "-o", "none/made.md"), 2),
        (("old.docx", "none.pdf"), 1),
        (("old.docx", "scan.pdf", "--no-ocr"), 1),
        (("picture.png", "new.pdf"), 1),
        ((".", "new.pdf"), 1),
    ],
)
def test_mistakes_cost_a_line(run, versions, tmp_path, monkeypatch, arguments, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scan.pdf").write_bytes(pdf([""]))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    done = run("compare", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert ";" in done.stderr


def test_long_reading_is_announced_on_a_terminal(run, versions, monkeypatch):
    shown = []
    monkeypatch.setattr(sys.modules["localctx.cli.compare"], "_SOON", 0)
    monkeypatch.setattr("localctx.cli.terminal.Terminal.show", lambda terminal, event: shown.append(event.phase))
    run("compare", *versions)
    assert f"pages of {versions[1]}" in shown
