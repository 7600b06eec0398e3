"""The client side of ``localctx ask``: sends a question to a server that is open in the same data folder.

It imports no compute libraries, so that an answer can start before torch would be imported.
"""

import json
from collections.abc import Callable, Generator
from contextlib import closing, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

from localctx.engine.event_json import event_from_line
from localctx.engine.events import Done, Event, Progress
from localctx.errors import Cancelled, UserError, make_error
from localctx.serving.ask_request import ASK_PATH, CANCEL_PATH, AskRequest, absolute_source
from localctx.serving.open_servers import OpenServer, open_servers

PATIENCE = 10.0  # seconds; a working server sends a sign of life every second
SHORT_PATIENCE = 1.0  # seconds, to connect and to cancel
_FAILURES = (OSError, HTTPException, ValueError)


class ServerRefusal(Exception):
    """Raised if a server refuses to answer a question, for example because its settings differ."""


class DelegatedAnswer:
    """The answer to a question, ``request``, that was sent to ``server``.

    ``given`` maps absolute paths of sources to the paths that the user wrote. Raises ServerRefusal, OSError,
    HTTPException, ValueError, UserError or Cancelled if the first event does not arrive.
    """

    def __init__(self, server: OpenServer, request: AskRequest, given: dict[str, str]) -> None:
        self.url, self._server, self._id, self._given = server.url, server, request.id, given
        self._connection = _connect(server)
        self._asked_to_cancel = False
        try:
            self._response = _post(self._connection, server, ASK_PATH, request.to_json(), PATIENCE)
            self._first = self._next()
        except BaseException:
            self._connection.close()
            raise

    def events(self) -> Generator[Event, None, None]:
        """Yields the events as the server sends them. Done is the last. Closing the generator cancels the question.

        Raises the errors that the answer raised on the server, and UserError if the connection ends early.
        """
        event = self._first
        try:
            while True:
                yield self._as_given(event)
                if isinstance(event, Done):
                    return
                event = self._next()
        except _FAILURES as e:
            problem = f"the server at {self.url} ended before its answer"
            raise UserError(problem, "ask again; --alone asks no server") from e
        except UserError as e:
            raise make_error(type(e), self._in_words_of_user(e.problem), self._in_words_of_user(e.remedy)) from e
        finally:
            self._connection.close()

    def cancel(self) -> bool:
        """Ask the server to stop the answer. May be called in a signal handler.

        Returns False if the server cannot be reached, is not answering this question, or was already asked to stop.
        """
        if self._asked_to_cancel:
            return False
        self._asked_to_cancel = True
        with suppress(*_FAILURES, ServerRefusal), closing(_connect(self._server)) as connection:
            reply = _post(connection, self._server, CANCEL_PATH, {"id": self._id}, SHORT_PATIENCE)
            return bool(json.loads(reply.read())["cancelled"])
        return False

    def _next(self) -> Event:
        """Returns the next event. Raises ValueError if the stream has ended, and the errors that the answer raised."""
        while (line := self._response.readline()).isspace():  # an empty line is a sign of life
            pass
        return event_from_line(line)

    def _as_given(self, event: Event) -> Event:
        return replace(event, phase=self._in_words_of_user(event.phase)) if isinstance(event, Progress) else event

    def _in_words_of_user(self, text: str) -> str:
        for absolute, given in self._given.items():
            text = text.replace(absolute, given)
        return text


def ask_open_server(
    request: AskRequest, given: dict[str, str], home: Path, tell: Callable[[str], None]
) -> DelegatedAnswer | None:
    """Ask the servers that are open in the data folder ``home``, newest first, to answer ``request``.

    Returns the answer of the first server that accepts the question, or None. ``tell`` is called with a line about each
    server that refuses. ``given`` maps absolute paths of sources to the paths that the user wrote.
    """
    for server in open_servers(home):
        try:
            return DelegatedAnswer(server, request, given)
        except ServerRefusal as e:
            tell(f"{server.url} is not asked: {e}")
        except (*_FAILURES, UserError, Cancelled):
            continue  # the command itself meets the same error or succeeds
    return None


def given_paths(sources: list[str]) -> dict[str, str]:
    """Returns a map from the absolute path of each source to the path that the user wrote.

    Leaves out a source that the user wrote as an absolute path or that is not a file.
    """
    return {absolute_source(source): source for source in sources if absolute_source(source) != source}


def _connect(server: OpenServer) -> HTTPConnection:
    connection = HTTPConnection(server.host, server.port, timeout=SHORT_PATIENCE)
    connection.connect()
    return connection


def _post(connection: HTTPConnection, server: OpenServer, path: str, body: Any, patience: float) -> HTTPResponse:
    """Send a request. Returns the response once its status has arrived. Raises ServerRefusal."""
    connection.sock.settimeout(patience)
    headers = {"authorization": f"Bearer {server.key}", "content-type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != 200:
        raise ServerRefusal(json.loads(response.read())["error"])
    return response
