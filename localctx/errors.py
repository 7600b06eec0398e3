"""Errors that a user can fix. Each one says what happened and what to do about it."""

from typing import Any

INTERRUPTED = 130  # exit code that a shell reports after Ctrl-C


class UserError(Exception):
    """An error with a ``problem`` and a ``remedy``, both worded for the user.

    ``str(error)`` is one line: ``problem; remedy``. ``exit_code`` is the exit status of the command after this error.
    """

    exit_code = 1

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}; {remedy}")
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error as type, problem and remedy, so that another process can raise the same error."""
        return make_error, (type(self), self.problem, self.remedy)


class UsageError(UserError):
    """A command line argument or a setting is invalid."""

    exit_code = 2


class DocumentError(UserError):
    """A document cannot be read."""


class NothingFound(DocumentError):
    """The search found no passage that matches the question."""


class ChatError(UserError):
    """A chat does not exist, or its name is ambiguous."""


class ChatFull(UserError):
    """A chat's documents fit into the context window, but not together with its history."""


class TooLong(UserError):
    """The documents and the question do not fit into the model's context window."""


class OutOfKVMemory(UserError):
    """No tier has room for ``needed`` more bytes of KV. ``used`` has the used bytes of each tier."""

    def __init__(self, used: dict[str, int], needed: int, why: str = "") -> None:
        usage = ", ".join(f"{format_bytes(n)} on {name}" for name, n in used.items())
        super().__init__(
            f"the KV cache has no room for {format_bytes(needed)} more ({why or usage})",
            "give it more (--memory, --ram, --disk), use a smaller --kv, or ask a shorter part",
        )


class ModelError(UserError):
    """A model is unknown, cannot be downloaded, or cannot be computed correctly."""


class StoreError(UserError):
    """The data folder cannot be read or written."""


class OfflineError(ModelError):
    """Something needs another machine, such as a model download or a server, but offline mode is on."""


class InternalError(UserError):
    """An unexpected failure inside localctx. The message says where the error log is."""


class DamagedStore(StoreError):
    """The database in the data folder is damaged."""


class Cancelled(Exception):
    """The user cancelled the work. This is not an error, and pages that were already sealed are kept."""


def make_error(kind: type[UserError], problem: str, remedy: str) -> UserError:
    """Returns an error of type ``kind`` with this text. Used to recreate an error that another process raised."""
    error = kind.__new__(kind)
    UserError.__init__(error, problem, remedy)
    return error


def format_bytes(nbytes: float) -> str:
    """Returns a number of bytes as text for the user: ``61.3 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"
