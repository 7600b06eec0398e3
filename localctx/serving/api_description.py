"""Describes the server's API in OpenAPI, as served under /openapi.json."""

from collections.abc import Mapping
from typing import Any

from localctx.version import __version__

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}


def _number(low: float, high: float, kind: str = "number") -> Schema:
    return {"type": kind, "minimum": low, "maximum": high}


def _list(items: Schema, most: int, least: int = 1) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


def _object(required: str = "", **properties: Schema) -> Schema:
    named = {"required": required.split()} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **named}


def _of(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_STOP: Schema = {"anyOf": [{"type": "string", "minLength": 1}, _list({"type": "string", "minLength": 1}, 16)]}
_LABELS = {"user": _TEXT, "metadata": {"type": "object"}, "prompt_cache_key": _TEXT, "safety_identifier": _TEXT}
_SAMPLING = {
    "model": _TEXT,
    "temperature": _number(0, 10),
    "top_p": _number(1e-6, 1),
    "top_k": _number(0, 1 << 20, "integer"),
    "seed": _number(-(1 << 63), (1 << 63) - 1, "integer"),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "logit_bias": {"type": "object", "additionalProperties": _number(-100, 100)},
    "stream": _FLAG,
    "stream_options": _object(include_usage=_FLAG),
}
_TOKENS = _number(1, 1 << 20, "integer")
_CONTENT: Schema = {"anyOf": [_TEXT, _list(_object("type text", type={"const": "text"}, text=_TEXT), 64)]}
_MESSAGE = _object(
    "role content",
    role={"enum": ["system", "developer", "user", "assistant", "tool"]},
    content=_CONTENT,
    name=_TEXT,
    tool_call_id=_TEXT,
)
_FUNCTION = _object("name", name={"type": "string", "minLength": 1}, description=_TEXT, parameters={"type": "object"})
_JSON_SCHEMA = _object("name schema", name=_TEXT, schema={"type": "object"}, strict=_FLAG, description=_TEXT)
_FORMAT: Schema = {
    "anyOf": [
        _object("type", type={"enum": ["text", "json_object"]}),
        _object("type json_schema", type={"const": "json_schema"}, json_schema=_JSON_SCHEMA),
    ]
}
_SCHEMAS: dict[str, Schema] = {
    "ChatRequest": _object(
        "messages",
        messages=_list(_MESSAGE, 1024),
        **_SAMPLING,
        n=_number(1, 16, "integer"),
        max_tokens=_TOKENS,
        max_completion_tokens=_TOKENS,
        stop=_STOP,
        logprobs=_FLAG,
        top_logprobs=_number(0, 20, "integer"),
        response_format=_FORMAT,
        tools=_list(_object("type function", type={"const": "function"}, function=_FUNCTION), 128, 0),
        tool_choice={"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]},
        document_ids=_list(_TEXT, 64, 0),
        **_LABELS,
    ),
    "CompletionRequest": _object(
        "prompt",
        prompt={"type": "string", "minLength": 1},
        **_SAMPLING,
        n=_number(1, 16, "integer"),
        max_tokens=_TOKENS,
        stop=_STOP,
        echo=_FLAG,
        logprobs=_number(0, 5, "integer"),
        **_LABELS,
    ),
    "ResponseRequest": _object(
        "input",
        input={"anyOf": [_TEXT, _list(_MESSAGE, 1024)]},
        instructions=_TEXT,
        **_SAMPLING,
        max_output_tokens=_TOKENS,
        top_logprobs=_number(0, 20, "integer"),
        text=_object(format={"type": "object"}),
        tools=_list({"type": "object"}, 128, 0),
        tool_choice={"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}]},
        document_ids=_list(_TEXT, 64, 0),
        **_LABELS,
    ),
    "EmbeddingRequest": _object(
        "input",
        input={"anyOf": [{"type": "string", "minLength": 1}, _list({"type": "string", "minLength": 1}, 2048)]},
        model=_TEXT,
        encoding_format={"enum": ["float", "base64"]},
        dimensions=_number(1, 1 << 16, "integer"),
        user=_TEXT,
    ),
    "Upload": _object(
        "file", file={"type": "string", "format": "binary"}, purpose={"enum": ["assistants", "user_data"]}
    ),
    "Error": {"type": "object", "properties": {"error": {"type": "object"}}, "required": ["error"]},
}
_ID = {"name": "id", "in": "path", "required": True, "schema": _TEXT}
_LISTING = [
    {"name": "limit", "in": "query", "schema": _number(1, 10_000, "integer")},
    {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"]}},
    {"name": "purpose", "in": "query", "schema": _TEXT},
]


def describe_api() -> dict[str, Any]:
    """Returns the OpenAPI description."""
    key = {"type": "http", "scheme": "bearer", "description": "the key that `localctx serve` prints"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "localctx", "version": __version__},
        "security": [{"key": []}],
        "paths": {
            "/v1/chat/completions": {"post": _post("Answer a conversation.", "ChatRequest")},
            "/v1/completions": {"post": _post("Continue a text.", "CompletionRequest")},
            "/v1/responses": {"post": _post("Answer a conversation; nothing of it is stored.", "ResponseRequest")},
            "/v1/embeddings": {"post": _post("Turn texts into vectors.", "EmbeddingRequest")},
            "/v1/files": {
                "get": _operation("List the documents of the library.", parameters=_LISTING),
                "post": _post("Read a file into the library.", "Upload", "multipart/form-data"),
            },
            "/v1/files/{id}": {
                "get": _operation("Describe a document.", parameters=[_ID]),
                "delete": _operation("Delete a document.", parameters=[_ID]),
            },
            "/v1/files/{id}/content": {"get": _operation("The text of a document.", parameters=[_ID], content=False)},
            "/v1/models": {"get": _operation("List the models.")},
            "/v1/models/{id}": {"get": _operation("Describe a model.", parameters=[_ID])},
            "/metrics": {"get": _operation("Counts, for Prometheus.", content=False)},
            "/health": {"get": {**_operation("Say that the server runs."), "security": []}},
        },
        "components": {"schemas": _SCHEMAS, "securitySchemes": {"key": key}},
    }


def _post(summary: str, body: str, kind: str = "application/json") -> dict[str, Any]:
    return {**_operation(summary), "requestBody": {"required": True, "content": {kind: {"schema": _of(body)}}}}


def _operation(summary: str, content: bool = True, **more: Any) -> dict[str, Any]:
    done: Mapping[str, Any] = {"application/json": {"schema": {"type": "object"}}} if content else {"text/plain": {}}
    if "Answer" in summary or "Continue" in summary:
        done = {**done, "text/event-stream": {}}
    error = {"description": "what is wrong", "content": {"application/json": {"schema": _of("Error")}}}
    return {
        "summary": summary,
        "responses": {"200": {"description": "done", "content": done}, "default": error},
        **more,
    }
