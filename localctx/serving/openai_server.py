"""Serves the local model and library over an OpenAI-compatible HTTP API: answers, embeddings and documents.

Requests need the API key. Web pages of other sites can neither send the key nor read responses. A Host header that does
not name this machine is rejected (DNS rebinding).
"""

import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localctx.engine.events import Event, Progress
from localctx.serving.answer_endpoints import AnswerEndpoints
from localctx.serving.api_access import ApiAccess, error_response
from localctx.serving.api_description import describe_api
from localctx.serving.api_error import ApiError, as_text
from localctx.serving.api_metrics import CONTENT_TYPE, ApiMetrics
from localctx.serving.ask_endpoint import AskEndpoint
from localctx.serving.background_index import BackgroundIndexer
from localctx.serving.http import LOOPBACK, App, access_key, listen, serve
from localctx.serving.library_endpoints import LibraryEndpoints
from localctx.serving.open_servers import new_key, registered
from localctx.serving.request_body import HEADERS
from localctx.serving.worker import EngineWorker
from localctx.session import Session
from localctx.settings import Settings

Endpoint = Callable[[Request], Awaitable[Response]]


class OpenAIServer:
    """Serves the model of ``settings``, up to ``max_parallel`` requests at a time.

    ``stopping`` is an event; setting it ends running requests.
    """

    def __init__(self, settings: Settings, max_parallel: int) -> None:
        self._settings, self._worker = settings, EngineWorker(settings, "api", max_parallel)
        self._window: float = 0
        self.stopping = threading.Event()
        self._metrics = ApiMetrics(self._worker)
        self._indexer = BackgroundIndexer(lambda: self._settings, self._worker)

    def load(self) -> Iterator[Event]:
        """Load the model. Yields progress. Raises ModelError."""

        def job(session: Session) -> Generator[Any, Any, None]:
            self._window = session.workflows.max_prompt_tokens
            yield from ()

        yield from (event for event in self._worker.submit(job) if isinstance(event, Progress))

    def close(self) -> None:
        """Cancel all requests and release the model."""
        self._indexer.close()
        self._worker.close()

    def answering(self, app: App, key: str) -> AskEndpoint:
        """Returns ``app`` with an additional endpoint, which answers the questions of ``localctx ask`` commands that
        have the ``key``.
        """
        return AskEndpoint(app, self._worker, lambda: self._settings, key, self.stopping)

    def app(self) -> Starlette:
        """Returns the ASGI application, without the key check."""
        answers = AnswerEndpoints(self._worker, self._settings, self.stopping, self._metrics)
        library = LibraryEndpoints(self._worker, self._settings, self.stopping, self._indexer.wake)
        routes = [
            self._route("/v1/chat/completions", answers.chat, "POST"),
            self._route("/v1/completions", answers.complete, "POST"),
            self._route("/v1/responses", answers.respond, "POST"),
            self._route("/v1/embeddings", library.embed, "POST"),
            self._route("/v1/files", library.files, "GET"),
            self._route("/v1/files", library.upload, "POST"),
            self._route("/v1/files/{id}", library.file, "GET"),
            self._route("/v1/files/{id}", library.delete, "DELETE"),
            self._route("/v1/files/{id}/content", library.content, "GET"),
            self._route("/v1/models", self._models, "GET"),
            self._route("/v1/models/{id:path}", self._model, "GET"),
            self._route("/metrics", self._show_metrics, "GET"),
            self._route("/openapi.json", self._describe, "GET"),
            self._route("/health", self._health, "GET"),
        ]
        handlers: dict[Any, Any] = {
            ApiError: _api_error,
            404: _not_found,
            405: _wrong_method,
            Exception: _internal_error,
        }
        return Starlette(routes=routes, exception_handlers=handlers)

    def _route(self, path: str, endpoint: Endpoint, method: str) -> Route:
        """Returns the route of an endpoint. Its requests are counted."""

        async def counted(request: Request) -> Response:
            status = 500
            try:
                response = await endpoint(request)
                status = response.status_code
            except ApiError as e:
                status = e.status
                raise
            finally:
                self._metrics.request(path, status)
            return response

        return Route(path, counted, methods=[method])

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=HEADERS)

    async def _show_metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), 200, HEADERS, CONTENT_TYPE)

    async def _describe(self, request: Request) -> Response:
        return JSONResponse(describe_api(), headers=HEADERS)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": self._known_models()}, headers=HEADERS)

    async def _model(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        for model in self._known_models():
            if model["id"] == wanted:
                return JSONResponse(model, headers=HEADERS)
        raise ApiError(as_text(f"this server does not have the model {wanted!r:.100}"), "model", 404, "model_not_found")

    def _known_models(self) -> list[dict[str, Any]]:
        """Returns the model that answers, then the embedder, as objects of the API."""
        window = {"max_model_len": int(self._window)} if self._window < float("inf") else {}
        about = {"object": "model", "created": 0, "owned_by": "localctx"}
        embedder = self._settings.embedder
        embedders = [] if embedder == "none" else [{"id": embedder, **about}]
        return [{"id": self._settings.model, **about, **window}, *embedders]


def run(
    settings: Settings,
    host: str,
    port: int,
    max_parallel: int,
    on_event: Callable[[Event], None],
    on_ready: Callable[[str, str], None],
) -> None:
    """Load the model and serve it on ``host`` and ``port`` until Ctrl-C, for up to ``max_parallel`` requests at a time.

    ``on_event`` is called with the progress of loading. ``on_ready`` is called with the base URL and the API key once
    requests are answered. Raises UsageError, ModelError.
    """
    sock = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    key, server = access_key(settings.home, "serve"), OpenAIServer(settings, max_parallel)
    try:
        for event in server.load():
            on_event(event)
        checked = ApiAccess(server.app(), LOOPBACK if name in LOOPBACK else (), key)
        port, own_key = sock.getsockname()[1], new_key()
        app = server.answering(checked, own_key)
        with registered(settings.home, host, port, own_key):
            serve(app, sock, lambda: on_ready(f"http://{name}:{port}/v1", key), server.stopping.set)
    finally:
        server.close()


async def _api_error(request: Request, error: ApiError) -> Response:
    return error_response(error)


async def _not_found(request: Request, e: Exception) -> Response:
    return error_response(ApiError("this path does not exist; /openapi.json lists all paths", status=404))


async def _wrong_method(request: Request, e: Exception) -> Response:
    return error_response(ApiError("this path does not have this method; /openapi.json lists the methods", status=405))


async def _internal_error(request: Request, e: Exception) -> Response:
    return error_response(ApiError("internal error in localctx; please report it, with its log", status=500))
