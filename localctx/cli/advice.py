"""Advice: said once, after the first answer of the default model."""

from contextlib import suppress
from typing import TYPE_CHECKING

from localctx.cli.common import as_typed
from localctx.errors import UserError

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.settings import Settings

MARK = "advised"  # a file in the data folder: it has been said


def advise_once(settings: "Settings", terminal: "Terminal") -> None:
    """Say what this machine can run, where the default model has answered and nothing was said before.

    The network is not asked. What cannot be remembered, as on a full disk, is not said: it would be said every time.
    """
    from localctx.models.catalog import DEFAULT
    from localctx.models.model_advice import advise

    mark = settings.home / MARK
    if settings.model != DEFAULT or mark.exists():
        return
    with suppress(UserError, OSError):
        mark.touch()
        terminal.say(f"{as_typed(advise(settings).line())}. (This is said once.)")
