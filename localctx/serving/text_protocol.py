"""Parses requests of OpenAI's older completions protocol, which continues a raw text, and builds the objects of
responses.
"""

import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from localctx.serving.answer_stream import AnswerStream
from localctx.serving.api_error import Fields, as_text
from localctx.serving.openai_protocol import CompletionRequest
from localctx.serving.sampling_fields import (
    check_model,
    read_controls,
    read_settings,
    read_stop,
    read_stream,
)
from localctx.settings import Settings
from localctx.workflows.reply import ReplyRequest

MAX_LOGPROBS = 5


def parse_text_request(body: Any, settings: Settings) -> CompletionRequest:
    """Parse a JSON body of ``/v1/completions``. Raises ApiError."""
    fields = Fields(body)
    check_model(fields, settings.model)
    fields.unsupported("suffix")
    if fields.take("best_of", 1) not in (1, body.get("n")):
        raise fields.error("best_of", "must be n")
    prompt, echo = fields.take("prompt"), fields.flag("echo")
    prompt = prompt[0] if isinstance(prompt, list) and len(prompt) == 1 else prompt
    if not isinstance(prompt, str) or not prompt:
        raise fields.error("prompt", "must be one text")
    sampled = read_settings(fields, settings, "max_tokens")
    controls = read_controls(fields, "", fields.integer("logprobs", 0, MAX_LOGPROBS))
    if echo and controls.top is not None:
        raise fields.error("echo", "with logprobs is not supported")
    stop, (stream, usage), labels = read_stop(fields), read_stream(fields), fields.labels()
    fields.finish()
    prompt = as_text(prompt)
    asked = ReplyRequest(sampled, raw=prompt, controls=controls)
    return CompletionRequest(asked, stop, stream, usage, echo=prompt if echo else "", labels=labels)


@dataclass(frozen=True)
class TextResponse:
    """Builds the ``text_completion`` objects of one request, answered by ``model``."""

    model: str
    id: str = field(default_factory=lambda: f"cmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, stream: AnswerStream) -> "TextResponse":
        """Returns the builder for the answers of ``stream``."""
        return cls(stream.request.asked.settings.model)

    def completion(self, stream: AnswerStream, usage: dict[str, Any]) -> dict[str, Any]:
        """Returns all answers of ``stream`` as one ``text_completion`` object, with the token counts ``usage``."""
        wanted, choices = stream.request.asked.controls.top is not None, []
        for i, answer in enumerate(stream.answers):
            likely = _logprobs(answer.likely) if wanted else None
            choice = {"index": i, "text": stream.request.echo + answer.text, "logprobs": likely}
            choices.append({**choice, "finish_reason": stream.finish(i)})
        return {**self._header(), "choices": choices, "usage": usage}

    def chunk(
        self, index: int, text: str, finish: str | None = None, likely: Any = None, offset: int = 0
    ) -> dict[str, Any]:
        """Returns a part of answer number ``index`` as a ``text_completion`` object.

        ``finish`` is the reason why the answer ended (None before its end). ``likely`` are the likeliest tokens of the
        step that generated ``text`` (None: not requested). They begin at character ``offset`` of the answer.
        """
        logprobs = _logprobs([likely], offset) if likely else None
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return {**self._header(), "choices": [choice]}

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Returns the last chunk of a stream, which has the token counts ``usage`` and no choices."""
        return {**self._header(), "choices": [], "usage": usage}

    def _header(self) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}


def _logprobs(likely: list[dict[str, Any]], at: int = 0) -> dict[str, Any]:
    """Returns logprobs in the form of this protocol: parallel lists, with one entry for each token.

    The lists have the tokens, their log-probabilities, the likeliest tokens, and the characters of the answer at which
    the tokens begin. The first token begins at ``at``.
    """
    offsets = []
    for one in likely:
        offsets.append(at)
        at += len(one["token"])
    return {
        "tokens": [one["token"] for one in likely],
        "token_logprobs": [one["logprob"] for one in likely],
        "top_logprobs": [{top["token"]: top["logprob"] for top in one["top_logprobs"]} for one in likely],
        "text_offset": offsets,
    }
