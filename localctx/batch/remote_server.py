"""Server: one that speaks as OpenAI's does, on this machine or another. What goes wrong there is told in one line."""

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

KEY = "LOCALCTX_SERVER_KEY"  # the environment variable
SHOWN = 200  # characters of what a server says
AGAIN = (429, 500, 502, 503, 504, 529)  # of these a server may recover
BUSY = (429, 503, 529)
REFUSED = (401, 403)
MOST_PAUSE = 120  # seconds that a server may ask us to wait
LISTED = 5  # models named in a line

_TOO_LONG = re.compile(r"context.?(length|window|size)|exceed_context|too (long|large|many tokens)", re.I)
_WINDOW = re.compile(r"(?:context.?(?:length|window|size)|n_ctx|reads at most)\D{0,20}?(\d[\d,]*)", re.I)


class RetryLater(Exception):
    """A server that may recover in ``after`` seconds. ``error`` is what is told where it does not; ``of_all``: then no
    other text can be read there either.
    """

    def __init__(self, error: ModelError, of_all: bool, after: float = 0) -> None:
        super().__init__(str(error))
        self.error, self.of_all, self.after = error, of_all, after


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is: ``base`` is what its paths are below, ``host`` its name and port, ``near`` on this machine."""

    base: str
    host: str
    near: bool
    secret: bool

    @classmethod
    def parse(cls, url: str) -> "ServerAddress":
        """Raises UsageError for what is no address of a server."""
        try:
            parts = urlsplit(url.strip())
            name, port = parts.hostname, parts.port
        except ValueError as e:
            raise UsageError(f"{url!r} is no address ({e})", "write it as http://127.0.0.1:8000") from e
        if parts.username or parts.password:
            raise UsageError("an address with a password would be seen by others", f"put the key into {KEY}")
        if parts.scheme not in ("http", "https") or not name:
            raise UsageError(f"{url!r} is no address of a server", "write it as http://127.0.0.1:8000")
        shown = f"[{name}]" if ":" in name else name
        host, path = f"{shown}:{port}" if port else shown, parts.path.rstrip("/")
        base = f"{parts.scheme}://{host}{path if path.endswith('/v1') else path + '/v1'}/"
        return cls(base, host, _near(name), parts.scheme == "https")


@dataclass
class RemoteServer:
    """What all threads know of one: the ``model`` asked there, how many tokens its ``window`` has (None: not told).

    ``spoke``: it answered once. ``estimated``: it does not count tokens, and that is said. ``streams``: it is asked to,
    until it breaks off: llama-cpp-python's ends a stream when another question comes, and says why it cannot answer
    only where it is asked for all at once.
    """

    address: ServerAddress
    key: str = field(repr=False)
    model: str = ""
    window: int | None = None
    spoke: bool = False
    streams: bool = True
    estimated: bool = False

    def __post_init__(self) -> None:
        if not (self.key.isascii() and self.key.isprintable()):
            raise UsageError(f"{KEY} has letters that no key has", "set it anew")

    @contextmanager
    def wire(self, stopped: Callable[[], bool]) -> Iterator[HttpConnection]:
        """A connection for one thread."""
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        wire = HttpConnection(self.address.base, headers, self.address.near, stopped)
        try:
            yield wire
        finally:
            wire.close()

    def find(self, wire: HttpConnection, name: str | None) -> None:
        """Find the model ``name``, or the only one, and its window. Raises ModelError, UsageError, Again."""
        models = {m["id"]: m for m in self._models(wire)}
        if name is None and len(models) > 1:
            raise UsageError(f"{self.address.host} has several models", f"choose with --server-model: {_some(models)}")
        if not models or (name and name not in models):
            raise self._no_model(name, models)
        self.model = name or next(iter(models))
        self.window = _number(models[self.model].get("max_model_len")) or self._props(wire)

    def refusal(self, wire: HttpConnection, reply: HttpReply) -> UserError | RetryLater:
        """Why a question was not answered: the server, or the text it was about, is to blame."""
        status, said = reply.status, self._said(reply.text())
        if status == 413 or (status not in (*REFUSED, 404, 429) and _TOO_LONG.search(said)):
            return self._too_long(said)
        if status == 404:
            return self._no_model(self.model, {m["id"] for m in self._models(wire)})
        if status in (400, 409, 422):
            return DocumentError(f"{self.address.host} refused it ({status}: {said})", "see that server's log")
        return self._fault(status, said, reply.headers)

    def broken(self, e: ConnectionBroken) -> RetryLater:
        """An answer that was broken off, or never came."""
        why = f"{self.address.host} broke off ({self._said(str(e))})"
        return RetryLater(ModelError(why, "see its log, and run this again to go on"), of_all=e.unreachable)

    def refuse_too_long(self, tokens: float) -> None:
        """Raises TooLong for a text of so many tokens, where the window is known to have fewer."""
        if self.window and tokens >= self.window:
            raise self._too_long("")

    def _fault(self, status: int, said: str, headers: Mapping[str, str]) -> ModelError | RetryLater:
        if status not in AGAIN:
            return self._wrong(status, said)
        after = headers.get("retry-after", "")
        return RetryLater(
            self._wrong(status, said), status in BUSY, min(MOST_PAUSE, int(after) if after.isdecimal() else 0)
        )

    def _wrong(self, status: int, said: str) -> ModelError:
        host = self.address.host
        if status in REFUSED:
            why = "does not take the key" if self.key else "wants a key"
            return ModelError(f"{host} {why} ({status}: {said})", f"set {KEY} to one that it takes")
        if 300 <= status < 400:
            return ModelError(f"{host} sends elsewhere ({status})", "give --server the address it sends to")
        if status in BUSY:
            return ModelError(f"{host} is busy ({status}: {said})", "run this again later, or with a lower --together")
        return ModelError(f"{host} failed ({status}: {said})", "see its log, and run this again to go on")

    def nonsense(self) -> ModelError:
        """What is answered is not what OpenAI's answers look like."""
        what = f"what {self.address.base} answers is not in OpenAI's form"
        return ModelError(what, "check --server, as http://127.0.0.1:8000/v1")

    def _models(self, wire: HttpConnection) -> list[dict[str, Any]]:
        found = self._get(wire, "models")
        models = found.get("data") if isinstance(found, dict) else None
        if not isinstance(models, list):
            raise self.nonsense()
        return [m for m in models if isinstance(m, dict) and isinstance(m.get("id"), str)]

    def _props(self, wire: HttpConnection) -> int | None:
        """The window as llama.cpp's server tells it."""
        try:
            found = self._get(wire, self.address.base.removesuffix("v1/") + "props")
            return _number(found["default_generation_settings"]["n_ctx"])
        except (ModelError, RetryLater, TypeError, KeyError):
            return None

    def _get(self, wire: HttpConnection, path: str) -> Any:
        try:
            with wire.send("GET", path) as reply:
                text = reply.text()
        except ConnectionBroken as e:
            why = f"{self.address.host} cannot be reached ({self._said(str(e))})"
            raise ModelError(why, "check --server, and that a server runs there") from e
        if reply.status == 404:
            raise self.nonsense()
        if reply.status != 200:
            raise self._fault(reply.status, self._said(text), reply.headers)
        try:
            return json.loads(text)
        except ValueError as e:
            raise self.nonsense() from e

    def _too_long(self, said: str) -> TooLong:
        """From the refusal the window is learned, where it is told."""
        if self.window is None and (found := _WINDOW.search(said)):
            self.window = _number(int(found[1].replace(",", "")))
        most = f" ({self.window:,} tokens)" if self.window else ""
        return TooLong(
            f"the text is longer than {self.address.host} reads at once{most}", "ask a shorter part, or another server"
        )

    def _no_model(self, name: str | None, models: Mapping[str, Any] | set[str]) -> ModelError:
        what = f"{self.address.host} has no model {name or ''}".rstrip()
        return ModelError(what, f"choose with --server-model: {_some(models)}" if models else "load one there")

    def _said(self, text: str) -> str:
        """What a server said, as one harmless line; a key in it is not shown."""
        try:
            found = json.loads(text)
            error = found.get("error", found)
            text = str(error.get("message") or error.get("detail") or error if isinstance(error, dict) else error)
        except (ValueError, AttributeError):
            pass
        if self.key:
            text = text.replace(self.key, "…")
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def _near(name: str) -> bool:
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _some(names: Mapping[str, Any] | Sequence[str] | set[str]) -> str:
    listed = sorted("".join(c for c in name if c.isprintable()) for name in names)
    return ", ".join(listed[:LISTED]) + (" ..." if len(listed) > LISTED else "")
