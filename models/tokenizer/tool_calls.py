"""Tool calls in answers of models that write them as Hermes and Qwen do: <tool_call>{JSON}</tool_call>."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class ToolCall:
    """The call of the tool ``name``, with its ``arguments`` as JSON text."""

    name: str
    arguments: str


class ToolCallReader:
    """Takes the tool calls out of an answer that comes in pieces. With ``only``, the whole answer is one call. What
    is no call that can be read stays text.
    """

    def __init__(self, only: bool = False) -> None:
        self._only, self._buffer, self.calls = only, "", list[ToolCall]()

    def __call__(self, text: str) -> str:
        """Append ``text``; returns what is surely no part of a call."""
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
        """Returns the rest of the text, once no more comes; a call that only lacks its end is taken."""
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
    """Returns the JSON schema of a call of one of ``tools``, which are as OpenAI's API describes them."""
    calls = []
    for function in (tool["function"] for tool in tools):
        parts = {"name": {"const": function["name"]}, "arguments": function.get("parameters") or {"type": "object"}}
        whole = {"type": "object", "properties": parts, "required": [*parts], "additionalProperties": False}
        calls.append(whole)
    return {"anyOf": calls}


def _begins(text: str) -> int:
    """Returns how many characters at the end of ``text`` may begin a call."""
    return max((n for n in range(1, len(OPEN)) if text.endswith(OPEN[:n])), default=0)
