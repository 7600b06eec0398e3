"""``serve``: runs an OpenAI-compatible HTTP server."""

from typing import Any

import click

from localctx.cli.common import answer_options, model_options, settings_from
from localctx.cli.printing import print_text
from localctx.cli.sections import SectionedCommand, address_options, option, setting_option


@click.command(cls=SectionedCommand)
@address_options(8000)
@option("--together", default=8, type=click.IntRange(1, 64), metavar="N", help="Most requests answered at a time (8).")
@setting_option("prompts")
@answer_options
@model_options
def serve(host: str, port: int, together: int, **flags: Any) -> None:
    """Serve the model over an OpenAI-compatible HTTP API. Ctrl-C ends it.

    Up to --together requests are answered at a time; flags are the defaults of requests. Each request needs the
    printed key. While it is open, `localctx ask` with the same model and settings is answered here.

    \b
    localctx serve
    localctx serve --port 0 --model qwen3-0.6b --max-tokens 1024
    LOCALCTX_SERVER_KEY=... localctx summarize reports/ -o summaries/ --server http://127.0.0.1:8000
    """
    from localctx.cli.terminal import Terminal
    from localctx.serving.openai_server import run

    settings, terminal = settings_from(flags), Terminal()

    def print_address(url: str, key: str) -> None:
        terminal.clear()
        print_text(f"localctx is at {url}\nits key is {key}")

    run(settings, host, port, together, terminal.show, print_address)
