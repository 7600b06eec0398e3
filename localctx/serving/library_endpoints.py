"""Answers /v1/files and /v1/embeddings. The files are the documents of the library."""

import base64
import shutil
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localctx.errors import Cancelled, DocumentError, UsageError, UserError
from localctx.serving.answer_endpoints import SHUTTING_DOWN, api_error_of
from localctx.serving.api_error import ApiError, Fields, as_text
from localctx.serving.request_body import HEADERS, json_body
from localctx.serving.sampling_fields import check_model
from localctx.serving.worker import EngineWorker, Queued
from localctx.session import Session
from localctx.settings import Settings
from localctx.store.documents import DocumentRow

MAX_FILE_BYTES = 512 << 20
MAX_TEXTS, TEXTS_AT_ONCE = 2048, 8  # per embedding request; per batch
PURPOSES = ("assistants", "user_data")


class LibraryEndpoints:
    """Reads and changes the library with jobs that ``worker`` runs under ``settings``.

    ``stopping`` is an event; setting it ends running jobs. ``on_upload()`` is called after an upload, so that the file
    is indexed.
    """

    def __init__(
        self, worker: EngineWorker, settings: Settings, stopping: threading.Event, on_upload: Callable[[], None]
    ) -> None:
        self._worker, self._settings, self._stopping, self._on_upload = worker, settings, stopping, on_upload

    async def files(self, request: Request) -> Response:
        """GET /v1/files: list the documents of the library, newest first."""
        limit = _number(request, "limit", 10_000)
        purpose = request.query_params.get("purpose")
        rows = await self._run(lambda session: list(session.store.documents.all()))
        rows = sorted(rows, key=lambda row: row.added, reverse=request.query_params.get("order") != "asc")
        found = [_file(row) for row in rows[:limit]] if purpose in (None, PURPOSES[0]) else []
        ids = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {}
        return _json({"object": "list", "data": found, "has_more": len(rows) > limit and bool(found), **ids})

    async def upload(self, request: Request) -> Response:
        """POST /v1/files: read a file into the library. The file is made searchable in the background."""
        try:
            async with request.form(max_files=1, max_fields=8, max_part_size=1 << 16) as form:
                file, purpose = form.get("file"), form.get("purpose", PURPOSES[0])
                if not isinstance(file, UploadFile):
                    raise ApiError("file must be a file, in multipart/form-data", "file")
                if purpose not in PURPOSES:
                    raise ApiError(f"purpose must be {' or '.join(PURPOSES)}", "purpose")
                if unknown := sorted({*form} - {"file", "purpose"}):
                    raise ApiError(f"{unknown[0]} is not a parameter of this server", unknown[0])
                return _json(_file(await self._add(file)))
        except HTTPException as e:
            raise ApiError(f"the form cannot be read ({e.detail})", status=e.status_code) from e

    async def file(self, request: Request) -> Response:
        """GET /v1/files/ID: describe a document."""
        return _json(_file(await self._find(request)))

    async def content(self, request: Request) -> Response:
        """GET /v1/files/ID/content: return the text that was read from a document."""
        row = await self._find(request)
        text = await self._run(lambda session: session.store.documents.text(row.id))
        return Response(text.encode(errors="replace"), 200, HEADERS, "text/plain; charset=utf-8")

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/files/ID: move the document to the trash, as the window does."""
        row = await self._find(request)
        await self._run(lambda session: session.store.delete("document", row.id))
        return _json({"id": row.id, "object": "file", "deleted": True})

    async def embed(self, request: Request) -> Response:
        """POST /v1/embeddings: return vectors that the search model computes."""
        fields = Fields(await json_body(request))
        if self._settings.embedder == "none":
            raise ApiError("this server has no embedder: it runs with --embedder none", "model", 404, "model_not_found")
        check_model(fields, self._settings.embedder, self._settings.model)
        given, form = fields.take("input"), fields.choice("encoding_format", ("float", "base64"), "float")
        size = fields.integer("dimensions", 1, 1 << 16)
        fields.labels()
        fields.finish()
        vectors, tokens = await self._run(lambda session: _vectors(session, _texts(given)))
        if size not in (None, vectors.shape[1]):
            raise ApiError(f"dimensions must be {vectors.shape[1]}", "dimensions")
        data = [{"object": "embedding", "index": i, "embedding": _coded(v, form)} for i, v in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return _json({"object": "list", "data": data, "model": self._settings.embedder, "usage": usage})

    async def _add(self, file: UploadFile) -> DocumentRow:
        """Read an uploaded file into the library. Returns the document's row. Raises ApiError."""
        uploads = self._settings.home / "uploads"
        uploads.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Path(mkdtemp(dir=uploads, prefix="api-"))
        try:
            name = _safe_name(file.filename or "")
            await run_in_threadpool(_copy, file, folder / name)
            return await self._run(lambda session: _added(session, str(folder / name)))
        finally:
            await run_in_threadpool(shutil.rmtree, folder, True)
            self._on_upload()

    async def _find(self, request: Request) -> DocumentRow:
        wanted = request.path_params["id"]
        row = await self._run(lambda session: session.store.documents.get(wanted))
        if not row:
            raise ApiError(f"there is no file {as_text(wanted)!r:.80}", "id", 404, "not_found")
        return row

    async def _run(self, work: Callable[[Session], Any]) -> Any:
        """Run ``work`` in the worker's thread, in queue order. Returns the result of ``work``. Raises ApiError."""
        return await run_in_threadpool(self._run_here, work)

    def _run_here(self, work: Callable[[Session], Any]) -> Any:
        results = []

        def job(session: Session) -> Generator[Any, Any, None]:
            results.append(work(session))
            yield from ()

        try:
            for event in self._worker.submit(job):
                if self._stopping.is_set() and isinstance(event, Queued):
                    raise ApiError(SHUTTING_DOWN, status=503)
        except (UserError, Cancelled) as e:
            raise api_error_of(e) from e
        return results[0]


def _added(session: Session, path: str) -> DocumentRow:
    with session.workflows.library() as library:
        (added,) = library.add([path])
        if not added.id:
            why = added.why.replace(f"{Path(path).parent}/", "")  # the client knows only the name it gave
            raise UsageError(why, "upload a document that can be read")
        library.index_short([added.id])
    row = session.store.documents.get(added.id)
    if not row:
        raise DocumentError("the document was deleted meanwhile", "upload it again")
    return row


def _copy(file: UploadFile, path: Path) -> None:
    with path.open("wb") as target:
        shutil.copyfileobj(file.file, target)
        if target.tell() > MAX_FILE_BYTES:
            raise ApiError(f"a file may have at most {MAX_FILE_BYTES:,} bytes", "file", 413)


def _safe_name(given: str) -> str:
    """Returns the client's file name as a safe name inside a folder."""
    name = "".join(c for c in as_text(given).replace("\\", "/").rpartition("/")[2] if c.isprintable())
    name = name.encode()[-200:].decode(errors="ignore").strip(" .")
    return name or "document.txt"


def _file(row: DocumentRow) -> dict[str, Any]:
    times = {"created_at": int(row.added), "expires_at": None}
    about = {"filename": as_text(row.name), "bytes": row.bytes, "purpose": PURPOSES[0], "status": "processed"}
    return {"id": row.id, "object": "file", **about, **times}


def _texts(given: Any) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not 0 < len(texts) <= MAX_TEXTS:
        raise ApiError(f"input must be a text, or a list of up to {MAX_TEXTS:,} texts", "input")
    if not all(isinstance(text, str) and text for text in texts):
        raise ApiError("input must not have empty texts, and tokens are not supported", "input")
    return [as_text(text) for text in texts]


def _vectors(session: Session, texts: Sequence[str]) -> tuple[np.ndarray, int]:
    """Returns the vectors of texts, and the number of tokens read. Raises ApiError for a text that is too long."""
    embedder = session.runtime.embedder
    assert embedder, "the settings name one"
    for i, text in enumerate(texts):
        if embedder.is_cut(text):
            problem = f"input[{i}] is longer than {embedder.longest:,} tokens, the most that this model reads"
            raise ApiError(f"{problem}; send it in parts", "input", code="context_length_exceeded")
    batches = [texts[i : i + TEXTS_AT_ONCE] for i in range(0, len(texts), TEXTS_AT_ONCE)]
    vectors, counts = zip(*map(embedder.embed_and_count, batches), strict=True)
    return np.concatenate(vectors), sum(counts)


def _coded(vector: np.ndarray, form: str) -> Any:
    return vector.tolist() if form == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, str(default))
    with suppress(ValueError):
        if 0 < (number := int(text)) <= 10_000:
            return number
    raise ApiError(f"{name} must be a number from 1 to 10,000", name)


def _json(value: Any) -> Response:
    return JSONResponse(value, headers=HEADERS)
