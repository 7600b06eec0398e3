"""Outputs: where results go: a folder with a file each, a file with a line each, or the screen.

Each knows what it has, so that nothing is written twice and nothing is missing, wherever a run was killed.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from localctx.batch.markdown import SummaryTemplate
from localctx.errors import UsageError
from localctx.settings import write_atomically
from localctx.store.store import Store, store_errors
from localctx.workflows.summary_task import digest

NAMED = 40  # letters of a document's name in that of its summary
_UNSAFE = re.compile(r"[^\w.-]+")
_OURS = re.compile(r"-[0-9a-f]{16}\.md$")

ResultEntry = Mapping[str, Any]
"""A result with the document it is of: ``document`` (its id), ``name``, ``path``, ``recipe``, and all of the result."""


class Output(Protocol):
    """One place where results go."""

    def has(self, entry: ResultEntry) -> bool:
        """Whether just this result is there."""

    def write(self, entry: ResultEntry) -> None:
        """Put it there, all or nothing. Raises OSError."""

    def wrote(self, path: Path) -> bool:
        """Whether a file, its path without links, is of this output."""


class Folder:
    """A Markdown file for each document in ``folder``; what is edited there afterwards is left as it is."""

    def __init__(self, folder: Path, page: SummaryTemplate, open_store: Callable[[], Store]) -> None:
        self._folder, self._page, self._open_store = folder, page, open_store
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UsageError(f"{folder} cannot be a folder ({e})", "choose another with -o") from e

    def has(self, entry: ResultEntry) -> bool:
        """Whether the file is there and was last written of this result, in this form."""
        file, store = self._file(entry), self._open_store()
        with store_errors(store.home):
            return file.exists() and store.results.written(str(file)) == self._holds(entry)

    def write(self, entry: ResultEntry) -> None:
        """Write it, then note that it is written."""
        file, store = self._file(entry), self._open_store()
        write_atomically(file, self._page.render(entry))
        with store_errors(store.home):
            store.results.note_written(str(file), entry["document"], self._holds(entry))

    def wrote(self, path: Path) -> bool:
        """A summary is told by its name: the folder may hold the documents, too."""
        return path.parent == self._folder.resolve() and bool(_OURS.search(path.name))

    def _file(self, entry: ResultEntry) -> Path:
        return self._folder.absolute() / file_name(entry["path"])

    def _holds(self, entry: ResultEntry) -> str:
        return digest([entry["document"], entry["recipe"], self._page.form])


class Lines:
    """A file of JSON lines, to which results are added.

    Raises UsageError for a file that holds something else. A last line that was cut is taken away.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._has = {_key(entry) for entry in _mended(file)}
            with file.open("ab"):
                pass
        except OSError as e:
            raise UsageError(f"{file} cannot be written ({e})", "choose another with --jsonl") from e
        except (ValueError, KeyError, TypeError) as e:
            raise UsageError(f"{file} holds something else than results", "choose another with --jsonl") from e

    def has(self, entry: ResultEntry) -> bool:
        """Whether there is a line of it."""
        return _key(entry) in self._has

    def write(self, entry: ResultEntry) -> None:
        """Add a line; where the disk is full, none."""
        before = self._file.stat().st_size if self._file.exists() else 0
        try:
            with self._file.open("ab") as f:
                f.write(line(entry).encode())
                f.flush()
                os.fsync(f.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(self._file, before)
            raise
        self._has.add(_key(entry))

    def wrote(self, path: Path) -> bool:
        """The file itself."""
        return path == self._file.resolve()


class Screen:
    """Every result, also of those done before, is shown as ``render`` makes it."""

    def __init__(self, render: Callable[[ResultEntry], str], show: Callable[[str], None]) -> None:
        self._render, self._show = render, show

    def has(self, entry: ResultEntry) -> bool:
        """What was shown in another run is gone."""
        return False

    def write(self, entry: ResultEntry) -> None:
        """Show it."""
        self._show(self._render(entry))

    def wrote(self, path: Path) -> bool:
        """A screen has no file."""
        return False


def line(entry: ResultEntry) -> str:
    """A result as a line of JSON."""
    return json.dumps(entry, ensure_ascii=False) + "\n"


def file_name(path: str) -> str:
    """The name of a document's summary: its own as far as that is harmless, and a hash of where it is."""
    name = _UNSAFE.sub("_", Path(path).name).strip("._-")[:NAMED] or "document"
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.md"


def _key(entry: ResultEntry) -> tuple[str, str, str]:
    return entry["path"], entry["document"], entry["recipe"]


def _mended(file: Path) -> list[ResultEntry]:
    """What a file of results holds. Its last line goes where it was cut in the middle. Raises ValueError, OSError."""
    data = file.read_bytes() if file.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    entries = [json.loads(one) for one in whole.splitlines()]
    if cut := data[len(whole) :]:
        if not cut.startswith(b'{"document": ') and not b'{"document": '.startswith(cut):
            raise ValueError("not a line of ours")
        os.truncate(file, len(whole))
    return entries
