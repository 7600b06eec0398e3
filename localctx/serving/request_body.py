"""Reads request bodies up to a limit, and defines the headers of responses."""

import json
import math
from typing import Any

from starlette.requests import Request

from localctx.serving.api_error import ApiError

MAX_BODY_BYTES = 64 << 20  # per request
HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


async def json_body(request: Request) -> Any:
    """Returns a request's body, parsed as JSON. Raises ApiError."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(f"a request may have at most {MAX_BODY_BYTES:,} bytes", status=413)
    return parse_json(bytes(data))


def parse_json(data: bytes) -> Any:
    """Parse JSON into values that a response can contain as well. Lone surrogates are replaced, infinite numbers are
    rejected. Raises ApiError.
    """
    try:
        value = json.loads(data, parse_float=_finite, parse_constant=_finite)
        if b"\\ud" in data.lower():
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError) as e:
        raise ApiError("the request is not JSON, is nested too deeply, or has an infinite number") from e
    return value


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(number)
    return value
