"""Downloads run in the server, one after another; each can be stopped and goes on; a failure is one line."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clock import wait_until

from localctx.errors import ModelError
from localctx.ui.models.model_rows import progress
from localctx.ui.render import duration
from localctx.ui.running.model_downloads import ModelDownload, ModelDownloads

WAIT = 30  # seconds


class Sources:
    """Stands for the function that downloads: ``go`` lets it end, ``seen`` are the models that it was called with."""

    def __init__(self) -> None:
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.seen: list[str] = []
        self.error: Exception | None = None

    def pull(self, name: str, models: Path, report: Callable[[str, int, int], None]) -> None:
        self.seen.append(name)
        report("fetching", 0, 1000)
        self.begun.release()
        while not self.go.wait(0.01):
            report("fetching", 500, 1000)
        if self.error:
            raise self.error


@pytest.fixture
def sources() -> Sources:
    return Sources()


@pytest.fixture
def downloads(sources) -> Iterator[ModelDownloads]:
    downloads = ModelDownloads(sources.pull)
    yield downloads
    downloads.close()


def named(downloads: ModelDownloads, name: str) -> ModelDownload:
    """Returns the last download of a model."""
    return next(download for download in downloads.all if download.name == name)


def test_one_waits_for_the_other_and_each_is_begun_once(downloads, sources, tmp_path):
    for name in ("one", "two", "one"):
        downloads.start(name, tmp_path)
    assert sources.begun.acquire(timeout=WAIT)
    wait_until(lambda: named(downloads, "one").done == 500)
    assert [(d.name, d.state) for d in downloads.all] == [("one", "running"), ("two", "waiting")]
    assert "Downloading one: 500 B of 1000 B" in progress(named(downloads, "one"))
    assert "two waits for the other download" in progress(named(downloads, "two"))
    sources.go.set()
    wait_until(lambda: not downloads.busy)
    assert sources.seen == ["one", "two"]
    assert {d.state for d in downloads.all} == {"done"}
    assert "one is downloaded and checked" in progress(named(downloads, "one"))


def test_one_that_is_stopped_is_begun_again_when_asked(downloads, sources, tmp_path):
    downloads.start("one", tmp_path)
    assert sources.begun.acquire(timeout=WAIT)
    downloads.cancel("one")
    wait_until(lambda: not downloads.busy)
    assert named(downloads, "one").state == "cancelled"
    assert "the next try continues it" in progress(named(downloads, "one"))
    sources.go.set()
    downloads.start("one", tmp_path)
    wait_until(lambda: named(downloads, "one").state == "done")
    assert sources.seen == ["one", "one"]
    downloads.forget("one")
    assert downloads.all == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModelError("the disk is too full", "free some space"), "free some space"),
        (RuntimeError("<b>"), "something in localctx failed"),
    ],
)
def test_a_failure_is_one_line_and_the_next_download_runs(downloads, sources, tmp_path, error, said):
    sources.error = error
    sources.go.set()
    downloads.start("one", tmp_path)
    wait_until(lambda: not downloads.busy)
    line = progress(named(downloads, "one"))
    assert named(downloads, "one").state == "failed"
    assert said in line
    assert "<b>" not in line
    assert "\n" not in line
    sources.error = None
    downloads.start("one", tmp_path)
    wait_until(lambda: named(downloads, "one").state == "done")


def test_a_window_that_is_closed_ends_its_downloads(sources, tmp_path):
    downloads = ModelDownloads(sources.pull)
    downloads.start("one", tmp_path)
    downloads.start("two", tmp_path)
    assert sources.begun.acquire(timeout=WAIT)
    downloads.close()
    assert {d.state for d in downloads.all} == {"cancelled"}
    assert sources.seen == ["one"]
    downloads.start("three", tmp_path)
    assert [d.name for d in downloads.all] == ["one", "two"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(14.4, "14 s"), (89, "89 s"), (95, "2 min"), (170, "3 min"), (7300, "2 h")]
)
def test_times_are_told_roughly(seconds, said):
    assert duration(seconds) == said
