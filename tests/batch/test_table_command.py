"""``table``: a row a document, a column a question; stored answers, corrections, and the four kinds of files."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from fake_server import fake_server
from openpyxl import load_workbook

from localctx.batch.table.table_file import FORMATS, TableFile
from localctx.settings import write_atomically

pytestmark = pytest.mark.process

RENT, DATE, PETS = "How much is the rent?", "When does it begin?", "May pets be kept?"
COLUMNS = ("--ask", f"rent (money): {RENT}", "--ask", f"begin (date): {DATE}", "--ask", f"pets (yes/no): {PETS}")
LEASE = "The rent is {rent} a month. It begins on {day}. The tenant may keep pets.\n"


def answers(handler) -> None:
    """Answer as a model would: from the text between the prompt's marks, or that it does not say."""
    content = handler.server.asked[-1]["messages"][-1]["content"]
    sentence = {RENT: "The rent is ", DATE: "It begins on ", PETS: "The tenant may keep "}
    (start,) = (start for question, start in sentence.items() if question in content)
    rest = re.split(r"\.\s", content.partition(start)[2])[0]
    said = "The document does not say." if not rest else "Yes, pets." if "pets" in rest else rest.split(" a month")[0]
    handler.stream(said, len(content.split()))


@pytest.fixture
def there():
    with fake_server() as server:
        server.always = answers
        yield server


@pytest.fixture
def leases(tmp_path) -> Path:
    folder = tmp_path / "leases"
    folder.mkdir()
    (folder / "=1+1.txt").write_text(LEASE.format(rent="EUR 1,105.50", day="1 May 2026"))
    (folder / "hart.txt").write_text(LEASE.format(rent="£920", day="spring"))
    (folder / "silent.txt").write_text("This agreement is about a boat.\n")
    return folder


@pytest.fixture
def table(run, leases, there):
    """The command over the leases, asking the server one document at a time."""

    def table(*arguments: object):
        done = run("table", leases, *arguments, "--server", there.url, "--together", 1)
        assert done.returncode == 0, done.stderr
        return done

    return table


def rows(done) -> dict[str, dict[str, dict]]:
    return {row["name"]: row["cells"] for row in json.loads(done.stdout)["rows"]}


def test_each_document_has_a_row_and_each_question_a_column(table):
    made = rows(table(*COLUMNS, "--json"))
    shown = {name: [cell["shown"] for cell in cells.values()] for name, cells in made.items()}
    assert shown == {
        "=1+1.txt": ["1105.50 EUR", "2026-05-01", "yes"],
        "hart.txt": ["920.00 GBP", "", "yes"],
        "silent.txt": ["", "", ""],
    }
    states = [cell["state"] for cells in made.values() for cell in cells.values()]
    assert states == ["found", "found", "found", "found", "unsure", "found", "missing", "missing", "missing"]
    assert made["hart.txt"]["begin"]["printed"] == "spring"
    assert "£920" in made["hart.txt"]["rent"]["quote"]


def test_a_second_run_asks_only_new_documents_and_new_columns(table, there, leases):
    table(*COLUMNS[:2])
    assert len(there.asked) == 3
    table(*COLUMNS[:4])
    assert len(there.asked) == 6
    (leases / "new.txt").write_text(LEASE.format(rent="$7", day="2 June 2026"))
    made = rows(table(*COLUMNS[:4], "--json"))
    assert len(there.asked) == 8
    assert made["new.txt"]["rent"]["shown"] == "7.00 USD"
    table(*COLUMNS[:4], "--force")
    assert len(there.asked) == 16


def test_what_another_batch_asked_is_not_asked_again(run, table, there, leases):
    run("summarize", leases, "-q", "--question", RENT, "--server", there.url, "--together", 1)
    assert len(there.asked) == 3
    assert rows(table(*COLUMNS[:2], "--json"))["hart.txt"]["rent"]["shown"] == "920.00 GBP"
    assert len(there.asked) == 3


def test_a_corrected_cell_stays_so_until_its_text_changes(table, leases):
    table(*COLUMNS, "--set", "hart.txt:Begin=2026-04-01")
    made = rows(table(*COLUMNS, "--json", "--force"))
    assert (made["hart.txt"]["begin"]["state"], made["hart.txt"]["begin"]["shown"]) == ("corrected", "2026-04-01")
    assert made["hart.txt"]["begin"]["quote"] == "", "no sentence of the document says so"
    assert made["silent.txt"]["begin"]["state"] == "missing"
    (leases / "hart.txt").write_text(LEASE.format(rent="£950", day="1 June 2026"))
    assert rows(table(*COLUMNS, "--json"))["hart.txt"]["begin"]["shown"] == "2026-06-01"


def test_a_correction_of_another_file_is_refused(run, leases, there):
    done = run("table", leases, *COLUMNS[:2], "--set", "hard.txt:rent=1", "--server", there.url, "--together", 1)
    assert (done.returncode, "hard.txt" in done.stderr) == (2, True)


@pytest.fixture
def two_of_a_name(leases) -> Path:
    (leases / "old").mkdir()
    (leases / "old" / "hart.txt").write_text(LEASE.format(rent="£900", day="autumn"))
    return leases


def rents(done) -> dict[Path, str]:
    return {Path(row["path"]): row["cells"]["rent"]["shown"] for row in json.loads(done.stdout)["rows"]}


@pytest.mark.parametrize("file", ["old/hart.txt", "leases/old/hart.txt", "{leases}/old/hart.txt"])
def test_one_file_of_a_name_is_corrected_by_its_path(table, two_of_a_name, tmp_path, monkeypatch, file):
    monkeypatch.chdir(tmp_path)
    done = table(*COLUMNS[:2], "--json", "--set", f"{file.format(leases=two_of_a_name)}:rent=1: 00 EUR")
    assert rents(done)[two_of_a_name / "old" / "hart.txt"] == "1: 00 EUR"
    assert rents(done)[two_of_a_name / "hart.txt"] == "920.00 GBP"


def test_a_file_directly_in_the_folder_is_named_with_a_point(table, two_of_a_name):
    done = table(*COLUMNS[:2], "--json", "--set", "./hart.txt:rent=1")
    assert rents(done)[two_of_a_name / "hart.txt"] == "1"
    assert rents(done)[two_of_a_name / "old" / "hart.txt"] == "900.00 GBP"


def test_a_name_of_several_files_is_refused_before_anything_is_asked(run, two_of_a_name, there):
    how = ("--server", there.url, "--together", 1)
    done = run("table", two_of_a_name, *COLUMNS[:2], "--set", "hart.txt:rent=1", *how)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"{two_of_a_name}/hart.txt, {two_of_a_name}/old/hart.txt" in done.stderr
    assert there.asked == []


def test_a_spreadsheet_gets_values_and_never_a_formula(table, tmp_path):
    printed = list(csv.reader(io.StringIO(table(*COLUMNS).stdout)))
    assert printed[0] == ["document", "rent", "begin", "pets"]
    assert ["'=1+1.txt", "1105.50 EUR", "2026-05-01", "yes"] in printed
    table(*COLUMNS, "-o", tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes().startswith(b"\xef\xbb\xbfdocument,rent")
    table(*COLUMNS, "-o", tmp_path / "t.xlsx")
    book = load_workbook(tmp_path / "t.xlsx")
    sheet, sources = book["Table"], book["Sources"]
    name, rent, begin, pets = sheet[2]
    assert (name.value, name.data_type) == ("=1+1.txt", "s")
    assert (rent.value, rent.number_format) == (1105.5, '#,##0.00 "EUR"')
    assert (begin.value.date().isoformat(), pets.value) == ("2026-05-01", "yes")
    assert "The rent is EUR 1,105.50 a month." in rent.comment.text
    assert "spring" in sheet[3][2].comment.text
    assert sheet[3][2].value is None
    assert sources.max_row == 10


def test_the_page_shows_the_sentence_of_a_cell_and_runs_nothing_of_the_document(table, tmp_path, leases):
    evil = '<script>alert(1)</script> "x'
    (leases / "evil.txt").write_text(f"The rent is {evil} EUR 5 a month.\n")
    table(*COLUMNS, "-o", tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert 'data-quote="The rent is EUR 1,105.50 a month.' in page
    assert "unsure: spring" in page
    assert "<script>alert" not in page
    assert page.count("<script>") == 1


def test_lines_of_json_hold_the_rows(table, tmp_path):
    table(*COLUMNS, "-o", tmp_path / "t.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["=1+1.txt", "hart.txt", "silent.txt"]


def test_a_file_that_cannot_be_read_has_a_row_that_says_why(run, leases, there, tmp_path):
    (leases / "broken.pdf").write_bytes(b"%PDF-1.7\nbroken")
    how = ("--server", there.url, "--together", 1, "-o", tmp_path / "t.jsonl")
    assert run("table", leases, *COLUMNS, *how).returncode == 3
    (row,) = (r for r in map(json.loads, (tmp_path / "t.jsonl").read_text().splitlines()) if not r["cells"])
    assert row["name"] == "broken.pdf"
    assert "broken.pdf" in row["why"]


def test_the_table_is_no_document_of_itself(table, leases):
    table(*COLUMNS, "-o", leases / "t.csv")
    table(*COLUMNS, "-o", leases / "t.csv")
    assert len((leases / "t.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--ask", "a", "-o", "t.doc"),
        ("--ask", "a", "-o", "none/t.csv"),
        ("--ask", "a", "--set", "x"),
        ("--ask", "("),
    ],
)
def test_mistakes_cost_a_line(run, leases, there, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    done = run("table", leases, *arguments, "--server", there.url)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert there.asked == []


def test_a_stopped_run_replaces_no_complete_table_and_begins_a_new_one(tmp_path):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("complete\n")
    for file in (old, new):
        TableFile(file, [], dict).save([], complete=False)
    assert old.read_text() == "complete\n"
    assert new.read_text() == "\ufeffdocument\n"
    TableFile(old, [], dict).save([], complete=True)
    assert old.read_text() == "\ufeffdocument\n"


def test_a_full_disk_leaves_the_table_before(tmp_path, monkeypatch):
    file = tmp_path / "t.csv"
    file.write_text("before")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, FORMATS[".csv"]([], []))
    assert file.read_text() == "before"
