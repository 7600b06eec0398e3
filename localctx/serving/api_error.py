"""ApiError, and Fields: what a request may say, read field by field; what nobody reads is refused by name."""

from collections.abc import Collection, Mapping
from typing import Any

LABELS = ("user", "metadata", "prompt_cache_key", "safety_identifier")
"""Fields that say for whom a request is: no answer depends on them, and nothing of them is kept."""


class ApiError(Exception):
    """A request that cannot be answered, in OpenAI's error form. ``param`` names the field that is wrong."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Fields:
    """The fields of a request's JSON ``body``; null is as if a field were not there. Each is taken once, and ``finish``
    refuses what was not taken. Everything raises ApiError, which names the field.
    """

    def __init__(self, body: Any, prefix: str = "") -> None:
        if not isinstance(body, Mapping):
            raise ApiError(f"{prefix.rstrip('.')} must be a JSON object" if prefix else "a request is a JSON object")
        self._left, self._prefix = {name: value for name, value in body.items() if value is not None}, prefix

    def take(self, name: str, default: Any = None) -> Any:
        """Returns a field, whatever it is."""
        return self._left.pop(name, default)

    def number(self, name: str, low: float, high: float) -> float | None:
        """Returns a number from ``low`` to ``high``; None if it is not given."""
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.error(name, "must be a number")
        if value is not None and not low <= value <= high:
            raise self.error(name, f"= {value} is out of range; choose from {low:g} to {high:g}")
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """As ``number``, for whole numbers."""
        value = self.number(name, low, high)
        if value is not None and not isinstance(value, int):
            raise self.error(name, "must be a whole number")
        return value

    def flag(self, name: str) -> bool:
        """Returns a boolean; False if it is not given."""
        return self.choice(name, (True, False), False)

    def text(self, name: str, default: str = "") -> str:
        """Returns a text in which nothing is left that is no character."""
        value = self.take(name, default)
        if not isinstance(value, str):
            raise self.error(name, "must be a text")
        return as_text(value)

    def choice(self, name: str, allowed: Collection[Any], default: Any = None) -> Any:
        """Returns one of the values ``allowed``; others are not supported."""
        value = self.take(name, default)
        known = (one for one in (*allowed, default) if one is not None)
        if value is not None and not any(type(value) is type(one) and value == one for one in known):
            raise self.error(name, f"= {value!r:.60} is not supported" + _offer(allowed))
        return value

    def object(self, name: str) -> "Fields":
        """Returns the fields of an object; of an empty one if it is not given."""
        return Fields(self.take(name, {}), f"{self._prefix}{name}.")

    def labels(self) -> Mapping[str, Any]:
        """Take LABELS; returns ``metadata``."""
        for name in LABELS:
            kind = dict if name == "metadata" else str
            if not isinstance(self._left.get(name, kind()), kind):
                raise self.error(name, "must be an object" if kind is dict else "must be a text")
        metadata = self.take("metadata", {})
        for name in LABELS:
            self.take(name)
        return metadata

    def unsupported(self, *names: str) -> None:
        """Refuse these fields, unless they say no: null, false or empty."""
        for name in names:
            if self.take(name):
                raise self.error(name, "is not supported")

    def finish(self) -> None:
        """Refuse what was not taken."""
        for name in self._left:
            raise self.error(as_text(str(name)), "is not a parameter of this server")

    def error(self, name: str, problem: str) -> ApiError:
        """Returns what is wrong with a field, as an error."""
        return ApiError(f"{self._prefix}{name} {problem}", f"{self._prefix}{name}")


def as_text(value: str) -> str:
    """Returns ``value`` as a text that can be encoded: JSON allows lone surrogates."""
    return value.encode(errors="replace").decode()


def _offer(allowed: Collection[Any]) -> str:
    return f"; use one of: {', '.join(map(str, allowed))}" if 0 < len(allowed) < 8 else ""
