"""The bodies of requests, up to a size, and the headers of responses."""

import json
from typing import Any

from starlette.requests import Request

from localctx.serving.api_error import ApiError

MAX_BODY_BYTES = 64 << 20  # of a request
HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}


async def json_body(request: Request) -> Any:
    """Returns the JSON of a request's body. Raises ApiError."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MAX_BODY_BYTES:
            raise ApiError(f"a request may have at most {MAX_BODY_BYTES:,} bytes", status=413)
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as e:
        raise ApiError("the request is not JSON, or too deep") from e
