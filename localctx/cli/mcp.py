"""``mcp``: offers the library as tools to editors and assistants."""

from typing import Any

import click

from localctx.cli.common import answer_options, model_options, settings_from
from localctx.cli.sections import SectionedCommand


@click.command(cls=SectionedCommand)
@answer_options
@model_options
def mcp(**flags: Any) -> None:
    """Let editors and assistants search, ask, list and read the library (Model Context Protocol, over stdio).

    A client starts it; it ends with the client. It needs the extra localctx[mcp].

    \b
    localctx mcp --model qwen3-0.6b
    {"mcpServers": {"localctx": {"command": "localctx", "args": ["mcp"]}}}
    """
    settings = settings_from(flags)
    from localctx.serving.mcp_server import run_stdio

    run_stdio(settings)
