"""Lists the files of a batch in order, each once, and reports ignored files."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localctx.errors import UsageError
from localctx.file_names import stored_path
from localctx.library.folders.find import LEADS_OUT, find_documents
from localctx.store.documents import DocumentRow


@dataclass(frozen=True)
class DocumentJob:
    """A file of a batch: its name as the user gave it, its absolute path as it is stored, and its size in bytes (0:
    unknown). The file may be missing, or may not be a document.
    """

    source: str
    path: str
    nbytes: int

    @classmethod
    def stored(cls, row: DocumentRow) -> "DocumentJob":
        """Returns the job for a stored document. ``source`` is the document's id, and ``path`` is the path of its file.
        A document from standard input has no file, so ``path`` is its id too.
        """
        return cls(row.id, row.path if row.path != "-" else row.id, row.bytes)


@dataclass(frozen=True)
class IgnoredFile:
    """A file that was found but is not read, and the reason."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path} {self.why}: ignored"


def told(ignored: Sequence[IgnoredFile]) -> Iterator[str]:
    """Yields lines that report ignored files to the user: one line for each file, and one for all links that were not
    followed.
    """
    yield from (str(file) for file in ignored if file.why != LEADS_OUT)
    if links := sum(file.why == LEADS_OUT for file in ignored):
        yield f"{links:,} link{'s' * (links > 1)} out of a folder not followed; to read the files, name them"


def plan_jobs(
    sources: Iterable[str],
    read_list: Callable[[], bytes],
    on_ignored: Callable[[str, str], None],
    is_output: Callable[[Path], bool] = lambda path: False,
) -> list[DocumentJob]:
    """Returns the jobs for ``sources``: files, folders and patterns. ``-`` stands for a list of sources, which
    ``read_list`` reads.

    ``on_ignored`` is called with each ignored file and the reason. Files for which ``is_output`` returns True, because
    the batch wrote them, are ignored too. Raises UsageError if ``-`` is named twice.
    """
    jobs = []
    for file in find_documents(_expand_lists(list(sources), read_list), on_ignored):
        if is_output(Path(os.path.realpath(file))):
            on_ignored(file, "is a result of a batch")
        else:
            jobs.append(DocumentJob(file, stored_path(os.path.abspath(file)), _size(file)))  # noqa: PTH100 (pathlib keeps "..")
    return jobs


def _expand_lists(sources: list[str], read_list: Callable[[], bytes]) -> Iterator[str]:
    if sources.count("-") > 1:
        raise UsageError("standard input (-) can be read only once", "name it once")
    for source in sources:
        if source == "-":
            names = os.fsdecode(read_list())
            named = names.split("\0" if "\0" in names else "\n")  # the formats of `find -print0` and `find`
            yield from (f"./{name}" if name == "-" else name for name in named if name)
        else:
            yield source


def _size(file: str) -> int:
    try:
        return Path(file).stat().st_size
    except (OSError, ValueError):
        return 0  # reading it will report why
