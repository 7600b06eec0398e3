"""Corrections: values that a person set in place of answers. They are stored by the id of the document's text."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localctx.batch.jobs import DocumentJob
from localctx.batch.table.cells import AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.errors import UsageError
from localctx.file_names import stored_path
from localctx.store.batch_results import part_of
from localctx.store.store import Store, store_errors

_RECIPE = "correction"


@dataclass(frozen=True)
class Correction:
    """A ``value`` that a person sets for a cell. ``file`` is the name or path of the cell's file as the user gave it,
    and ``column`` is the cell's column.
    """

    file: str
    column: TableColumn
    value: str


def parse_correction(given: str, columns: Sequence[TableColumn]) -> Correction:
    """Returns the correction that ``FILE:COLUMN=VALUE`` describes. Raises UsageError."""
    for column in columns:
        found = re.fullmatch(rf"(.+?):\s*{re.escape(column.name)}\s*=(.*)", given, re.IGNORECASE | re.DOTALL)
        if found:
            return Correction(found[1].strip(), column, found[2].strip())
    raise UsageError(f"{given!r} corrects no cell", "say FILE:COLUMN=VALUE, with a column of the table")


def find_corrected(
    corrections: Iterable[Correction], sources: Sequence[str], jobs: Sequence[DocumentJob]
) -> list[tuple[str, Correction]]:
    """Find the document that each correction is for. Returns pairs of the document's path and the correction. ``jobs``
    are the files below ``sources``.

    A file can be named by its path, by its path relative to a folder of ``sources``, or, if no other file has the same
    name, by its name alone. Raises UsageError for a name that no file has, or several files have.
    """
    return [(_find_job(correction.file, sources, jobs).path, correction) for correction in corrections]


def store_corrections(store: Store, corrections: Iterable[tuple[str, Correction]], rows: Iterable[AnswerRow]) -> None:
    """Store corrections, each with the path of its document, for the documents of ``rows``. Raises StoreError."""
    documents = {row.path: row.document for row in rows if row.document}
    with store_errors(store.home), store.db.atomic():
        for path, correction in corrections:
            if path in documents:
                recipe = part_of(_RECIPE, correction.column.name)
                store.results.put(documents[path], recipe, {"shown": correction.value})


def all_corrections(store: Store) -> dict[str, dict[str, str]]:
    """Returns all stored corrections: for each document's id, the corrected values by the names of their columns."""
    found = dict[str, dict[str, str]]()
    for document, column, result in store.results.parts(_RECIPE):
        found.setdefault(document, {})[column] = result["shown"]
    return found


def _find_job(file: str, sources: Sequence[str], jobs: Sequence[DocumentJob]) -> DocumentJob:
    if os.path.basename(file) == file:  # noqa: PTH119 (pathlib drops the "./" of a path)
        named = [job for job in jobs if Path(job.source).name == file]
    else:
        path = stored_path(os.path.abspath(file))  # noqa: PTH100 (as of the jobs)
        named = [job for job in jobs if job.path == path]
        named = named or [job for job in jobs if os.path.normpath(file) in _relative_paths(job, sources)]
    if not named:
        raise UsageError(f"--set names {file}, which is not one of the documents", "name the file as the table does")
    if len(named) > 1:
        problem = f"--set names {file}, which may be {', '.join(_shown(job) for job in named)}"
        raise UsageError(problem, "name the one by its path")
    return named[0]


def _relative_paths(job: DocumentJob, sources: Sequence[str]) -> list[str]:
    source = Path(job.source)
    return [str(source.relative_to(folder)) for folder in sources if source.is_relative_to(folder)]


def _shown(job: DocumentJob) -> str:
    """Returns the path of a file so that it cannot be taken for a name alone."""
    return job.source if os.path.dirname(job.source) else f"./{job.source}"  # noqa: PTH120
