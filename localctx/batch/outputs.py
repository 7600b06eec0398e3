"""Outputs of a batch: a folder of Markdown files, a file of JSON lines, or the screen.

A folder or file knows which results it has. After a run was killed, the next run writes only the missing results.
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

MAX_STEM = 40  # characters of a document's name in its summary's file name
_UNSAFE = re.compile(r"[^\w.-]+")
_SUMMARY_NAME = re.compile(r"-[0-9a-f]{16}\.md$")

ResultEntry = Mapping[str, Any]
"""A result as JSON: its ``document`` (the id), ``name``, ``path``, ``recipe``, and the fields of the result."""


class Output(Protocol):
    """A place where a batch writes its results."""

    def has(self, entry: ResultEntry) -> bool:
        """Returns True if exactly this result was written before."""

    def write(self, entry: ResultEntry) -> None:
        """Write a result completely or not at all. Raises OSError."""

    def is_output(self, path: Path) -> bool:
        """Returns True if this output wrote the file at ``path`` (a path without links), so that it is not read as a
        document.
        """


class MarkdownFolder:
    """Writes one Markdown file for each document into ``folder``. A file that the user edited is not overwritten as
    long as the document has the same result.
    """

    def __init__(self, folder: Path, template: SummaryTemplate, open_store: Callable[[], Store]) -> None:
        self._folder, self._template, self._open_store = folder, template, open_store
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UsageError(f"{folder} cannot be used as a folder ({e})", "choose another folder with -o") from e

    def has(self, entry: ResultEntry) -> bool:
        """Returns True if the file exists and was last written from this result with this template."""
        file, store = self._file(entry), self._open_store()
        with store_errors(store.home):
            return file.exists() and store.results.written(str(file)) == self._content_key(entry)

    def write(self, entry: ResultEntry) -> None:
        """Write the file of a document, then record in the store which result the file has."""
        file, store = self._file(entry), self._open_store()
        write_atomically(file, self._template.render(entry))
        with store_errors(store.home):
            store.results.note_written(str(file), entry["document"], self._content_key(entry))

    def is_output(self, path: Path) -> bool:
        """Returns True for a summary that this output wrote. It is recognized by its name, because the folder may
        contain documents too.
        """
        return path.parent == self._folder.resolve() and bool(_SUMMARY_NAME.search(path.name))

    def _file(self, entry: ResultEntry) -> Path:
        return self._folder.absolute() / file_name(entry["path"])

    def _content_key(self, entry: ResultEntry) -> str:
        return digest([entry["document"], entry["recipe"], self._template.form])


class JsonLines:
    """Appends results to a file of JSON lines. An incomplete last line, from a run that was killed, is removed.

    Raises UsageError for a file with other content.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._keys = {_key(entry) for entry in _read_entries(file)}
            with file.open("ab"):
                pass
        except OSError as e:
            raise UsageError(f"{file} cannot be written ({e})", "choose another file with --jsonl") from e
        except (ValueError, KeyError, TypeError) as e:
            raise UsageError(f"{file} has content other than results", "choose another file with --jsonl") from e

    def has(self, entry: ResultEntry) -> bool:
        """Returns True if the file has this result."""
        return _key(entry) in self._keys

    def write(self, entry: ResultEntry) -> None:
        """Append a line. On failure the file stays as it was."""
        before = self._file.stat().st_size if self._file.exists() else 0
        try:
            with self._file.open("ab") as f:
                f.write(json_line(entry).encode())
                f.flush()
                os.fsync(f.fileno())
        except OSError:
            with suppress(OSError):
                os.truncate(self._file, before)
            raise
        self._keys.add(_key(entry))

    def is_output(self, path: Path) -> bool:
        """Returns True for the file itself."""
        return path == self._file.resolve()


class TextStream:
    """Prints every result as text, including results that an earlier run computed."""

    def __init__(self, render: Callable[[ResultEntry], str], emit: Callable[[str], None]) -> None:
        self._render, self._emit = render, emit

    def has(self, entry: ResultEntry) -> bool:
        """Always returns False, because earlier output cannot be read back."""
        return False

    def write(self, entry: ResultEntry) -> None:
        """Print a result."""
        self._emit(self._render(entry))

    def is_output(self, path: Path) -> bool:
        """Always returns False, because a stream has no file."""
        return False


def json_line(entry: ResultEntry) -> str:
    """Return a result as a line of JSON."""
    return json.dumps(entry, ensure_ascii=False) + "\n"


def file_name(path: str) -> str:
    """Return the file name of a document's summary. It has the document's name without unsafe characters, and a hash of
    the document's path.
    """
    name = _UNSAFE.sub("_", Path(path).name).strip("._-")[:MAX_STEM] or "document"
    return f"{name}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.md"


def _key(entry: ResultEntry) -> tuple[str, str, str]:
    return entry["path"], entry["document"], entry["recipe"]


def _read_entries(file: Path) -> list[ResultEntry]:
    """Return the results in a file, and remove an incomplete last line. Raises ValueError for other content;
    OSError.
    """
    data = file.read_bytes() if file.exists() else b""
    complete = data[: data.rfind(b"\n") + 1]
    entries = [json.loads(one) for one in complete.splitlines()]
    if rest := data[len(complete) :]:
        if not rest.startswith(b'{"document": ') and not b'{"document": '.startswith(rest):
            raise ValueError("not a line of results")
        os.truncate(file, len(complete))
    return entries
