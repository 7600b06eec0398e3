"""Watched folders: files become ready before anybody asks, give way to questions, and are read once, come what may."""

import importlib
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from ask_in_process import PLAIN, session, start
from clock import seconds_since

from localctx.engine.events import Token
from localctx.idle import MachineReading
from localctx.serving.folder_watcher import ELSEWHERE, FolderWatcher
from localctx.serving.worker import EngineWorker
from localctx.settings import load_settings
from localctx.store.process_locks import at_work, is_at_work, the_watcher
from localctx.store.store import Store

pytestmark = pytest.mark.slow

IDLE = MachineReading(mains=True, load=0.0)


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


@pytest.fixture
def settings(home, sharp_model):
    return load_settings(home=home, model=str(sharp_model), **PLAIN)


class Watching:
    """A watcher of a folder, the news that it told, and the machine that it sees."""

    def __init__(self, settings, folder, stack: ExitStack) -> None:
        self.news, self.machine, self.settings = [], IDLE, settings
        with closing(Store(settings.home)) as store:
            store.watch_list.add(str(folder))
        self.library, self.answers = (
            stack.enter_context(closing(EngineWorker(settings, name, 4))) for name in ("library", "answers")
        )
        self.watcher = stack.enter_context(
            closing(
                FolderWatcher(
                    lambda: self.settings,
                    self.library,
                    self.answers,
                    self.news.append,
                    read_machine=lambda: self.machine,
                    settle=0.2,
                    quiet=0.2,
                )
            )
        )
        self.watcher.start()

    def wait(self, until, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, (self.doing, self.watcher.status, self.news)
            time.sleep(0.02)

    def wait_for(self, news: str, count: int = 1) -> list:
        self.wait(lambda: len(self.of(news)) >= count)
        return self.of(news)

    def wait_until_done(self) -> None:
        self.wait(lambda: self.watcher.done and not self.watcher._rescan)

    def of(self, news: str) -> list:
        return [event for event in self.news if event.news == news]

    @property
    def doing(self) -> str:
        return self.watcher.status.doing

    @property
    def reading(self):
        """The stream of the document that is being read ahead, if one is."""
        return next((stream for stream in self.answers._streams() if stream.yielding), None)


@contextmanager
def watching(settings, folder):
    with ExitStack() as stack:
        yield Watching(settings, folder, stack)


def write(folder: Path, name: str, rivers: int = 26, first: int = 0) -> Path:
    path = folder / name
    path.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(first, first + rivers)))
    return path


def asking(document):
    def job(session):
        yield from session.workflows.questions.ask([str(document)], "How long is river 3?", persist=False)

    return job


def first_tokens(w: Watching, document: Path) -> Iterator[float]:
    """Seconds until the first token of questions about a document, again and again."""
    while True:
        started = time.monotonic()
        events = iter(w.answers.submit(asking(document)))
        next(event for event in events if isinstance(event, Token))
        yield seconds_since(started)
        list(events)


def count_calls(monkeypatch, module: str, name: str) -> list:
    """The arguments of the calls of a function from now on."""
    module, calls = importlib.import_module(module), []
    plain = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given, **how: calls.append(given) or plain(*given, **how))
    return calls


def reused(settings, path: Path) -> int:
    """The tokens that a question about a file need not read."""
    with session(settings.home, Path(settings.model)) as s:
        *_, done = s.stream("How long is river 3?", [str(path)])
        return done.report.tokens.reused


def test_twenty_files_are_ready_without_a_question(settings, folder):
    with watching(settings, folder) as w:
        paths = [write(folder, f"{i}.txt", first=i) for i in range(20)]
        w.wait_for("ready", 20)
        w.wait_until_done()
        (status,) = w.watcher.status.folders
        assert (status.ready, status.waiting, status.failed) == (20, 0, {})
    assert reused(settings, paths[7]) > 640  # the document but for its last, open page's last tokens


def test_passages_are_read_where_answers_come_from_passages(settings, folder):
    settings = replace(settings, mode="retrieve")
    path = write(folder, "long.txt", 200)
    with watching(settings, folder) as w:
        (ready,) = w.wait_for("ready")
        assert ready.tokens > 4000
    with session(settings.home, Path(settings.model), mode="retrieve") as s:
        *_, done = s.stream("How long is river 130?", [str(path)])
        ranking = done.report.to_json()["ranking"]
        assert ranking["passages"] > 1
        assert ranking["reused"] > 0.7 * ranking["tokens"]


def test_a_question_interrupts_reading_and_what_was_read_stays(settings, folder, document):
    settings = replace(settings, chunk=512)
    with watching(settings, folder) as w:
        (alone,) = itertools.islice(first_tokens(w, document), 1, 2)  # its own time, with the model there
        write(folder, "long.txt", 130 * 4)  # many seconds of reading
        w.wait(lambda: w.reading)
        reading = w.reading
        (beside,) = itertools.islice(first_tokens(w, document), 1)
        assert reading.cancelled.is_set()
        assert beside < alone + 1
        assert not w.of("ready")
        w.wait_for("ready")
    with closing(Store(settings.home)) as store:
        (file,) = store.watch_list.files()
        assert store.caches.usage(file.document)[1] > 10_000


def test_nothing_is_read_on_battery_or_beside_other_programs_but_all_is_searchable(settings, folder):
    with watching(settings, folder) as w:
        w.machine = MachineReading(mains=False, load=0.0)
        write(folder, "one.txt")
        w.wait(lambda: "battery" in w.doing)
        assert [event.news for event in w.news] == ["found"]
        w.machine = MachineReading(mains=True, load=0.8)
        w.wait(lambda: "other programs use 80%" in w.doing)
        (status,) = w.watcher.status.folders
        assert (status.ready, status.waiting) == (0, 1)
        w.machine = IDLE
        w.wait_for("ready")
    with session(settings.home, Path(settings.model)) as s, s.workflows.library() as library:
        assert library.search("river 7")[0].passages


def test_reading_stops_when_other_programs_want_the_processor(settings, folder):
    with watching(settings, folder) as w:
        write(folder, "long.txt", 130 * 4)
        w.wait(lambda: w.reading)
        reading, w.machine = w.reading, MachineReading(mains=True, load=0.5)
        w.wait(reading.cancelled.is_set)
        w.wait(lambda: "other programs" in w.doing)
        assert not w.of("ready")


def test_a_file_that_is_moved_renamed_or_copied_is_not_parsed_nor_read_again(settings, folder, monkeypatch):
    with watching(settings, folder) as w:
        path = write(folder, "one.txt")
        w.wait_for("ready")
        w.wait_until_done()
    parsed = count_calls(monkeypatch, "localctx.library.add", "read_document")
    read = count_calls(monkeypatch, "localctx.workflows.ahead.read_ahead", "prefill_request")
    with watching(settings, folder) as w:
        (folder / "below").mkdir()
        renamed = path.rename(folder / "below" / "two.txt")
        (moved,) = w.wait_for("moved")
        assert (moved.path, moved.why) == (str(renamed), str(path))
        shutil.copy(renamed, folder / "three.txt")
        w.wait_for("copy")
        w.wait_until_done()
        (status,) = w.watcher.status.folders
        assert (status.ready, status.waiting, status.deleted) == (2, 0, 0)
    assert (parsed, read) == ([], [])
    with closing(Store(settings.home)) as store:
        (row,) = store.documents.all()
        assert (row.name, row.path) == ("two.txt", str(renamed))
    assert reused(settings, renamed) > 640


def test_the_copy_of_a_file_that_is_changed_keeps_its_document(settings, folder):
    with watching(settings, folder) as w:
        path = write(folder, "one.txt")
        w.wait_for("ready")
        copy = shutil.copy(path, folder / "copy.txt")
        w.wait_for("copy")
        write(folder, "one.txt", rivers=30)
        w.wait_for("ready", 2)
        w.wait_until_done()
    with closing(Store(settings.home)) as store:
        assert {row.path: row.superseded for row in store.documents.all()} == {str(path): None, str(copy): None}


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_file_whose_name_is_not_utf_8_is_read_and_moves_as_others_do(settings, folder):
    strange = Path(os.fsdecode(os.fsencode(folder) + b"/r\xff.txt"))
    with watching(settings, folder) as w:
        write(folder, "one.txt").rename(strange)
        (ready,) = w.wait_for("ready")
        assert ready.path == f"{folder}/r\\xff.txt"
        w.wait_until_done()
        (status,) = w.watcher.status.folders
        assert (status.ready, status.waiting, status.failed) == (1, 0, {})
        strange.rename(os.fsdecode(os.fsencode(folder) + b"/s\xfe.txt"))
        w.wait_for("moved")
        w.wait_until_done()
    with closing(Store(settings.home)) as store:
        (document,) = store.documents.all()
        assert (document.name, document.path) == ("s\ufffd.txt", f"{folder}/s\\xfe.txt")


def test_a_deleted_file_leaves_its_document_and_says_so(settings, folder):
    with watching(settings, folder) as w:
        path = write(folder, "one.txt")
        w.wait_for("ready")
        path.unlink()
        (deleted,) = w.wait_for("deleted")
        assert str(deleted) == f"{path}: deleted; its document stays in the library"
        w.wait_until_done()
        (status,) = w.watcher.status.folders
        assert (status.ready, status.deleted) == (0, 1)
        with closing(Store(settings.home)) as store:
            assert store.documents.has(deleted.document)
        write(folder, "one.txt")
        w.wait(lambda: w.watcher.status.folders[0].ready == 1)
        assert len(w.of("ready")) == 1


def test_a_folder_that_is_not_there_deletes_nothing(settings, folder):
    with watching(settings, folder) as w:
        write(folder, "one.txt")
        w.wait_for("ready")
        away = folder.rename(folder.with_name("away"))
        w.wait(lambda: w.watcher.status.folders[0].missing)
        away.rename(folder)
        w.wait(lambda: not w.watcher.status.folders[0].missing)
        w.wait_until_done()
        assert not w.of("deleted")
        assert w.watcher.status.folders[0].ready == 1


def test_a_file_that_is_still_written_waits(settings, folder):
    with watching(settings, folder) as w, (folder / "slow.txt").open("w") as file:
        for i in range(12):
            print(f"River {i} is {i * 37} km long.", file=file, flush=True)
            time.sleep(0.1)
            assert not w.news
        (found,) = w.wait_for("found")
    assert found.characters == sum(len(f"River {i} is {i * 37} km long.\n") for i in range(12))


def test_a_changed_file_is_a_new_version_and_is_read_too(settings, folder):
    with watching(settings, folder) as w:
        path = write(folder, "one.txt")
        w.wait_for("ready")
        write(folder, "one.txt", first=5)
        w.wait_for("ready", 2)
    with closing(Store(settings.home)) as store:
        assert [bool(row.superseded) for row in store.documents.all()].count(True) == 1
    assert reused(settings, path) > 640


def test_a_file_that_cannot_be_read_fails_alone_and_once(settings, folder):
    with watching(settings, folder) as w:
        (folder / "bad.txt").write_bytes(b"\x89PNG\r\n\x1a\n")
        write(folder, "good.txt")
        w.wait_for("ready")
        w.wait_until_done()
        (failed,) = w.of("failed")
        assert "is a picture" in failed.why
        (status,) = w.watcher.status.folders
        assert (status.ready, list(status.failed)) == (1, [str(folder / "bad.txt")])
        write(folder, "bad.txt", first=5)
        w.wait_for("ready", 2)
        assert not w.watcher.status.folders[0].failed


def test_a_document_that_the_user_deletes_does_not_come_back(settings, folder):
    with watching(settings, folder) as w:
        write(folder, "one.txt")
        (ready,) = w.wait_for("ready")
        with closing(Store(settings.home)) as store:
            store.remove_document(ready.document)
        w.watcher.wake()
        w.wait_until_done()
        w.wait(lambda: w.watcher.status.folders[0].ready == 0)
        assert len(w.news) == 2


def test_reading_ahead_deletes_nothing_to_make_room(settings, folder, document):
    with session(settings.home, Path(settings.model)) as s:
        *_, done = s.prepare(str(document))
        kept = done.report.kept["bytes"]
    with watching(replace(settings, disk=str(kept + 10_000)), folder) as w:
        write(folder, "long.txt", 300)
        (found,) = w.wait_for("searchable")
        assert "disk budget is used up" in found.why
        assert "disk budget is used up" in str(found)
        w.wait_until_done()
    assert reused(settings, document) > 640


def test_the_last_modified_is_read_first(settings, folder):
    paths = [write(folder, f"{i}.txt", first=i) for i in range(3)]
    for path, when in zip(paths, (200, 300, 100), strict=True):
        os.utime(path, (when, when))
    with watching(settings, folder) as w:
        assert [Path(event.path).name for event in w.wait_for("ready", 3)] == ["1.txt", "0.txt", "2.txt"]


def test_one_process_watches_at_a_time_and_the_next_takes_over(settings, folder):
    settings.home.mkdir()
    with the_watcher(settings.home) as alone, watching(settings, folder) as w:
        assert alone
        write(folder, "one.txt")
        w.wait(lambda: w.doing == ELSEWHERE)
        assert w.news == []
    with watching(settings, folder) as w:
        w.wait_for("ready")


def test_work_of_another_process_is_seen_until_it_ends_even_if_killed(home):
    home.mkdir()
    assert not is_at_work(home)
    process, said = start(hold, home)
    assert said.recv() == "working"
    assert is_at_work(home)
    process.kill()
    process.join()
    assert not is_at_work(home)


def test_a_question_that_is_asked_elsewhere_is_waited_for(settings, folder):
    with watching(settings, folder) as w:
        w.wait(lambda: (settings.home / "at-work.lock").exists())
        with at_work(settings.home):
            write(folder, "one.txt")
            w.wait(lambda: w.doing == "waiting: a question is being answered")
            assert w.news == []
        w.wait_for("found")
        with at_work(settings.home):  # begun elsewhere while it is read here, or before
            w.wait(lambda: w.of("ready") or w.doing == "waiting: a question is being answered")
        w.wait_for("ready")


def test_a_session_says_that_it_works_while_it_answers(settings, document):
    settings.home.mkdir()
    assert not is_at_work(settings.home)
    with session(settings.home, Path(settings.model)) as s:
        events = s.stream("How long is river 3?", [str(document)])
        next(events)
        assert is_at_work(settings.home)
        list(events)
        assert not is_at_work(settings.home)


def hold(say, home) -> None:
    with at_work(home):
        say("working")
        time.sleep(600)


def test_a_killed_watcher_loses_nothing(settings, folder):
    from localctx.store.documents import text_id

    paths = [write(folder, f"{i}.txt", 80, first=i) for i in range(6)]
    for kill_after in (1, 3):
        process, said = start(watch_until_killed, settings, folder)
        for _ in range(kill_after):
            said.recv()
        process.kill()
        process.join()
    with watching(settings, folder) as w:
        w.wait(lambda: w.watcher.status.folders and w.watcher.status.folders[0].ready == 6)
        assert 0 < len(w.of("ready")) < 6  # what was ready is not read again
    with closing(Store(settings.home)) as store:
        assert store.verify().intact
        assert {row.id for row in store.documents.all()} == {text_id(path.read_text()) for path in paths}
    assert reused(settings, paths[3]) > 2000


def watch_until_killed(say, settings, folder) -> None:
    with watching(settings, folder) as w:
        told = 0
        while True:
            if len(w.of("ready")) > told:
                told += 1
                say("ready")
            time.sleep(0.01)
