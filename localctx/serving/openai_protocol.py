"""OpenAI's chat completions protocol: requests are parsed, response objects are built. No HTTP, no model."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localctx.engine.events import Planned
from localctx.models.base import Messages
from localctx.settings import Settings, with_changes

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MAX_STOPS = 16  # stop texts in a request
UNSUPPORTED = ("tools", "functions", "response_format", "logprobs", "logit_bias", "audio", "modalities")


class ApiError(Exception):
    """A request that cannot be answered, in OpenAI's error form. ``param`` names the field that is wrong."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class CompletionRequest:
    """A request for the next assistant message after ``messages``, sampled under ``settings``, up to a ``stop`` text.

    ``stream`` sends the answer in chunks, with ``include_usage`` a last chunk that counts tokens.
    """

    messages: Messages
    settings: Settings
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False

    @classmethod
    def parse(cls, body: Any, settings: Settings) -> "CompletionRequest":
        """Parse a JSON body; missing fields come from ``settings``. Raises ApiError; UsageError for a bad number."""
        if not isinstance(body, dict):
            raise ApiError("a request is a JSON object")
        if body.get("model", settings.model) != settings.model:
            problem = f"this server does not have the model {body['model']!r}; it has {settings.model!r}"
            raise ApiError(problem, "model", 404, "model_not_found")
        for name in UNSUPPORTED:
            if body.get(name) and body[name] != {"type": "text"}:
                raise ApiError(f"{name} is not supported", name)
        if body.get("n") not in (None, 1):
            raise ApiError("n must be 1: this server gives one answer per request", "n")
        options = body.get("stream_options") or {}
        include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return cls(_messages(body), _sampled(body, settings), _stop(body), bool(body.get("stream")), include_usage)


@dataclass(frozen=True)
class CompletionResponse:
    """Builds the response objects of one request, answered by ``model``."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(self, text: str, finish: str, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer as one ``chat.completion`` object."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._header("chat.completion"), "choices": [choice], "usage": usage}

    def chunk(self, delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        """Return a part of the answer as a ``chat.completion.chunk`` object."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._header("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Return the last chunk of a request with ``include_usage``: no choices, but token counts."""
        return {**self._header("chat.completion.chunk"), "choices": [], "usage": usage}

    def _header(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def token_usage(plan: Planned, generated: int) -> dict[str, Any]:
    """Return the token counts of an answer. ``cached_tokens`` were not prefilled: their KV pages were restored."""
    return {
        "prompt_tokens": plan.tokens,
        "completion_tokens": generated,
        "total_tokens": plan.tokens + generated,
        "prompt_tokens_details": {"cached_tokens": plan.reused},
    }


class StopTexts:
    """Cuts streamed text at the first stop text. The end of the text is buffered while it may begin a stop text.

    ``stopped`` becomes True once a stop text has come.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._buffer = stops, ""
        self.stopped = False

    def __call__(self, text: str) -> str:
        """Append ``text``. Returns what can be sent: text that no stop text can still cut."""
        if self.stopped:
            return ""
        pending = self._buffer + text
        if starts := [at for stop in self._stops if (at := pending.find(stop)) >= 0]:
            self.stopped, self._buffer = True, ""
            return pending[: min(starts)]
        back = max((n for stop in self._stops for n in range(1, len(stop)) if pending.endswith(stop[:n])), default=0)
        self._buffer = pending[len(pending) - back :]
        return pending[: len(pending) - back]

    def flush(self) -> str:
        """Return the buffered text, once no more text comes."""
        pending, self._buffer = self._buffer, ""
        return pending


def _messages(body: dict[str, Any]) -> list[dict[str, str]]:
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise ApiError("messages must be a list of messages", "messages")
    messages = [_message(one, f"messages[{i}]") for i, one in enumerate(given)]
    if messages[-1]["role"] != "user":
        raise ApiError("the last message must be the user's", "messages")
    return messages


def _message(given: Any, param: str) -> dict[str, str]:
    if not isinstance(given, dict) or given.get("role") not in list(ROLES):
        raise ApiError(f"{param} must have a role: {', '.join(ROLES)}", param)
    content = given.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [p.get("text") for p in parts if isinstance(p, dict) and p.get("type") == "text"]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise ApiError(f"{param} has content that is not text", param)
    content = "\n".join(map(str, texts)).encode(errors="replace").decode()  # JSON allows lone surrogates
    return {"role": ROLES[given["role"]], "content": content}


def _sampled(body: dict[str, Any], settings: Settings) -> Settings:
    """Return the settings with the request's sampling parameters. Raises ApiError, UsageError."""
    kinds = {"temperature": (int, float), "top_p": (int, float), "top_k": (int,), "seed": (int,), "max_tokens": (int,)}
    limit = body.get("max_completion_tokens")
    fields = {**body, "max_tokens": body.get("max_tokens") if limit is None else limit}
    given = {name: fields[name] for name in kinds if fields.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ApiError(f"{name} must be a number", name)
    return with_changes(replace(settings, n=1, beams=1), given)


def _stop(body: dict[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise ApiError(f"stop must be a text, or a list of up to {MAX_STOPS} texts", "stop")
    return tuple(stops)
