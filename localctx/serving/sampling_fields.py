"""Parses the sampling parameters of requests into settings and token controls."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localctx.errors import UsageError
from localctx.models.constraint import JSON_OBJECT, json_grammar
from localctx.models.token_controls import TokenControls
from localctx.serving.api_error import ApiError, Fields, as_text
from localctx.settings import Settings, with_changes

MAX_STOPS = 16  # stop texts in a request
MAX_ANSWERS = 16
MAX_TOP = 20  # most top_logprobs per step
_NUMBERS = {"temperature": float, "top_p": float, "top_k": int, "seed": int}


def read_settings(fields: Fields, settings: Settings, *limits: str) -> Settings:
    """Returns ``settings``, changed by the sampling parameters of a request.

    ``limits`` are the names of parameters that limit the number of tokens of an answer. The first one that the request
    has is used. Raises ApiError.
    """
    wanted = [fields.integer(name, -(1 << 40), 1 << 40) for name in limits]
    given: dict[str, Any] = {"max_tokens": next((one for one in wanted if one is not None), None)}
    for name, kind in _NUMBERS.items():
        read = fields.integer if kind is int else fields.number
        given[name] = read(name, -(1 << 63), (1 << 63) - 1)
    given["n"] = fields.integer("n", 1, MAX_ANSWERS) or 1
    changes = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        _check(settings, name, value)
    if given["n"] > 1 and not changes.get("temperature", settings.temperature):
        raise ApiError("n answers at temperature 0 would be the same: give a temperature", "n")
    return with_changes(replace(settings, n=1, beams=1), changes)


def _check(settings: Settings, name: str, value: Any) -> None:
    """Raise ApiError, naming the parameter, if the settings reject the value."""
    try:
        with_changes(replace(settings, n=1, beams=1, temperature=1), {name: value})
    except UsageError as e:
        raise ApiError(str(e), name) from e


def read_controls(fields: Fields, grammar: str, top: int | None) -> TokenControls:
    """Returns the token controls of a request: its penalties and logit biases, the ``grammar`` that the answer must
    follow ("": none), and ``top``, the number of likeliest tokens to report at each step (None: no logprobs). Raises
    ApiError.
    """
    return TokenControls(
        fields.number("frequency_penalty", -2, 2) or 0.0,
        fields.number("presence_penalty", -2, 2) or 0.0,
        _bias(fields),
        grammar,
        top,
    )


def read_top(fields: Fields) -> int | None:
    """Returns how many of the likeliest tokens a chat request wants with their logprobs at each step; None if it wants
    no logprobs.
    """
    wanted, top = fields.flag("logprobs"), fields.integer("top_logprobs", 0, MAX_TOP)
    if top is not None and not wanted:
        raise fields.error("top_logprobs", "needs logprobs = true")
    return (top or 0) if wanted else None


def read_grammar(fields: Fields, name: str) -> str:
    """Returns the grammar for the format of the answer, which the field ``name`` describes; "" if there is none. The
    field's type is ``text`` (no grammar), ``json_object`` or ``json_schema``. Raises ApiError.
    """
    if not (given := fields.take(name)):
        return ""
    form = Fields(given, f"{name}.")
    kind = form.choice("type", ("text", "json_object", "json_schema"), "text")
    schema = JSON_OBJECT if kind == "json_object" else None
    if kind == "json_schema":
        own = form if name == "text.format" else Fields(form.take("json_schema", {}), f"{name}.json_schema.")
        schema = own.take("schema")
        for label in ("name", "description", "strict"):  # the schema is always enforced strictly
            own.take(label)
        own.finish()
        if not isinstance(schema, Mapping):
            raise fields.error(name, "has no schema that is a JSON object")
    form.finish()
    return "" if schema is None else grammar_of(schema, name)


def grammar_of(schema: Mapping[str, Any], name: str) -> str:
    """Returns the grammar of a JSON schema that was given in the parameter ``name``. Raises ApiError."""
    try:
        return json_grammar(schema)
    except (UsageError, RecursionError, ValueError) as e:
        raise ApiError(f"{name}: {e}", name) from e


def read_stop(fields: Fields) -> tuple[str, ...]:
    """Returns the stop texts. An answer ends before the first stop text in it. Raises ApiError."""
    stop = fields.take("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or len(stops) > MAX_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise ApiError(f"stop must be a text, or a list of up to {MAX_STOPS} texts", "stop")
    return tuple(map(as_text, stops))


def read_stream(fields: Fields) -> tuple[bool, bool]:
    """Reads how the answer is to be sent. Returns two booleans: whether it is streamed, and whether a last chunk has
    the token counts.
    """
    stream, options = fields.flag("stream"), fields.object("stream_options")
    include_usage = options.flag("include_usage")
    options.choice("include_obfuscation", (False,))
    options.finish()
    return stream, include_usage


def check_model(fields: Fields, *names: str) -> None:
    """Raise ApiError if the requested model is not among ``names``."""
    model = fields.take("model", names[0])
    if model not in names:
        problem = f"this server does not have the model {model!r:.100}; it has {names[0]!r}"
        raise ApiError(as_text(problem), "model", 404, "model_not_found")


def _bias(fields: Fields) -> dict[int, float]:
    given = fields.take("logit_bias", {})
    if not isinstance(given, Mapping) or len(given) > 1024:
        raise fields.error("logit_bias", "must be an object of up to 1,024 token ids")
    bias = Fields(given, "logit_bias.")
    if any(not str(token).isascii() or not str(token).isdigit() or len(str(token)) > 9 for token in given):
        raise fields.error("logit_bias", "must have ids of tokens as names")
    return {int(token): bias.number(token, -100, 100) or 0.0 for token in given}
