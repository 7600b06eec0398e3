"""Parses requests of OpenAI's responses protocol, without stored state, and builds the objects and events of
responses.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from localctx.serving.answer_stream import AnswerState, AnswerStream
from localctx.serving.api_error import ApiError, Fields
from localctx.serving.openai_protocol import (
    CompletionRequest,
    about_documents,
    read_documents,
    read_message,
    read_tools,
)
from localctx.serving.sampling_fields import (
    MAX_TOP,
    check_model,
    grammar_of,
    read_controls,
    read_grammar,
    read_settings,
    read_stream,
)
from localctx.settings import Settings
from localctx.workflows.reply import ReplyRequest

STATEFUL = ("store", "previous_response_id", "conversation", "background", "prompt", "context_management")


def parse_response_request(body: Any, settings: Settings) -> CompletionRequest:
    """Parse a JSON body of ``/v1/responses``. Raises ApiError."""
    fields = Fields(body)
    check_model(fields, settings.model)
    fields.unsupported(*STATEFUL, "include", "max_tool_calls", "moderation")
    fields.choice("service_tier", ("auto", "default"))
    fields.choice("truncation", ("disabled",))
    fields.choice("parallel_tool_calls", (True, False))
    reasoning, text = fields.object("reasoning"), fields.object("text")
    reasoning.choice("effort", ("none",))
    reasoning.unsupported("summary", "generate_summary")
    text.unsupported("verbosity")
    tools, forced, schema = read_tools(fields)
    sampled = read_settings(fields, settings, "max_output_tokens")
    if sampled.n > 1:
        raise fields.error("n", "must be 1 here")
    own = read_grammar(_Renamed(text), "text.format")
    grammar = grammar_of(schema, "tools") if schema else own
    controls = read_controls(fields, grammar, fields.integer("top_logprobs", 0, MAX_TOP))
    messages, documents = _read_input(fields), read_documents(fields)
    (stream, _), labels = read_stream(fields), fields.labels()
    for left in (fields, reasoning, text):
        left.finish()
    asked = ReplyRequest(sampled, messages, tools=tools, controls=controls)
    asked = about_documents(messages, documents, asked) if documents else asked
    return CompletionRequest(asked, (), stream, forced=forced, labels=labels)


class _Renamed(Fields):
    """The fields of the object ``text``, under longer names: ``text.format`` is its field ``format``."""

    def __init__(self, fields: Fields) -> None:
        self._left, self._prefix, self._fields = {}, "", fields

    def take(self, name: str, default: Any = None) -> Any:
        return self._fields.take(name.removeprefix("text."), default)


def _read_input(fields: Fields) -> list[dict[str, Any]]:
    """Returns the messages of the input. If there are instructions, they come first, as a system message."""
    instructions, given = fields.text("instructions"), fields.take("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not items:
        raise ApiError("input must be a text or a list of items", "input")
    messages = [_read_item(item, f"input[{i}]") for i, item in enumerate(items)]
    if messages[-1]["role"] not in ("user", "tool"):
        raise ApiError("the last item must be the user's message, or a tool's output", "input")
    return [{"role": "system", "content": instructions}, *messages] if instructions else messages


def _read_item(item: Any, param: str) -> dict[str, Any]:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message":
        return read_message(item, param)
    if kind == "function_call":
        call = {"function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        return read_message({"role": "assistant", "content": "", "tool_calls": [call]}, param)
    if kind == "function_call_output":
        return read_message({"role": "tool", "content": item.get("output")}, param)
    raise ApiError(f"{param} is of a type that is not supported", param)


@dataclass
class ResponseObject:
    """Builds the ``response`` object of one request and, if it is streamed, its events."""

    stream: AnswerStream
    id: str = field(default_factory=lambda: f"resp_{secrets.token_hex(12)}")
    item: str = field(default_factory=lambda: f"msg_{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))
    _count: int = -1

    def whole(self, status: str) -> dict[str, Any]:
        """Returns the whole ``response`` object. Its ``status`` is ``in_progress`` or ``completed``.

        An answer that reached its length limit is ``incomplete`` instead of ``completed``.
        """
        settings, request = self.stream.request.asked.settings, self.stream.request
        cut = status == "completed" and self.stream.finish(0) == "length"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "incomplete" if cut else status,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "error": None,
            "instructions": None,
            "max_output_tokens": settings.max_tokens,
            "model": settings.model,
            "output": self._output() if status == "completed" else [],
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "tool_choice": "required" if request.forced else "auto",
            "tools": [{"type": "function", **tool["function"]} for tool in request.asked.tools],
            "text": {"format": {"type": "text"}},
            "truncation": "disabled",
            "usage": self._usage() if status == "completed" else None,
            "metadata": dict(request.labels),
        }

    def event(self, kind: str, **more: Any) -> dict[str, Any]:
        """Returns the next event of the stream, with the type ``kind`` and the next sequence number. ``more`` has the
        other fields of the event.
        """
        self._count += 1
        return {"type": kind, "sequence_number": self._count, **more}

    def begin(self) -> Iterator[dict[str, Any]]:
        """Yields the events of a stream that come before the first text."""
        for kind in ("created", "in_progress"):
            yield self.event(f"response.{kind}", response=self.whole("in_progress"))
        message = {**self._message(), "status": "in_progress", "content": []}
        yield self.event("response.output_item.added", output_index=0, item=message)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield self.event("response.content_part.added", item_id=self.item, output_index=0, content_index=0, part=part)

    def delta(self, text: str) -> dict[str, Any]:
        """Returns the event with ``text``, the next part of the answer."""
        where = {"item_id": self.item, "output_index": 0, "content_index": 0}
        return self.event("response.output_text.delta", **where, delta=text, logprobs=[])

    def end(self) -> Iterator[dict[str, Any]]:
        """Yields the events of a stream that come after the last text."""
        where, (message, *calls) = {"item_id": self.item, "output_index": 0, "content_index": 0}, self._items()
        yield self.event("response.output_text.done", **where, text=self._answer.text, logprobs=[])
        yield self.event("response.content_part.done", **where, part=message["content"][0])
        yield self.event("response.output_item.done", output_index=0, item=message)
        for i, call in enumerate(calls, 1):
            yield self.event("response.output_item.added", output_index=i, item=call)
            arguments = {"item_id": call["id"], "output_index": i, "name": call["name"], "arguments": call["arguments"]}
            yield self.event("response.function_call_arguments.done", **arguments)
            yield self.event("response.output_item.done", output_index=i, item=call)
        whole = self.whole("completed")
        yield self.event(f"response.{whole['status']}", response=whole)

    @property
    def _answer(self) -> AnswerState:
        return self.stream.answers[0]

    def _message(self) -> dict[str, Any]:
        content = {"type": "output_text", "text": self._answer.text, "annotations": self.stream.cited, "logprobs": []}
        content["logprobs"] = list(self._answer.likely)
        message = {"id": self.item, "type": "message", "role": "assistant", "status": "completed"}
        return {**message, "content": [content]}

    def _items(self) -> list[dict[str, Any]]:
        calls = []
        for i, call in enumerate(self._answer.calls):
            ids = {"id": f"fc_{self.item[4:]}_{i}", "call_id": f"call_{self.item[4:]}_{i}", "status": "completed"}
            calls.append({"type": "function_call", **ids, "name": call.name, "arguments": call.arguments})
        return [self._message(), *calls]

    def _output(self) -> list[dict[str, Any]]:
        """Returns the output items. An empty message is left out if there are tool calls."""
        items = self._items()
        return items[1:] if len(items) > 1 and not self._answer.text.strip() else items

    def _usage(self) -> Mapping[str, Any]:
        plan, generated = self.stream.plan, self.stream.generated
        read, cached = (plan.tokens, plan.reused) if plan else (0, 0)
        return {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": generated,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + generated,
        }
