"""``library watch``: watches folders and reads their files before anyone asks about them."""

import queue
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, model_options, open_store, quiet_option, settings_from
from localctx.cli.printing import print_error, print_line, print_text
from localctx.cli.sections import SectionedCommand, setting_option
from localctx.errors import INTERRUPTED, UsageError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.serving.folder_watcher import FolderWatcher
    from localctx.serving.watch_status import FileEvent
    from localctx.settings import Settings

POLL = 0.2  # seconds between checks of the watcher's status
SOME_FAILED = 3


@click.command(cls=SectionedCommand)
@click.argument("folders", nargs=-1, metavar="[FOLDER]...")
@click.option("--list", "listing", is_flag=True, help="List the watched folders, and end.")
@click.option("--remove", is_flag=True, help="Watch FOLDERs no longer, and end. Their documents stay in the library.")
@click.option("--once", is_flag=True, help="Read what is there now, whether or not the machine is idle, and end.")
@setting_option("read_ahead", section="Options")
@setting_option("embedder")
@model_options
@as_json_option
@quiet_option
def watch(
    folders: tuple[str, ...], listing: bool, remove: bool, once: bool, as_json: bool, quiet: bool, **flags: Any
) -> None:
    """Watch FOLDERs, and all that were watched before: their documents are read before anybody asks.

    New and changed files are parsed and indexed as they come. While the machine is idle and on mains power, the model
    reads them too, so that the first question starts at once; a question interrupts that. Each file is a line on
    stdout when it is ready; with --json, each line is a JSON object. Ctrl-C ends it, and the window goes on with the
    same folders when it is opened.

    \b
    localctx library watch ~/Documents/contracts
    """
    from dataclasses import replace

    from localctx.cli.terminal import Terminal

    settings, paths = settings_from(flags), [_absolute(folder) for folder in folders]
    if listing:
        _list(settings, as_json)
        return
    if remove:
        _remove(paths)
        return
    _add(paths)
    if once and settings.read_ahead == "auto":
        settings = replace(settings, read_ahead="always")
    _watch(settings, Terminal(as_json, quiet), as_json, once)


def _absolute(folder: str) -> str:
    return str(Path(folder).expanduser().absolute().resolve())


def _add(paths: list[str]) -> None:
    for path in paths:
        if not Path(path).is_dir():
            raise UsageError(f"{path} is not a folder", f"add a file with: localctx library add {path}")
    with open_store() as store:
        for path in paths:
            store.watch_list.add(path)
        if not store.watch_list.folders():
            raise UsageError("no folder is watched", "name one: localctx library watch FOLDER")


def _remove(paths: list[str]) -> None:
    if not paths:
        raise UsageError("--remove needs a FOLDER", "see: localctx library watch --list")
    with open_store() as store:
        for path in paths:
            if not store.watch_list.remove(path):
                raise UsageError(f"{path} is not watched", "see: localctx library watch --list")
            print_line(f"{path} is no longer watched; its documents stay in the library")


def _list(settings: "Settings", as_json: bool) -> None:
    from localctx.cli.terminal import print_json, table
    from localctx.serving.file_pipeline import FilePipeline

    with open_store() as store:
        pipeline = FilePipeline(store, 0)
        pipeline.look()
        listed = pipeline.statuses(settings)
    if as_json:
        print_json([status.to_json() for status in listed])
    elif not listed:
        print_line("No folder is watched. Watch one with: localctx library watch FOLDER")
    else:
        rows = [
            {
                "FOLDER": status.folder.path,
                "READY": status.ready,
                "WAITING": status.waiting,
                "FAILED": len(status.failed),
                "DELETED": status.deleted,
                "NOTES": "paused" if status.folder.paused else "not there" if status.missing else "",
            }
            for status in listed
        ]
        print_text(table(rows))


def _watch(settings: "Settings", terminal: "Terminal", as_json: bool, once: bool) -> None:
    from localctx.idle import run_at_low_priority
    from localctx.store.process_locks import the_watcher

    with the_watcher(settings.home) as alone:
        pass
    if not alone:
        terminal.say("another localctx, perhaps a window, watches folders already; it reads these, too")
        return
    run_at_low_priority()
    news, failed = queue.SimpleQueue["FileEvent"](), False
    with _watcher(settings, news) as watcher:
        terminal.say("watching folders; Ctrl-C ends it" if not once else "reading the files in the folders")
        try:
            with terminal.cleared():
                for event in _events(watcher, news, terminal, once):
                    failed = failed or event.news == "failed"
                    _print(event, terminal, as_json, settings.read_ahead == "off")
        except KeyboardInterrupt:
            terminal.say("stopped; the pages that were read are kept")
            sys.exit(INTERRUPTED)
    if failed:
        sys.exit(SOME_FAILED)


@contextmanager
def _watcher(settings: "Settings", news: "queue.SimpleQueue[FileEvent]") -> "Iterator[FolderWatcher]":
    from localctx.serving.folder_watcher import FolderWatcher
    from localctx.serving.worker import EngineWorker

    with ExitStack() as stack:
        library, answers = (
            stack.enter_context(closing(EngineWorker(settings, name))) for name in ("library", "answers")
        )
        watcher = stack.enter_context(closing(FolderWatcher(lambda: settings, library, answers, news.put)))
        watcher.start()
        yield watcher


def _events(
    watcher: "FolderWatcher", news: "queue.SimpleQueue[FileEvent]", terminal: "Terminal", once: bool
) -> "Iterator[FileEvent]":
    """Yields the events of files. Between two events, shows on a terminal what the watcher is doing."""
    from localctx.engine.events import Progress

    while True:
        done = watcher.done
        try:
            yield news.get(timeout=POLL)
        except queue.Empty:
            if done and once:
                return
            if doing := watcher.status.doing:
                terminal.show(Progress(doing, 0, 0))
            else:
                terminal.clear()


def _print(event: "FileEvent", terminal: "Terminal", as_json: bool, found_is_all: bool) -> None:
    from localctx.cli.terminal import print_json

    terminal.clear()
    if as_json:
        print_json(event.to_json(), None)
    elif event.news == "failed":
        print_error(f"localctx: {event}")
    elif event.news != "found" or found_is_all:
        print_line(event)
