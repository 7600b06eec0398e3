"""Parses requests of OpenAI's chat completions protocol and builds its response objects. Uses no HTTP and no model."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localctx.engine.events import Planned, Token
from localctx.models.base import Messages
from localctx.models.token_controls import TokenControls
from localctx.models.tokenizer.tool_calls import ToolCall, call_schema
from localctx.serving.api_error import ApiError, Fields, as_text
from localctx.serving.sampling_fields import (
    check_model,
    grammar_of,
    read_controls,
    read_grammar,
    read_settings,
    read_stop,
    read_stream,
    read_top,
)
from localctx.settings import Settings
from localctx.workflows.reply import ReplyRequest

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
UNSUPPORTED = ("functions", "function_call", "audio", "prediction", "web_search_options", "store", "verbosity")
MAX_DOCUMENTS = 64  # per request


@dataclass(frozen=True)
class CompletionRequest:
    """A parsed request: the reply ``asked`` for, and how to send it.

    An answer ends before the first ``stop`` text. If ``forced``, the answer must be a tool call. If ``stream``, the
    answer is sent in chunks; ``include_usage`` adds a last chunk with token counts. ``echo`` is the prompt if it is to
    be repeated at the start of each answer, else "". ``labels`` is the metadata of the request.
    """

    asked: ReplyRequest
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    forced: bool = False
    echo: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, body: Any, settings: Settings) -> "CompletionRequest":
        """Parse a JSON body of ``/v1/chat/completions``. Missing fields come from ``settings``. Raises ApiError."""
        fields = Fields(body)
        check_model(fields, settings.model)
        fields.unsupported(*UNSUPPORTED)
        for name, allowed in (("service_tier", "auto default"), ("reasoning_effort", "none")):
            fields.choice(name, allowed.split())
        if fields.take("modalities", ["text"]) != ["text"]:
            raise fields.error("modalities", "may only be text")
        fields.choice("parallel_tool_calls", (True, False))  # a model may always call several
        tools, forced, schema = read_tools(fields)
        sampled = read_settings(fields, settings, "max_completion_tokens", "max_tokens")
        grammar = grammar_of(schema, "tools") if schema else read_grammar(fields, "response_format")
        controls = read_controls(fields, grammar, read_top(fields))
        messages, documents = read_messages(fields), read_documents(fields)
        stop, (stream, include_usage), labels = read_stop(fields), read_stream(fields), fields.labels()
        fields.take("response_format")
        fields.finish()
        if documents:
            asked = about_documents(messages, documents, ReplyRequest(sampled, controls=controls, tools=tools))
        else:
            asked = ReplyRequest(sampled, messages, tools=tools, controls=controls)
        return cls(asked, stop, stream, include_usage, forced, labels=labels)


@dataclass(frozen=True)
class CompletionResponse:
    """Builds the response objects of one request, answered by ``model``."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(self, choices: Sequence[Mapping[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        """Returns the answers, as ``choices``, in one ``chat.completion`` object with the token counts ``usage``."""
        return {**self._header("chat.completion"), "choices": [*choices], "usage": usage}

    def choice(
        self, index: int, text: str, finish: str, likely: Sequence[Any] | None, calls: Sequence[ToolCall], cited: Any
    ) -> dict[str, Any]:
        """Returns answer number ``index`` as a choice, with its tool ``calls`` and citations ``cited``. ``finish`` is
        the reason why the answer ended: stop, length or tool_calls. ``likely`` are the likeliest tokens of each step
        (None: not requested).
        """
        message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else ""), "refusal": None}
        if calls:
            message["tool_calls"] = [tool_call(call) for call in calls]
        if cited:
            message["annotations"] = cited
        logprobs = None if likely is None else {"content": [*likely], "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def chunk(
        self, delta: dict[str, Any], finish: str | None = None, index: int = 0, likely: Sequence[Any] | None = None
    ) -> dict[str, Any]:
        """Returns a part of answer number ``index`` as a ``chat.completion.chunk`` object. ``delta`` is the part of the
        message, and ``finish`` the reason why the answer ended (None before its end). ``likely`` are the likeliest
        tokens of the part (None: not requested).
        """
        logprobs = None if likely is None else {"content": [*likely], "refusal": None}
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**self._header("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Returns the last chunk of a request with ``include_usage``, which has the token counts ``usage`` and no
        choices.
        """
        return {**self._header("chat.completion.chunk"), "choices": [], "usage": usage}

    def _header(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def token_usage(plan: Planned, generated: int) -> dict[str, Any]:
    """Returns the token counts of an answer to a prompt with this ``plan``. The answer has ``generated`` tokens.

    ``cached_tokens`` is the number of tokens of the prompt that were not prefilled, because their KV pages were stored.
    """
    return {
        "prompt_tokens": plan.tokens,
        "completion_tokens": generated,
        "total_tokens": plan.tokens + generated,
        "prompt_tokens_details": {"cached_tokens": plan.reused},
    }


def tool_call(call: ToolCall) -> dict[str, Any]:
    """Returns a tool call in the API's form, with a new id."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function}


def logprob(token: Token) -> dict[str, Any]:
    """Returns the log-probability of ``token``, and the log-probabilities of the likeliest tokens at the same step, in
    the form of ``logprobs``.
    """
    assert token.logprobs, "probabilities were asked for"
    own, *top = (
        {"token": text, "logprob": max(value, -9999.0), "bytes": [*text.encode()]} for text, value in token.logprobs
    )
    return {**own, "top_logprobs": top}


def read_tools(fields: Fields) -> tuple[list[Any], bool, dict[str, Any] | None]:
    """Read the tools of a request. Returns three values: the tools that an answer may call, whether it must call one,
    and the JSON schema of such a call (None if no call is required).
    """
    tools, choice = fields.take("tools", []), fields.take("tool_choice")
    known = [_tool(tool, i) for i, tool in enumerate(tools)] if isinstance(tools, list) else None
    if known is None:
        raise fields.error("tools", "must be a list of tools")
    if choice == "none":
        return [], False, None
    if choice is None or choice == "auto":
        return known, False, None
    names = {tool["function"]["name"] for tool in known}
    named = choice.get("function", choice) if isinstance(choice, dict) else {}
    named = named.get("name") if isinstance(named, dict) else None
    if not known or (choice != "required" and not (isinstance(named, str) and named in names)):
        raise fields.error("tool_choice", "must be none, auto, required or the name of one of the tools")
    only = [tool for tool in known if choice == "required" or tool["function"]["name"] == named]
    return known, True, call_schema(only)


def read_messages(fields: Fields) -> list[dict[str, Any]]:
    """Returns the messages of a chat request. Raises ApiError."""
    given = fields.take("messages")
    if not isinstance(given, list) or not given:
        raise ApiError("messages must be a list of messages", "messages")
    messages = [read_message(one, f"messages[{i}]") for i, one in enumerate(given)]
    if messages[-1]["role"] not in ("user", "tool"):
        raise ApiError("the last message must be the user's, or a tool's", "messages")
    return messages


def read_message(given: Any, param: str) -> dict[str, Any]:
    """Converts the message ``given`` to the form that chat templates take, and returns it. Raises ApiError, which calls
    the message ``param``.
    """
    if not isinstance(given, dict) or given.get("role") not in list(ROLES):
        raise ApiError(f"{param} must have a role: {', '.join(ROLES)}", param)
    message: dict[str, Any] = {"role": ROLES[given["role"]]}
    calls = given.get("tool_calls")
    if calls and message["role"] == "assistant":
        message["tool_calls"] = _calls(calls, f"{param}.tool_calls")
    content = given.get("content")
    parts = (
        content
        if isinstance(content, list)
        else [{"type": "text", "text": "" if content is None and message["role"] == "assistant" else content}]
    )
    texts = [p.get("text") for p in parts if isinstance(p, dict) and str(p.get("type")).endswith("text")]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise ApiError(f"{param} has content that is not text", param)
    return {**message, "content": as_text("\n".join(map(str, texts)))}


def read_documents(fields: Fields) -> list[str]:
    """Returns the ids of the documents that a request is about. Raises ApiError."""
    given = fields.take("document_ids", [])
    if not isinstance(given, list) or len(given) > MAX_DOCUMENTS or not all(isinstance(one, str) for one in given):
        raise fields.error("document_ids", f"must be a list of up to {MAX_DOCUMENTS} ids")
    return [as_text(one) for one in given]


def about_documents(messages: Messages, documents: Sequence[str], asked: ReplyRequest) -> ReplyRequest:
    """Returns the request ``asked``, changed so that its question is about these ``documents`` (ids).

    The messages must be questions and answers in turn, and end with a question. Raises ApiError.
    """
    controls = asked.controls
    if asked.tools or controls.bias or controls.top is not None or asked.settings.n > 1:
        raise ApiError(
            "with document_ids, tools, biases, logprobs and several answers are not supported", "document_ids"
        )
    if controls.frequency_penalty or controls.presence_penalty:
        raise ApiError("with document_ids, penalties are not supported", "document_ids")
    roles, texts = [message["role"] for message in messages], [str(message["content"]) for message in messages]
    if roles != (["user", "assistant"] * len(roles))[: len(roles)]:
        raise ApiError("with document_ids the messages must be the user's and the assistant's in turn", "messages")
    if not texts[-1].strip():
        raise ApiError("the question is empty", "messages")
    history = list(zip(texts[:-1:2], texts[1:-1:2], strict=True))
    controls = TokenControls(grammar=controls.grammar)
    return ReplyRequest(asked.settings, controls=controls, documents=documents, question=texts[-1], history=history)


def _tool(given: Any, index: int) -> dict[str, Any]:
    param = f"tools[{index}]"
    function = given.get("function", given) if isinstance(given, dict) else None
    if not isinstance(function, dict) or given.get("type") != "function" or not isinstance(function.get("name"), str):
        raise ApiError(f"{param} must be a function with a name", param)
    if not isinstance(function.get("parameters") or {}, dict):
        raise ApiError(f"{param} must have parameters that are a JSON schema", param)
    return {"type": "function", "function": {name: value for name, value in function.items() if name != "type"}}


def _calls(given: Any, param: str) -> list[dict[str, Any]]:
    """Returns earlier tool calls with their arguments parsed into objects."""
    try:
        functions = [call["function"] for call in given]
        named = [(as_text(function["name"]), json.loads(function["arguments"])) for function in functions]
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError) as e:
        raise ApiError(f"{param} must be calls of functions with a name and arguments", param) from e
    return [{"type": "function", "function": {"name": n, "arguments": arguments}} for n, arguments in named]
