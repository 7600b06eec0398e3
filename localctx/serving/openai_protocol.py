"""Completion: what a chat completion of OpenAI's API asks for, and the objects that answer it. No HTTP, no model."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localctx.engine.events import Planned
from localctx.models.base import Messages
from localctx.settings import Settings, with_changes

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
STOPS = 16  # stop texts, at most
NOT_HERE = ("tools", "functions", "response_format", "logprobs", "logit_bias", "audio", "modalities")


class ApiError(Exception):
    """A request that cannot be answered, as OpenAI tells it: ``param`` is to blame."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True)
class CompletionRequest:
    """What is asked for: the next turn of ``messages`` under ``settings``, up to one of the texts in ``stop``.

    ``streams``: piece by piece, with ``counts`` of tokens at the end.
    """

    messages: Messages
    settings: Settings
    stop: tuple[str, ...] = ()
    streams: bool = False
    counts: bool = False

    @classmethod
    def parse(cls, body: Any, settings: Settings) -> "CompletionRequest":
        """What is not said is as in ``settings``. Raises Refused; UsageError for a number out of range."""
        if not isinstance(body, dict):
            raise ApiError("a request is a JSON object")
        if body.get("model", settings.model) != settings.model:
            said = f"the model {body['model']!r} is not here; {settings.model!r} is"
            raise ApiError(said, "model", 404, "model_not_found")
        for name in NOT_HERE:
            if body.get(name) and body[name] != {"type": "text"}:
                raise ApiError(f"{name} is not to be had here", name)
        if body.get("n") not in (None, 1):
            raise ApiError("one answer at a time (n = 1)", "n")
        options = body.get("stream_options") or {}
        counts = isinstance(options, dict) and bool(options.get("include_usage"))
        return cls(_messages(body), _sampled(body, settings), _stop(body), bool(body.get("stream")), counts)


@dataclass(frozen=True)
class CompletionResponse:
    """The answer to one request by ``model``."""

    model: str
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, text: str, finish: str, usage: dict[str, Any]) -> dict[str, Any]:
        """The answer in one object."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return {**self._of("chat.completion"), "choices": [choice], "usage": usage}

    def piece(self, delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        """A piece of it."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._of("chat.completion.chunk"), "choices": [choice]}

    def counted(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The last piece, where tokens are to be counted."""
        return {**self._of("chat.completion.chunk"), "choices": [], "usage": usage}

    def _of(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage(plan: Planned, generated: int) -> dict[str, Any]:
    """Tokens; those ``cached`` were read before, and their pages kept."""
    return {
        "prompt_tokens": plan.tokens,
        "completion_tokens": generated,
        "total_tokens": plan.tokens + generated,
        "prompt_tokens_details": {"cached_tokens": plan.reused},
    }


class StopTexts:
    """Text up to the first of the ``stops``; what may be the beginning of one is held back. ``met``: one came."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = stops, ""
        self.met = False

    def __call__(self, text: str) -> str:
        """What is certain with ``text``."""
        if self.met:
            return ""
        held = self._held + text
        if found := [at for stop in self._stops if (at := held.find(stop)) >= 0]:
            self.met, self._held = True, ""
            return held[: min(found)]
        back = max((n for stop in self._stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
        self._held = held[len(held) - back :]
        return held[: len(held) - back]

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return held


def _messages(body: dict[str, Any]) -> list[dict[str, str]]:
    said = body.get("messages")
    if not isinstance(said, list) or not said:
        raise ApiError("messages is a list of what was said", "messages")
    messages = [_message(one, f"messages[{i}]") for i, one in enumerate(said)]
    if messages[-1]["role"] != "user":
        raise ApiError("the last message is the user's", "messages")
    return messages


def _message(said: Any, param: str) -> dict[str, str]:
    if not isinstance(said, dict) or said.get("role") not in list(ROLES):
        raise ApiError(f"{param} has a role: {', '.join(ROLES)}", param)
    content = said.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [p.get("text") for p in parts if isinstance(p, dict) and p.get("type") == "text"]
    if len(texts) < len(parts) or not all(isinstance(text, str) for text in texts):
        raise ApiError(f"{param} has a content that is not text", param)
    content = "\n".join(map(str, texts)).encode(errors="replace").decode()  # JSON can say halves of a character
    return {"role": ROLES[said["role"]], "content": content}


def _sampled(body: dict[str, Any], settings: Settings) -> Settings:
    """The settings as a request changes them. Raises Refused, UsageError."""
    kinds = {"temperature": (int, float), "top_p": (int, float), "top_k": (int,), "seed": (int,), "max_tokens": (int,)}
    most = body.get("max_completion_tokens")
    asked = {**body, "max_tokens": body.get("max_tokens") if most is None else most}
    said = {name: asked[name] for name in kinds if asked.get(name) is not None}
    for name, value in said.items():
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise ApiError(f"{name} is a number", name)
    return with_changes(replace(settings, n=1, beams=1), said)


def _stop(body: dict[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or len(stops) > STOPS or not all(isinstance(s, str) and s for s in stops):
        raise ApiError(f"stop is a text, or up to {STOPS} of them", "stop")
    return tuple(stops)
