"""Files parsed in this process by what the child process runs: their text is the same, and no child has to start."""

import json
import time
from dataclasses import asdict
from typing import Any

import pytest

from localctx.library.parsers import parse_child, sandbox
from localctx.library.parsers.sandbox import ReadOptions


@pytest.fixture
def parsed_here(monkeypatch) -> None:
    """While a test runs, files are parsed in this process. None of its limits is changed."""

    def ask(request: dict[str, Any], data: bytes, options: ReadOptions) -> dict[str, Any]:
        limits = options.limits
        rest = (time.process_time() + limits.seconds, limits.memory + len(data))
        asked = {**request, "bytes": len(data), **asdict(limits), "limits": rest}
        return json.loads(json.dumps(parse_child._result(asked, data)))

    def limit(request: dict[str, Any], seconds: int, memory: int) -> None:
        request["limits"] = (seconds, memory)

    monkeypatch.setattr(sandbox, "_ask_child", ask)
    monkeypatch.setattr(parse_child, "_limit", limit)
    monkeypatch.setattr(parse_child, "_send", lambda message: None)
