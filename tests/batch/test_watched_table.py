"""``table --watch``, the real command: files come, change, move and go, it is killed, corrected and interrupted."""

import json
import signal
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from fake_server import fake_server
from watched_tables import COLUMNS, LIMIT, answer_about_leases, lease, watched_table

from localctx.batch.table.cells import AnswerCell, AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.standing_table import StandingTable, common_folder
from localctx.batch.table.table_file import TableFile
from localctx.store.process_locks import the_table_writer
from localctx.store.store import Store


@pytest.fixture
def server():
    with fake_server() as server:
        server.always = answer_about_leases
        yield server


@pytest.fixture
def how(server) -> tuple:
    return "--server", server.url, "--together", 1


@pytest.fixture
def folder(home, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LOCALCTX_EMBEDDER", "none")
    (tmp_path / "leases").mkdir()
    return tmp_path / "leases"


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "out.csv"


@pytest.fixture
def anew(run, tmp_path, folder, monkeypatch):
    """The bytes of a table that is made from nothing."""

    def anew(*how: object) -> bytes:
        with monkeypatch.context() as patch:
            patch.setenv("LOCALCTX_HOME", str(tmp_path / "other home"))
            done = run("table", folder, *COLUMNS, "-o", tmp_path / "anew.csv", *how)
        assert done.returncode in (0, 3), done.stderr
        return (tmp_path / "anew.csv").read_bytes()

    return anew


def wait_until_recorded(store: Store, out: Path, path: Path, there: bool = True) -> None:
    """Wait until the process has recorded that it reported the row of a document, or its end."""
    end = time.monotonic() + LIMIT
    while (str(path) in store.results.written_rows(str(out))) is not there:
        assert time.monotonic() < end
        time.sleep(0.02)


# The command


@pytest.mark.slow
def test_files_come_change_move_and_go(folder, out, how, server, anew):
    lease(folder, "a.txt"), lease(folder, "b.txt", "EUR 900")
    with watched_table(folder, out, *how) as table:
        added = table.wait_for(("added", "a.txt"), ("added", "b.txt"))
        assert [cell["shown"] for cell in added[0]["cells"]] == ["1200.00 EUR", "2026-05-04"]
        lease(folder, "a.txt", "EUR 1,300")
        (changed,) = table.wait_for(("changed", "a.txt"))
        assert (changed["before"]["shown"], changed["cells"][0]["shown"]) == ("1200.00 EUR", "1300.00 EUR")
        asked = len(server.asked)
        (folder / "b.txt").rename(folder / "c.txt")
        (renamed,) = table.wait_for(("renamed", "c.txt"))
        assert renamed["why"] == str(folder / "b.txt")
        assert len(server.asked) == asked, "a renamed file costs nothing"
        (folder / "d.pdf").write_bytes(b"%PDF-1.7\nbroken")
        lease(folder, "old/a.txt", "EUR 700")
        failed, _ = table.wait_for(("failed", "d.pdf"), ("added", "a.txt"))
        assert "d.pdf is a damaged PDF" in failed["why"]
        (folder / "c.txt").unlink()
        table.wait_for(("removed", "c.txt"))
        table.process.send_signal(signal.SIGINT)
        assert table.process.wait(LIMIT) == 130
        assert "stopped; the answers are kept" in table.process.stderr.read()
    assert out.read_bytes() == anew(*how)


@pytest.mark.slow
def test_a_killed_process_asks_nothing_again_and_makes_the_same_table(store, folder, out, how, server, anew):
    for i in range(8):
        lease(folder, f"{i}.txt", f"EUR {i + 1},000", number=i)
    reported, reached, limits = set[str](), threading.Event(), [3, 8, 13]

    def answer_and_count(handler) -> None:
        answer_about_leases(handler)
        if limits and len(server.asked) >= limits[0]:
            reached.set()

    server.always = answer_and_count
    while limits:
        with watched_table(folder, out, *how) as table:
            assert reached.wait(LIMIT)
            table.process.send_signal(signal.SIGKILL)
            table.process.wait()
            limits.pop(0), reached.clear()
            lease(folder, "0.txt", f"EUR {len(limits)},500")
            reported |= {Path(change["path"]).name for change in table.so_far()}
    with watched_table(folder, out, *how) as table:
        table.wait_for(*{("added", f"{i}.txt") for i in range(8) if f"{i}.txt" not in reported})
        assert len(server.asked) <= 8 * 2 + 3 * 2 + 3, "each answer, the changed file, and what was cut short"
        (folder / "7.txt").unlink()
        table.wait_for(("removed", "7.txt"))
        wait_until_recorded(store, out, folder / "7.txt", there=False)
    assert out.read_bytes() == anew(*how)
    with watched_table(folder, out, *how) as table:
        lease(folder, "9.txt")
        changes = table.wait_for(("added", "9.txt"))
        assert len(changes) == 1, "nothing is reported again"


@pytest.mark.slow
def test_corrections_by_another_command_stay(store, folder, out, how, run):
    lease(folder, "a.txt"), lease(folder, "old/a.txt", "EUR 700")
    with watched_table(folder, out, *how) as table:
        table.wait_for(("added", "a.txt"))
        done = run("table", folder, *COLUMNS, "--set", "old/a.txt:Rent=710 EUR", "-o", out, *how)
        assert done.returncode == 0, done.stderr
        *_, change = table.wait_for(("changed", "a.txt"))
        assert (change["path"], change["cells"][0]["state"]) == (str(folder / "old" / "a.txt"), "corrected")
        lease(folder, "b.txt", number=1)
        table.wait_for(("added", "b.txt"))
        assert "a.txt,710 EUR,2026-05-04" in out.read_text().splitlines()
        wait_until_recorded(store, out, folder / "b.txt")
    with watched_table(folder, out, *how, "--set", "b.txt:begin=soon") as table:
        (change,) = table.wait_for(("changed", "b.txt"))
        assert change["cells"][0]["shown"] == "soon"
    assert "a.txt,710 EUR,2026-05-04" in out.read_text().splitlines()


@pytest.mark.slow
def test_this_machines_model_keeps_a_table_too(folder, out, tiny_model, anew, monkeypatch):
    monkeypatch.setenv("LOCALCTX_MODEL", str(tiny_model))
    lease(folder, "a.txt")
    how = ("--max-tokens", 8)
    with watched_table(folder, out, *how) as table:
        table.wait_for(("added", "a.txt"))
        lease(folder, "b.txt", "EUR 900")
        table.wait_for(("added", "b.txt"))
        (folder / "a.txt").rename(folder / "c.txt")
        table.wait_for(("renamed", "c.txt"))
    assert out.read_bytes() == anew(*how)


def test_a_second_process_is_refused(folder, out, how, home, run):
    with the_table_writer(home, out.resolve()) as alone:
        assert alone
        done = run("table", folder, *COLUMNS, "-o", out, "--watch", *how)
    assert done.returncode == 2
    assert "another localctx keeps" in done.stderr
    assert "choose another file with -o" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("leases",), "name it with -o"),
        (("leases/a.txt", "-o", "out.csv"), "leases/a.txt is not a folder"),
        (("leases", "-o", "out.csv", "--workers", "auto"), "leave --workers"),
        (("leases", "-o", "out.csv", "--set", "b.txt:rent=1"), "is not one of the documents"),
    ],
)
def test_mistakes_are_one_line(folder, run, tmp_path, monkeypatch, arguments, problem):
    monkeypatch.chdir(tmp_path)
    lease(folder, "a.txt")
    done = run("table", *arguments, *COLUMNS, "--watch")
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


# The table


class Standing:
    """A standing table with a column, whose documents are read by hand."""

    def __init__(self, store: Store, folder: Path, out: Path, name: str = "rent") -> None:
        self.rows, self.now = TableFile(out, [TableColumn(name)], dict), 0
        self.table = StandingTable(self.rows, [str(folder)], store, settle=1)

    def read(self, *changing: str) -> list[str]:
        """Read the files that have settled after two scans; return the lines of the changes."""
        for _ in range(2):
            jobs = self.table.scan(self.now)
            self.now += 1
        for job in jobs:
            text = Path(job.path).read_text()
            cell = AnswerCell(self.rows.columns[0].name, "found", text, text)
            self.rows.put(AnswerRow(job.path, Path(job.path).name, text, (cell,)))
            self.table.folders.note_read(job.path)
        return [change.line(str(Path(jobs[0].path).parent) if jobs else "") for change in self.table.update()]


def test_changes_while_no_process_ran_are_reported_by_the_next(store, folder, out):
    (folder / "a.txt").write_text("1"), (folder / "b.txt").write_text("2")
    assert Standing(store, folder, out).read() == ["a.txt: added, rent 1", "b.txt: added, rent 2"]
    assert Standing(store, folder, out).read() == []
    (folder / "a.txt").write_text("11"), (folder / "b.txt").rename(folder / "c.txt")
    assert Standing(store, folder, out).read() == ["a.txt: rent 1 -> 11", "c.txt: renamed from b.txt"]
    assert Standing(store, folder, out, "price").read() == ["a.txt: price nothing -> 11", "c.txt: price nothing -> 2"]
    with closing(Store(store.home)) as other:
        other.db.execute("UPDATE written SET holds = '{' WHERE file LIKE '%a.txt'")
    assert Standing(store, folder, out).read() == ["a.txt: added, rent 11", "c.txt: added, rent 2"]


def test_changes_are_reported_again_if_they_were_not_taken_or_not_written(store, folder, out, monkeypatch):
    (folder / "a.txt").write_text("1")
    standing = Standing(store, folder, out)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            standing.read()
    changes = standing.table.update()
    assert next(changes).news == "added"
    changes.close()  # as after a kill
    assert out.read_text() == "\ufeffdocument,rent\na.txt,1\n"
    assert [change.news for change in standing.table.update()] == ["added"]
    assert [change.news for change in standing.table.update()] == []


def test_a_row_stays_until_its_file_is_read(store, folder, out):
    (folder / "a.txt").write_text("1"), (folder / "b.txt").write_text("2")
    Standing(store, folder, out).read()
    standing = Standing(store, folder, out)
    for now, text in enumerate(("22", "222", "2222")):  # still written
        (folder / "b.txt").write_text(text)
        jobs = standing.table.scan(now)
    assert [Path(job.path).name for job in jobs] == ["a.txt"]
    assert list(standing.table.update()) == []
    assert out.read_text() == "\ufeffdocument,rent\na.txt,1\nb.txt,2\n"


def test_two_standing_tables_in_their_folder_do_not_read_each_other(store, folder):
    (folder / "a.txt").write_text("1")
    for name in ("rents.csv", "dates.csv"):
        Standing(store, folder, folder / name).read()
    assert Standing(store, folder, folder / "rents.csv").read() == []
    assert len((folder / "dates.csv").read_text().splitlines()) == 2


def test_a_table_that_waits_is_not_written(store, folder, out):
    out.write_text("complete")
    (folder / "a.txt").write_text("1")
    standing = Standing(store, folder, out)
    standing.table.scan(0)
    assert list(standing.table.update()) == []
    assert out.read_text() == "complete"
    assert not standing.table.is_complete


def test_files_are_named_below_what_all_folders_have_in_common(tmp_path):
    assert common_folder([str(tmp_path / "a"), str(tmp_path / "b" / "c")]) == str(tmp_path)
    assert common_folder([str(tmp_path / "a")]) == str(tmp_path / "a")


def test_rows_are_json_in_the_store(store, folder, out):
    (folder / "a.txt").write_text("1")
    Standing(store, folder, out).read()
    recorded = store.results.written_rows(str(out))
    assert json.loads(json.dumps(recorded))[str(folder / "a.txt")]["cells"]["rent"]["shown"] == "1"
    store.results.remove_document("1")
    assert store.results.written_rows(str(out)) == {}
