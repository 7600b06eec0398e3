"""Prints messages once: advice on models after the default model's first answer, and what an update changed."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

from localctx.cli.common import with_launcher
from localctx.cli.printing import print_error
from localctx.errors import UserError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.settings import Settings

MARK = "advised"  # file in the data folder that marks the advice as printed


def advise_once(settings: "Settings", terminal: "Terminal") -> None:
    """Print what this machine can run, if the smallest model is used and the advice was not printed before.

    Uses no network. A file in the data folder records that the advice was printed. If this file cannot be written, as
    on a full disk, nothing is printed, because the advice would then be printed every time.
    """
    from localctx.models.catalog import FALLBACK

    mark = settings.home / MARK
    if settings.model != FALLBACK or mark.exists():
        return
    from localctx.models.choice.model_advice import advise

    with suppress(UserError, OSError):
        mark.touch()
        terminal.say(f"{with_launcher(advise(settings).line())}. (This line is shown once.)")


def said_after_update(callback: Callable[..., Any] | None) -> Callable[..., Any]:
    """Returns a command function that runs ``callback``. On the first run after an update, it first prints which
    documents are still prepared.

    It prints on stderr. Errors such as a damaged database are ignored here, because the command itself reports them.
    """
    assert callback

    @wraps(callback)
    def told(*arguments: Any, **flags: Any) -> Any:
        from localctx.settings import data_folder
        from localctx.update_notice import take_update_notice

        if not flags.get("quiet"):
            with suppress(UserError, OSError, sqlite3.Error):
                if line := take_update_notice(data_folder()):
                    print_error(line)
        return callback(*arguments, **flags)

    return told
