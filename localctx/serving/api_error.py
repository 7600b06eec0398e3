"""Defines ApiError, and reads the fields of a request one by one, so that unknown fields are rejected by name."""

from collections.abc import Collection, Mapping
from typing import Any

LABELS = ("user", "metadata", "prompt_cache_key", "safety_identifier")
"""The fields that label a request. They do not affect the answer and are not stored."""


class ApiError(Exception):
    """An error response in OpenAI's form: ``message``, HTTP ``status``, and ``param``, the name of the wrong field."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Fields:
    """The fields of a request's JSON ``body``.

    A field is taken at most once, and ``finish`` rejects the fields that were not taken. A null field counts as
    missing. Every error is an ApiError that names the field; ``prefix`` is put before the name.
    """

    def __init__(self, body: Any, prefix: str = "") -> None:
        if not isinstance(body, Mapping):
            raise ApiError(f"{prefix.rstrip('.')} must be a JSON object" if prefix else "a request is a JSON object")
        self._left, self._prefix = {name: value for name, value in body.items() if value is not None}, prefix

    def take(self, name: str, default: Any = None) -> Any:
        """Take a field of any type. Returns ``default`` if the field is missing."""
        return self._left.pop(name, default)

    def number(self, name: str, low: float, high: float) -> float | None:
        """Take a number from ``low`` to ``high``. Returns None if the field is missing. Raises ApiError for any other
        value.
        """
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.error(name, "must be a number")
        if value is not None and not low <= value <= high:
            raise self.error(name, f"= {value} is out of range; choose from {low:g} to {high:g}")
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Take a whole number from ``low`` to ``high``. Returns None if the field is missing. Raises ApiError for any
        other value.
        """
        value = self.number(name, low, high)
        if value is not None and not isinstance(value, int):
            raise self.error(name, "must be a whole number")
        return value

    def flag(self, name: str) -> bool:
        """Take True or False. Returns False if the field is missing. Raises ApiError for any other value."""
        return self.choice(name, (True, False), False)

    def text(self, name: str, default: str = "") -> str:
        """Take a text. Returns ``default`` if the field is missing. Lone surrogates in the text are replaced. Raises
        ApiError for any other value.
        """
        value = self.take(name, default)
        if not isinstance(value, str):
            raise self.error(name, "must be a text")
        return as_text(value)

    def choice(self, name: str, allowed: Collection[Any], default: Any = None) -> Any:
        """Take a field whose value must be in ``allowed``. Returns ``default`` if the field is missing.

        Raises ApiError for any other value.
        """
        value = self.take(name, default)
        known = (one for one in (*allowed, default) if one is not None)
        if value is not None and not any(type(value) is type(one) and value == one for one in known):
            raise self.error(name, f"= {value!r:.60} is not supported" + _offer(allowed))
        return value

    def object(self, name: str) -> "Fields":
        """Take a field that must be an object. Returns the fields of this object, or no fields if it is missing."""
        return Fields(self.take(name, {}), f"{self._prefix}{name}.")

    def labels(self) -> Mapping[str, Any]:
        """Take the fields that label a request: ``user``, ``metadata``, ``prompt_cache_key`` and ``safety_identifier``.

        Returns the value of ``metadata``, or {} if it is missing. Raises ApiError for a value of a wrong type.
        """
        for name in LABELS:
            kind = dict if name == "metadata" else str
            if not isinstance(self._left.get(name, kind()), kind):
                raise self.error(name, "must be an object" if kind is dict else "must be a text")
        metadata = self.take("metadata", {})
        for name in LABELS:
            self.take(name)
        return metadata

    def unsupported(self, *names: str) -> None:
        """Take the fields ``names``, which are not supported. Raises ApiError if one has a value other than null, false
        or empty.
        """
        for name in names:
            if self.take(name):
                raise self.error(name, "is not supported")

    def finish(self) -> None:
        """Raise ApiError if some fields were not taken. The error names one of them."""
        for name in self._left:
            raise self.error(as_text(str(name)), "is not a parameter of this server")

    def error(self, name: str, problem: str) -> ApiError:
        """Returns an error whose message is the field's name and then ``problem``."""
        return ApiError(f"{self._prefix}{name} {problem}", f"{self._prefix}{name}")


def as_text(value: str) -> str:
    """Returns ``value`` as encodable text. JSON allows lone surrogates, which are replaced."""
    return value.encode(errors="replace").decode()


def _offer(allowed: Collection[Any]) -> str:
    return f"; use one of: {', '.join(map(str, allowed))}" if 0 < len(allowed) < 8 else ""
