"""The log of unexpected errors. It has their types and stack frames, but no text of documents or users."""

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
MAX_BYTES, OLDER_FILES = 1 << 20, 2  # per file, and number of rotated files

_log = logging.getLogger("localctx")


def log_file() -> Path:
    """Returns the path of the log. The file does not exist before the first error is logged."""
    try:
        return data_folder() / NAME
    except UserError:
        return default_home() / NAME


def start_error_log() -> None:
    """Send unhandled errors of threads and libraries' log messages to the log instead of the terminal. An unhandled
    error of the main thread is also shown in one line. Call this once, at program start.
    """
    logging.getLogger().addHandler(_ErrorLogHandler(log_file()))
    threading.excepthook = lambda failed: _log_exit(failed.exc_value)
    sys.unraisablehook = lambda failed: _log_exit(failed.exc_value)
    sys.excepthook = _excepthook


def log_error(error: BaseException) -> None:
    """Write an error to the log: its type and stack frames. UserErrors and Cancelled are not logged."""
    if not isinstance(error, UserError | Cancelled):
        _log.error("an error that was not foreseen", exc_info=error)


def explain(error: BaseException) -> UserError:
    """Returns the UserError to show for ``error``. A UserError is returned unchanged. Any other error is logged, and
    the returned error says where.
    """
    if isinstance(error, UserError):
        return error
    log_error(error)
    if isinstance(error, MemoryError):
        return InternalError(
            "there is not enough memory", f"close other programs, or use a smaller model; see {log_file()}"
        )
    remedy = f"try again; if it fails again, report it with the end of {log_file()} (no text of yours is in it)"
    return InternalError(f"something in localctx failed ({type(error).__name__})", remedy)


def _log_exit(error: BaseException | None) -> None:
    if error is not None and not isinstance(error, SystemExit | KeyboardInterrupt):
        log_error(error)


def _excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Exception):
        print(f"localctx: {explain(error)}", file=sys.stderr)


class _ErrorLogHandler(RotatingFileHandler):
    """Writes warnings and errors to a log file that only its owner may read. Failures to write are ignored."""

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
        """Ignore the failure to write, because the error to log is shown to the user anyway."""


class _WithoutValues(logging.Formatter):
    """Formats a log record as time, process, level, logger and source line, and its exception as types and stack
    frames. Messages and arguments are left out, because they may quote a document.
    """

    def format(self, record: logging.LogRecord) -> str:
        place = f"{record.name} {Path(record.pathname).name}:{record.lineno}"
        head = f"{self.formatTime(record)} [{record.process}] {record.levelname} {place}"
        error = record.exc_info[1] if record.exc_info else None
        return "\n".join([head, *_frames(error)])


def _frames(error: BaseException | None) -> list[str]:
    """Returns log lines for an exception and its causes: the type of each, then its stack frames, innermost last."""
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
