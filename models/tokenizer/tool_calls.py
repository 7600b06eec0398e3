"""Tool calls in answers, in the format of Hermes and Qwen: <tool_call>{JSON}</tool_call>."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class ToolCall:
    """A call of the tool ``name``, with its ``arguments`` as JSON text."""

    name: str
    arguments: str


class ToolCallReader:
    """Extracts tool calls from an answer while it is streamed. If ``only`` is True, the whole answer is one call
    without tags. A call that cannot be parsed stays text.
    """

    def __init__(self, only: bool = False) -> None:
        self._only, self._buffer, self.calls = only, "", list[ToolCall]()

    def __call__(self, text: str) -> str:
        """Append ``text`` to the answer. Returns the text that may be shown, because it cannot be part of a call."""
        self._buffer += text
        if self._only:
            return ""
        said = ""
        while OPEN in self._buffer and CLOSE in self._buffer.split(OPEN, 1)[1]:
            before, rest = self._buffer.split(OPEN, 1)
            inside, self._buffer = rest.split(CLOSE, 1)
            said += before if self._take(inside) else f"{before}{OPEN}{inside}{CLOSE}"
        begun = self._buffer.find(OPEN)
        keep = len(self._buffer) - begun if begun >= 0 else _begins(self._buffer)
        said, self._buffer = said + self._buffer[: len(self._buffer) - keep], self._buffer[len(self._buffer) - keep :]
        return said

    def flush(self) -> str:
        """Returns the remaining text at the end of the answer. A call that lacks only its closing tag is extracted."""
        rest, self._buffer = self._buffer, ""
        return "" if rest and self._take(rest.removeprefix(OPEN)) else rest

    def _take(self, text: str) -> bool:
        try:
            call = json.loads(text)
            arguments = call.get("arguments", call.get("parameters", {}))
            arguments = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            self.calls.append(ToolCall(str(call["name"]), arguments))
        except (ValueError, KeyError, AttributeError, RecursionError):
            return False
        return True


def call_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the JSON schema of a tool call: the call names one of ``tools`` (in OpenAI's API format), with arguments
    of that tool.
    """
    calls = []
    for function in (tool["function"] for tool in tools):
        parts = {"name": {"const": function["name"]}, "arguments": function.get("parameters") or {"type": "object"}}
        whole = {"type": "object", "properties": parts, "required": [*parts], "additionalProperties": False}
        calls.append(whole)
    return {"anyOf": calls}


def _begins(text: str) -> int:
    """Returns the number of characters at the end of ``text`` that may start a call."""
    return max((n for n in range(1, len(OPEN)) if text.endswith(OPEN[:n])), default=0)
