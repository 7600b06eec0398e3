"""The log of errors that nobody foresaw: their types and stack frames, and nothing of what a document or user said."""

import logging
import sys
import threading
import traceback
from contextlib import suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from localctx.errors import Cancelled, InternalError, UserError
from localctx.settings import data_folder, default_home

NAME = "localctx.log"
MAX_BYTES, OLDER_FILES = 1 << 20, 2  # of each file, and how many beside the current one

_log = logging.getLogger("localctx")


def log_file() -> Path:
    """Returns the path of the log, which exists once there was an error."""
    try:
        return data_folder() / NAME
    except UserError:
        return default_home() / NAME


def start_error_log() -> None:
    """Has errors that end a thread, and what libraries log, written to the log instead of the terminal. Call it once,
    where the program begins.
    """
    logging.getLogger().addHandler(_ErrorLogHandler(log_file()))
    threading.excepthook = lambda failed: _log_exit(failed.exc_value)
    sys.unraisablehook = lambda failed: _log_exit(failed.exc_value)
    sys.excepthook = _excepthook


def log_error(error: BaseException) -> None:
    """Writes an error to the log: its type and stack frames. UserErrors and Cancelled are none that need it."""
    if not isinstance(error, UserError | Cancelled):
        _log.error("an error that was not foreseen", exc_info=error)


def explain(error: BaseException) -> UserError:
    """Returns what a user is told of an ``error``: a UserError as it is; of any other, which is logged, its kind and
    where to look.
    """
    if isinstance(error, UserError):
        return error
    log_error(error)
    if isinstance(error, MemoryError):
        return InternalError("the memory is used up", f"close other programs, or use a smaller model; see {log_file()}")
    remedy = f"try again; if it stays, report it with the end of {log_file()} (no text of yours is in it)"
    return InternalError(f"something in localctx failed ({type(error).__name__})", remedy)


def _log_exit(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
        log_error(error)


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Exception):
        print(f"localctx: {explain(error)}", file=sys.stderr)


class _ErrorLogHandler(RotatingFileHandler):
    """Writes warnings and errors to a file that its owner alone may read. A log that cannot be written is left."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=OLDER_FILES, encoding="utf-8", delay=True)
        self.setLevel(logging.WARNING)
        self.setFormatter(_WithoutValues())

    def _open(self) -> Any:
        path = Path(self.baseFilename)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(0o600)
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore it: the error that was to be logged is told in any case."""


class _WithoutValues(logging.Formatter):
    """Formats a record as time, process, logger and place; of an exception the types and frames. The messages of
    exceptions and the arguments of records may quote a document, and are left out.
    """

    def format(self, record: logging.LogRecord) -> str:
        place = f"{record.name} {Path(record.pathname).name}:{record.lineno}"
        head = f"{self.formatTime(record)} [{record.process}] {record.levelname} {place}"
        error = record.exc_info[1] if record.exc_info else None
        return "\n".join([head, *_frames(error)])


def _frames(error: BaseException | None) -> list[str]:
    """Returns lines for an exception and what it was raised from, the innermost frames last."""
    lines = list[str]()
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        lines.append(f"{type(error).__module__}.{type(error).__qualname__}")
        with suppress(Exception):
            stack = traceback.StackSummary.extract(
                traceback.walk_tb(error.__traceback__), lookup_lines=False, limit=-40
            )
            lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in stack]
        error = error.__cause__ or error.__context__
    return lines
