"""An OpenAI-compatible server: its address, model and window, and its errors as one line each."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from localctx.batch.http_connection import ConnectionBroken, HttpConnection, HttpReply
from localctx.errors import DocumentError, ModelError, TooLong, UsageError, UserError
from localctx.network import refuse_offline

KEY = "LOCALCTX_SERVER_KEY"  # the environment variable
MAX_MESSAGE = 200  # characters of a server's error message
RETRY_STATUSES = (429, 500, 502, 503, 504, 529)  # a server may recover from these
BUSY_STATUSES = (429, 503, 529)
KEY_STATUSES = (401, 403)
MAX_RETRY_AFTER = 120  # seconds
MAX_LISTED = 5  # models named in a line

_TOO_LONG = re.compile(r"context.?(length|window|size)|exceed_context|too (long|large|many tokens)", re.I)
_WINDOW = re.compile(r"(?:context.?(?:length|window|size)|n_ctx|reads at most)\D{0,20}?(\d[\d,]*)", re.I)


class RetryLater(Exception):
    """Raised if the server may be able to answer in ``after`` seconds. ``error`` is the error to raise if it still
    cannot. ``affects_all`` is True if requests with other texts fail too.
    """

    def __init__(self, error: ModelError, affects_all: bool, after: float = 0) -> None:
        super().__init__(str(error))
        self.error, self.affects_all, self.after = error, affects_all, after


@dataclass(frozen=True)
class ServerAddress:
    """The address of a server. ``base`` is its URL up to /v1/, ``host`` its name and port. ``is_local`` is True if the
    server is on this machine, and ``encrypted`` is True for https.
    """

    base: str
    host: str
    is_local: bool
    encrypted: bool

    @classmethod
    def parse(cls, url: str) -> "ServerAddress":
        """Returns the address that a URL names. Raises UsageError if the URL is not valid or has a password."""
        try:
            parts = urlsplit(url.strip())
            name, port = parts.hostname, parts.port
        except ValueError as e:
            raise UsageError(f"{url!r} is not a URL ({e})", "write it as http://127.0.0.1:8000") from e
        if parts.username or parts.password:
            raise UsageError("a password in the address could be seen by others", f"put the key into {KEY}")
        if parts.scheme not in ("http", "https") or not name:
            raise UsageError(f"{url!r} is not the URL of a server", "write it as http://127.0.0.1:8000")
        quoted = f"[{name}]" if ":" in name else name
        host, path = f"{quoted}:{port}" if port else quoted, parts.path.rstrip("/")
        base = f"{parts.scheme}://{host}{path if path.endswith('/v1') else path + '/v1'}/"
        return cls(base, host, _is_local(name), parts.scheme == "https")

    def refuse_offline(self) -> None:
        """Raise OfflineError if the server is another machine and the setting ``offline`` is on."""
        if not self.is_local:
            refuse_offline(f"{self.host} is another machine", "use a server on this machine, or leave out --offline")


@dataclass
class RemoteServer:
    """A server that all threads of a batch share: its ``model``, and its ``window`` in tokens (None: unknown).

    ``answered`` is True if the server has answered at least once. ``estimated`` is True if it does not count tokens and
    the user was told so. ``streams`` is True while answers are requested as streams; it becomes False when a stream
    breaks off. (llama-cpp-python's server ends a stream when another request arrives, and reports errors only to
    requests without streaming.)
    """

    address: ServerAddress
    key: str = field(repr=False)
    model: str = ""
    window: int | None = None
    answered: bool = False
    streams: bool = True
    estimated: bool = False

    def __post_init__(self) -> None:
        if not (self.key.isascii() and self.key.isprintable()):
            raise UsageError(f"{KEY} has characters that a key cannot have", "set it again")

    @contextmanager
    def connect(self, cancelled: Callable[[], bool]) -> Iterator[HttpConnection]:
        """Open a connection for one thread."""
        self.address.refuse_offline()
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        connection = HttpConnection(self.address.base, headers, self.address.is_local, cancelled)
        try:
            yield connection
        finally:
            connection.close()

    def choose_model(self, connection: HttpConnection, name: str | None) -> None:
        """Use the model ``name``, or the server's only model if ``name`` is None, and find out the model's window.
        Raises ModelError, UsageError, RetryLater.
        """
        models = {m["id"]: m for m in self._models(connection)}
        if name is None and len(models) > 1:
            raise UsageError(f"{self.address.host} has several models", f"choose with --server-model: {_some(models)}")
        if not models or (name and name not in models):
            raise self._no_model(name, models)
        self.model = name or next(iter(models))
        self.window = _number(models[self.model].get("max_model_len")) or self._llama_cpp_window(connection)

    def refusal(self, connection: HttpConnection, reply: HttpReply) -> UserError | RetryLater:
        """Returns the error to raise for a reply whose status is not 200. The cause may be the server or the text of
        the request.
        """
        status, message = reply.status, self._one_line(reply.text())
        if status == 413 or (status not in (*KEY_STATUSES, 404, 429) and _TOO_LONG.search(message)):
            return self._too_long(message)
        if status == 404:
            return self._no_model(self.model, {m["id"] for m in self._models(connection)})
        if status in (400, 409, 422):
            return DocumentError(
                f"{self.address.host} refused the document ({status}: {message})", "see that server's log"
            )
        return self._server_error(status, message, reply.headers)

    def broken(self, e: ConnectionBroken) -> RetryLater:
        """Returns the error to raise for a connection that broke or was never made."""
        why = f"{self.address.host} closed the connection ({self._one_line(str(e))})"
        return RetryLater(ModelError(why, "see its log, and run this again to continue"), affects_all=e.unreachable)

    def refuse_too_long(self, tokens: float) -> None:
        """Raise TooLong if the window is known and a prompt of ``tokens`` tokens does not fit."""
        if self.window and tokens >= self.window:
            raise self._too_long("")

    def _server_error(self, status: int, message: str, headers: Mapping[str, str]) -> ModelError | RetryLater:
        if status not in RETRY_STATUSES:
            return self._model_error(status, message)
        after = headers.get("retry-after", "")
        return RetryLater(
            self._model_error(status, message),
            status in BUSY_STATUSES,
            min(MAX_RETRY_AFTER, int(after) if after.isdecimal() else 0),
        )

    def _model_error(self, status: int, message: str) -> ModelError:
        host = self.address.host
        if status in KEY_STATUSES:
            why = "does not accept the key" if self.key else "needs a key"
            return ModelError(f"{host} {why} ({status}: {message})", f"set {KEY} to one that it accepts")
        if 300 <= status < 400:
            return ModelError(f"{host} redirects to another address ({status})", "give that address with --server")
        if status in BUSY_STATUSES:
            return ModelError(
                f"{host} is busy ({status}: {message})", "run this again later, or with a lower --together"
            )
        return ModelError(f"{host} failed ({status}: {message})", "see its log, and run this again to continue")

    def bad_response(self) -> ModelError:
        """Returns the error to raise for a response that does not follow OpenAI's API."""
        what = f"the response of {self.address.base} is not in OpenAI's form"
        return ModelError(what, "check --server, as http://127.0.0.1:8000/v1")

    def _models(self, connection: HttpConnection) -> list[dict[str, Any]]:
        body = self._get(connection, "models")
        models = body.get("data") if isinstance(body, dict) else None
        if not isinstance(models, list):
            raise self.bad_response()
        return [m for m in models if isinstance(m, dict) and isinstance(m.get("id"), str)]

    def _llama_cpp_window(self, connection: HttpConnection) -> int | None:
        """Return the window from the properties of llama.cpp's server, or None for another server."""
        try:
            props = self._get(connection, self.address.base.removesuffix("v1/") + "props")
            return _number(props["default_generation_settings"]["n_ctx"])
        except (ModelError, RetryLater, TypeError, KeyError):
            return None

    def _get(self, connection: HttpConnection, path: str) -> Any:
        try:
            with connection.send("GET", path) as reply:
                text = reply.text()
        except ConnectionBroken as e:
            why = f"{self.address.host} cannot be reached ({self._one_line(str(e))})"
            raise ModelError(why, "check --server, and that a server runs there") from e
        if reply.status == 404:
            raise self.bad_response()
        if reply.status != 200:
            raise self._server_error(reply.status, self._one_line(text), reply.headers)
        try:
            return json.loads(text)
        except ValueError as e:
            raise self.bad_response() from e

    def _too_long(self, message: str) -> TooLong:
        """Return the error for a text that is too long. Sets the window if the server's ``message`` states it."""
        if self.window is None and (match := _WINDOW.search(message)):
            self.window = _number(int(match[1].replace(",", "")))
        limit = f" ({self.window:,} tokens)" if self.window else ""
        return TooLong(
            f"the text is longer than {self.address.host} reads at once{limit}", "ask a shorter part, or another server"
        )

    def _no_model(self, name: str | None, models: Mapping[str, Any] | set[str]) -> ModelError:
        what = f"{self.address.host} has no model {name or ''}".rstrip()
        return ModelError(what, f"choose with --server-model: {_some(models)}" if models else "load one there")

    def _one_line(self, text: str) -> str:
        """Return a server's message as one printable line, without the key."""
        try:
            body = json.loads(text)
            error = body.get("error", body)
            text = str(error.get("message") or error.get("detail") or error if isinstance(error, dict) else error)
        except (ValueError, AttributeError):
            pass
        if self.key:
            text = text.replace(self.key, "…")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def _is_local(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _some(names: Mapping[str, Any] | Sequence[str] | set[str]) -> str:
    listed = sorted("".join(c for c in name if c.isprintable()) for name in names)
    return ", ".join(listed[:MAX_LISTED]) + (" ..." if len(listed) > MAX_LISTED else "")
