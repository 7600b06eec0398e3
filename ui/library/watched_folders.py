"""Builds the panel of watched folders, whose documents are read ahead. The panel shows how many files of each folder
are ready.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from localctx.serving.watch_status import FolderStatus, WatchStatus
from localctx.store.watch_list import WatchList
from localctx.ui import render
from localctx.ui.job_events import error_text
from localctx.ui.library.add_documents import absolute_path
from localctx.ui.window import EVENT_OPTIONS, AppWindow, Updates

MAX_FAILED = 20  # failed files that are listed by name
WHEN = (("When this computer is idle", "auto"), ("Always", "always"), ("Never", "off"))
_CHANGES = {"pause": WatchList.pause, "resume": WatchList.add, "stop": WatchList.remove}
_ON_CLICK = """
element.addEventListener('click', event => {
    const button = event.target.closest('button[data-folder]')
    if (button) trigger('select', { index: button.dataset.do, value: button.dataset.folder })
})
"""


class WatchedFoldersPanel:
    """The fields that watch a folder, and the list of watched folders, built inside a gr.Blocks."""

    def __init__(self, window: AppWindow) -> None:
        self._window = window

    def build(self) -> None:
        """Build the field for a folder's path, the list of folders, and the choice of when to read ahead."""
        self.path = gr.Textbox(
            "",
            label="Watch a folder",
            info="New documents in it are read before you ask",
            placeholder="~/Documents",
            elem_id="watch-path",
            max_lines=1,
            submit_btn="Watch",
        )
        self.message = gr.HTML("", elem_id="watch-message", visible=False)
        self.list = gr.HTML("", elem_id="watched", js_on_load=_ON_CLICK)
        self.when = gr.Radio(
            WHEN,
            value=self._window.settings.read_ahead,
            label="Read documents before you ask",
            elem_id="watch-when",
            visible=False,
        )

    @property
    def outputs(self) -> list[Any]:
        """The components that ``show`` updates."""
        return [self.list, self.when]

    def wire(self, refresh: Callable[[Any], Any]) -> None:
        """Connect the event handlers. ``refresh`` is called with each event that may change the library's documents."""
        self.path.submit(self._watch, self.path, [self.path, self.message, *self.outputs], **EVENT_OPTIONS)
        self.list.select(self._change, None, [self.message, *self.outputs], **EVENT_OPTIONS)
        self.when.input(self._set_when, self.when, [self.message, *self.outputs], **EVENT_OPTIONS)
        refresh(self.list.change(lambda: None, None, None, **EVENT_OPTIONS))

    def show(self) -> Updates:
        """Returns updates that show the list of folders."""
        status = self._status()
        return {
            self.list: folder_list(status) if status.folders else "",
            self.when: gr.update(visible=bool(status.folders), value=self._window.settings.read_ahead),
        }

    def _status(self) -> WatchStatus:
        """Returns the watcher's status, without folders that are no longer watched."""
        status = self._window.watcher.status
        told = {one.folder.path: one for one in status.folders}
        with self._window.store() as store:
            folders = store.watch_list.folders()
        return replace(status, folders=[replace(told.get(f.path, FolderStatus(f)), folder=f) for f in folders])

    def _watch(self, typed: str) -> Updates:
        path = Path(absolute_path(typed)).resolve()
        if not typed.strip() or not path.is_dir():
            text = f"{path} is not a folder on this computer." if typed.strip() else "Type the path of a folder first."
            return {self.path: typed, **self._shown(text)}
        return {self.path: "", **self._apply(lambda: self._change_list(WatchList.add, str(path)))}

    def _change(self, button: gr.SelectData) -> Updates:
        """Pause, resume or stop watching a folder, as the clicked button says."""
        change = _CHANGES[str(button.index)]
        return self._apply(lambda: self._change_list(change, button.value))

    def _set_when(self, when: str) -> Updates:
        return self._apply(lambda: self._window.save_settings({"read_ahead": when}))

    def _change_list(self, change: Callable[[WatchList, str], object], path: str) -> None:
        """Change the stored list of folders at the folder with this path."""
        with self._window.store() as store:
            change(store.watch_list, path)
        self._window.watcher.start()
        self._window.watcher.wake()

    def _apply(self, change: Callable[[], None]) -> Updates:
        """Make a change, and show the list of folders and the error of the change."""
        try:
            change()
        except Exception as e:
            return self._shown(error_text(e))
        return self._shown()

    def _shown(self, error: str = "") -> Updates:
        """Returns updates that show the list of folders, and the error above it if there is one."""
        return {self.message: gr.update(value=render.note(error, "error"), visible=bool(error)), **self.show()}


def folder_list(status: WatchStatus) -> str:
    """Returns the HTML of the watched folders and of the watcher's current activity."""
    doing = f'<p class="lc-doing" role="status">{render.escape(_capital(status.doing))}</p>' if status.doing else ""
    return f'<ul class="lc-folders">{"".join(map(_folder, status.folders))}</ul>{doing}'


def _folder(status: FolderStatus) -> str:
    path, paused = render.escape(status.folder.path), status.folder.paused
    name = render.escape(Path(status.folder.path).name or status.folder.path)
    toggle, verb = ("resume", "Resume") if paused else ("pause", "Pause")
    buttons = "".join(
        f'<button type="button" data-do="{what}" data-folder="{path}" aria-label="{label} {name}">{label}</button>'
        for what, label in ((toggle, verb), ("stop", "Stop watching"))
    )
    return (
        f'<li><div><b title="{path}">{name}</b><span>{render.escape(_figures(status))}</span></div>'
        f'<div class="lc-folder-buttons">{buttons}</div>{_failures(status)}</li>'
    )


def _figures(status: FolderStatus) -> str:
    """Returns the numbers of ready, waiting, failed and deleted files as text."""
    if status.missing:
        return "This folder is not there now"
    parts = [f"{status.ready:,} ready"]
    parts += [f"{status.waiting:,} waiting"] if status.waiting else []
    parts += [f"{len(status.failed):,} failed"] if status.failed else []
    parts += [f"{status.deleted:,} deleted (still in the library)"] if status.deleted else []
    return ("Paused: " if status.folder.paused else "") + ", ".join(parts)


def _failures(status: FolderStatus) -> str:
    if not status.failed:
        return ""
    lines = "".join(
        f"<li>{render.escape(why.replace(path, Path(path).name))}</li>"
        for path, why in list(status.failed.items())[:MAX_FAILED]
    )
    return f"<details><summary>What failed</summary><ul>{lines}</ul></details>"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
