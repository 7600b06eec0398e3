"""``ui``: opens the window in the browser."""

from typing import Any

import click

from localctx.cli.common import answer_options, model_options, settings_from
from localctx.cli.printing import print_error, print_line
from localctx.cli.sections import SectionedCommand, address_options, option


@click.command(cls=SectionedCommand)
@address_options(7860)
@click.option("--browser/--no-browser", default=True, help="Open the browser.")
@option("--together", default=8, type=click.IntRange(1, 64), metavar="N", help="Most questions answered at a time (8).")
@answer_options
@model_options
def ui(host: str, port: int, browser: bool, together: int, **flags: Any) -> None:
    """Open the window: chat, library, memory and settings, in the browser. Ctrl-C ends it.

    Up to --together questions are answered at a time, and later ones wait.

    \b
    localctx ui
    localctx ui --port 0 --no-browser
    """
    settings = settings_from(flags)
    from localctx.ui.app import run
    from localctx.ui.browser_access import open_browser

    def open_page(url: str) -> None:
        print_line(f"localctx is at {url}")
        if browser and not open_browser(url):
            print_error("localctx: no browser could be opened; open this address yourself")

    run(settings, host, port, together, open_page)
