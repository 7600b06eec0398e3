"""The files of a standing table: which are read, in which order, and when one counts as gone. No test waits: the time
is a number.
"""

import os
from pathlib import Path

import pytest

from localctx.batch.jobs import plan_jobs
from localctx.batch.table.table_folders import TableFolders
from localctx.library.folders.folder_scan import GONE


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "leases" / "old").mkdir(parents=True)
    for name in ("b.txt", "old/a.txt", "z.txt", "old.txt"):
        (tmp_path / "leases" / name).write_text("text")
    return tmp_path / "leases"


@pytest.fixture
def folders(folder) -> TableFolders:
    return TableFolders([str(folder)], lambda path: path.name == "out.csv", settle=1)


def names(paths) -> list[str]:
    return [Path(path).name for path in paths]


def read(folders: TableFolders, now: float) -> list[str]:
    """The names of the files that are read at this time."""
    jobs = folders.scan(now)
    for job in jobs:
        folders.note_read(job.path)
    return names(job.path for job in jobs)


def test_files_are_read_once_in_the_order_of_a_plain_table(folders, folder):
    assert read(folders, 0) == []
    assert folders.is_beginning
    planned = [job.path for job in plan_jobs([str(folder)], lambda: b"", lambda *why: None)]
    assert read(folders, 1) == names(planned)
    assert not folders.is_beginning
    assert folders.in_order() == planned
    assert read(folders, 2) == []


def test_a_file_that_is_still_written_waits(folders, folder):
    read(folders, 0), read(folders, 1)
    for now in (2, 2.5, 3):
        with (folder / "new.txt").open("a") as file:
            file.write("more ")
        assert read(folders, now) == []
        assert folders.is_settling
    assert read(folders, 4) == ["new.txt"]


def test_results_and_unfinished_files_are_no_documents(folders, folder):
    for name in ("out.csv", "x.txt.part", "~$b.docx", ".hidden"):
        (folder / name).write_text("text")
    read(folders, 0)
    assert not {"out.csv", "x.txt.part", "~$b.docx", ".hidden"} & {*read(folders, 1)}


def test_a_changed_file_is_read_again(folders, folder):
    read(folders, 0), read(folders, 1)
    (folder / "b.txt").write_text("another text")
    read(folders, 2)
    assert read(folders, 3) == ["b.txt"]


def test_a_file_counts_as_gone_after_a_while_and_may_come_back(folders, folder):
    read(folders, 0), read(folders, 1)
    about = (folder / "b.txt").stat()
    (folder / "b.txt").unlink()
    read(folders, 2)
    assert names(folders.missing) == ["b.txt"]
    assert folders.gone == []
    (folder / "b.txt").write_text("text")
    os.utime(folder / "b.txt", ns=(about.st_atime_ns, about.st_mtime_ns))
    read(folders, 3)
    assert folders.missing == []
    (folder / "b.txt").unlink()
    read(folders, 4), read(folders, 4 + GONE)
    assert names(folders.gone) == ["b.txt"]
    folders.forget(folders.gone[0])
    assert "b.txt" not in names(folders.in_order())


def test_a_folder_that_is_not_there_loses_nothing(folders, folder):
    read(folders, 0), read(folders, 1)
    folder.rename(folder.with_name("away"))
    read(folders, 2), read(folders, 100)
    assert folders.there == []
    assert len(folders.in_order()) == 4
    assert (folders.missing, folders.gone) == ([], [])


def test_a_file_that_changed_while_it_was_read_is_noticed(folders, folder):
    read(folders, 0), read(folders, 1)
    path = str(folder / "b.txt")
    assert folders.is_unchanged(path)
    (folder / "b.txt").write_text("another text")
    assert not folders.is_unchanged(path)
