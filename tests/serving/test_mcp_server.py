"""``localctx mcp``: an MCP client of the official SDK uses the library, over stdio and in process."""

import asyncio
import json
import os
import sys
from contextlib import closing

import pytest
from ask_in_process import session
from mcp import Client, StdioServerParameters

from localctx.serving.mcp_server import make_server
from localctx.serving.worker import EngineWorker

pytestmark = pytest.mark.slow


def said(result) -> str:
    assert not result.is_error, result.content
    (block,) = result.content
    return block.text


@pytest.fixture
def library(home, sharp_model, document):
    """A session's settings, with a document in the library."""
    with session(home, sharp_model, max_tokens=8) as s:
        (identifier,) = s.workflows.store([str(document)])
        yield s.settings, identifier


async def use(server, identifier: str) -> None:
    async with Client(server) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"search", "ask", "table", "compare", "list", "read"}
        listed = said(await client.call_tool("list", {}))
        assert listed.startswith(f"{identifier}  rivers.txt")
        found = said(await client.call_tool("search", {"words": "river 7"}))
        assert identifier in found
        assert "River 7 is 259 km long." in found
        read = said(await client.call_tool("read", {"document": identifier, "start": 6, "length": 10}))
        assert read.startswith("0 is 0 km ")


def test_a_client_over_stdio(library, sharp_model):
    settings, identifier = library
    environment = {**os.environ, "LOCALCTX_HOME": str(settings.home), "LOCALCTX_EMBEDDER": "none"}
    arguments = ["-m", "localctx", "mcp", "--model", str(sharp_model), "--threads", "1"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    asyncio.run(use(server, identifier))


def test_questions_are_answered_and_mistakes_told(library):
    settings, identifier = library

    async def ask(server) -> None:
        async with Client(server) as client:
            answer = said(
                await client.call_tool("ask", {"question": "How long is river 7?", "documents": [identifier]})
            )
            assert "From:" in answer
            assert identifier in answer
            wrong = await client.call_tool("read", {"document": "nothing"})
            assert wrong.is_error
            assert "nothing" in wrong.content[0].text

    with closing(EngineWorker(settings, "mcp")) as worker:
        asyncio.run(use(make_server(worker), identifier))
        asyncio.run(ask(make_server(worker)))


def test_documents_fill_a_table_and_versions_are_compared(library, tmp_path):
    settings, identifier = library
    newer = tmp_path / "newer.txt"
    newer.write_text((tmp_path / "rivers.txt").read_text().replace("River 7 is 259 km", "River 7 is 300 km"))

    async def use(server, other: str) -> None:
        async with Client(server) as client:
            columns = ["length: How long is river 7?"]
            rows = said(await client.call_tool("table", {"columns": columns, "documents": [identifier]}))
            (row,) = map(json.loads, rows.splitlines())
            assert (row["document"], list(row["cells"])) == (identifier, ["length"])
            everything = said(await client.call_tool("table", {"columns": columns}))
            assert {json.loads(row)["document"] for row in everything.splitlines()} == {identifier, other}
            changes = said(await client.call_tool("compare", {"old": identifier, "new": other}))
            assert "River 7 is 300 km" in changes
            assert "River 8" not in changes
            wrong = await client.call_tool("table", {"columns": ["length (furlongs)"]})
            assert wrong.is_error
            assert "furlongs" in wrong.content[0].text

    with closing(EngineWorker(settings, "mcp")) as worker:
        with session(settings.home, settings.model, max_tokens=8) as s:
            (other,) = s.workflows.store([str(newer)])
        asyncio.run(use(make_server(worker), other))
