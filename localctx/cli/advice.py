"""Advice on models, printed once, after the first answer of the default model."""

from contextlib import suppress
from typing import TYPE_CHECKING

from localctx.cli.common import with_launcher
from localctx.errors import UserError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.settings import Settings

MARK = "advised"  # a file in the data folder: the advice was printed


def advise_once(settings: "Settings", terminal: "Terminal") -> None:
    """Print what this machine can run, if the default model is used and the advice was not printed before.

    No network is used. If the mark cannot be written, as on a full disk, nothing is printed: it would be every time.
    """
    from localctx.models.catalog import DEFAULT

    mark = settings.home / MARK
    if settings.model != DEFAULT or mark.exists():
        return
    from localctx.models.model_advice import advise

    with suppress(UserError, OSError):
        mark.touch()
        terminal.say(f"{with_launcher(advise(settings).line())}. (This is said once.)")
