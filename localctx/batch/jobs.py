"""Jobs: the files of a batch, in order, each once; what is passed over is told."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from localctx.errors import UsageError
from localctx.library.find import find_documents


@dataclass(frozen=True)
class DocumentJob:
    """A file as it was named, where it is, and its bytes (0: unknown); it may not be there, or be no document."""

    source: str
    path: str
    nbytes: int


def plan_jobs(
    sources: Iterable[str],
    read_list: Callable[[], bytes],
    passed_over: Callable[[str, str], None],
    wrote: Callable[[Path], bool] = lambda path: False,
) -> list[DocumentJob]:
    """The jobs of files, folders and patterns; ``-`` stands for a list of those, which ``read_list`` reads.

    What the batch itself ``wrote`` is no document of it. Raises UsageError for a list that is named twice.
    """
    jobs = []
    for file in find_documents(_listed(list(sources), read_list), passed_over):
        if wrote(Path(os.path.realpath(file))):
            passed_over(file, "is a result of a batch")
        else:
            jobs.append(DocumentJob(file, os.path.abspath(file), _size(file)))  # noqa: PTH100 (pathlib keeps "..")
    return jobs


def shown(path: str) -> str:
    """A path as it can be printed: names need not be UTF-8."""
    return path.encode(errors="backslashreplace").decode()


def _listed(sources: list[str], read_list: Callable[[], bytes]) -> Iterator[str]:
    if sources.count("-") > 1:
        raise UsageError("standard input (-) can be read only once", "name it once")
    for source in sources:
        if source == "-":
            names = os.fsdecode(read_list())
            named = names.split("\0" if "\0" in names else "\n")  # as `find -print0` and `find` write them
            yield from (f"./{name}" if name == "-" else name for name in named if name)
        else:
            yield source


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except (OSError, ValueError):
        return 0  # who reads it says why
