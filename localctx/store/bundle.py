"""Exports and imports a prepared document (its text and KV pages) as one safetensors file. The tensors are ``text``,
and ``<cache>/<page>`` for each page.

The metadata holds a JSON manifest and its SHA-256. Opening a file verifies its contents, and runs no code from the
file.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from localctx.errors import DocumentError, StoreError, format_bytes
from localctx.kv.pages import next_name, unpack_tokens
from localctx.shape import PAGE
from localctx.store.caches import CacheRow, cache_id
from localctx.store.documents import DocumentRow, Span, text_id
from localctx.store.maintenance.eviction import make_room
from localctx.store.pages.page_checksum import page_checksum
from localctx.store.pages.page_writer import PageWriter
from localctx.store.store import Store, store_errors

FORMAT = "localctx document 1"
_MAX_NUMBER = 1 << 40  # limit of every number in a manifest
_MAX_NAME = 255  # characters


@dataclass(frozen=True)
class BundlePage:
    """One page in the manifest of an exported document: name, tokens (as ``pack_tokens`` packs them), size in bytes,
    and checksum.
    """

    name: bytes
    tokens: bytes
    nbytes: int
    checksum: bytes


@dataclass(frozen=True)
class BundleCache:
    """The KV pages of the exported document for one model and codec. ``pages`` are the first pages of the cache;
    ``tokens`` is the number of tokens of the whole cache.
    """

    fingerprint: bytes
    model: str
    codec: str
    keeper: str
    tokens: int
    slot_bytes: int
    pages: tuple[BundlePage, ...] = field(repr=False)


@dataclass(frozen=True)
class Bundle:
    """An opened file with an exported document. Its manifest and text are verified; its pages are verified on
    import.
    """

    path: Path
    row: DocumentRow
    text: str = field(repr=False)
    spans: tuple[Span, ...] = field(repr=False)
    caches: tuple[BundleCache, ...]

    @property
    def made_by(self) -> str:
        """The models and codecs of the pages, as text."""
        return " and ".join(f"{c.model} with {c.codec} KV" for c in self.caches)


def export_document(store: Store, document: DocumentRow, path: Path) -> tuple[int, int]:
    """Export a document to the new file ``path``, with its KV pages. Left out are caches of several documents, of chats
    and of parts of the document, and caches with snapshots. Returns the size of the file in bytes and the number of
    pages.

    The file does not contain local paths of the document or the model. Raises DocumentError if ``path`` exists or
    cannot be written.
    """
    if path.exists():
        raise DocumentError(f"{path} exists", "choose another name, or remove it first")
    with store_errors(store.home):
        text = store.documents.text(document.id)
        own = [c for c in store.caches.of_document(document.id) if c.id == cache_id(c.fingerprint, [document.id])]
        opened = ((c, list(store.pages.of_cache(c.id))) for c in own if not store.pages.has_snapshots(c.id))
        stored = [(c, pages) for c, pages in opened if pages and not pages[0][0]["parent"]]  # no snapshots
        spans = [[s.start, s.end, s.kind, s.label] for s in store.documents.spans(document.id)]
    manifest = {
        "document": {name: getattr(document, name) for name in ("id", "name", "encoding", "bytes")},
        "spans": spans,
        "caches": [_manifest_of(cache, [row for row, _ in pages]) for cache, pages in stored],
    }
    tensors = {"text": np.frombuffer(text.encode(), np.uint8)}
    tensors |= {f"{i}/{j}": payload for i, (_, pages) in enumerate(stored) for j, (_, payload) in enumerate(pages)}
    _save(path, tensors, json.dumps(manifest))
    return path.stat().st_size, len(tensors) - 1


def open_bundle(path: Path) -> Bundle:
    """Open a file that ``export_document`` wrote, and check its manifest and text. Raises DocumentError if the file is
    damaged or is not an exported document.
    """
    with _document_errors(path), _open_archive(path) as file:
        metadata = file.metadata() or {}
        if metadata.get("format") != FORMAT:
            raise ValueError("it is of another format")
        if hashlib.sha256(metadata["manifest"].encode()).hexdigest() != metadata["sha256"]:
            raise ValueError("its manifest is damaged")
        manifest = json.loads(metadata["manifest"])
        text = file.get_tensor("text").tobytes().decode()
        caches = tuple(_cache_of(c) for c in manifest["caches"])
        wanted = {f"{i}/{j}": p.nbytes for i, c in enumerate(caches) for j, p in enumerate(c.pages)}
        if set(file.keys()) != {"text", *wanted} or any(_length(file, k) != n for k, n in wanted.items()):
            raise ValueError("its pages are not those of the manifest")
        row, spans = _row(manifest["document"], text, path), tuple(_span(s, text) for s in manifest["spans"])
    return Bundle(path, row, text, spans, caches)


def import_document(store: Store, bundle: Bundle, accept: Callable[[BundleCache], bool], budget: int) -> int:
    """Store the bundle's document, and the caches in the bundle for which ``accept`` returns True. Returns the number
    of pages stored.

    The document and its caches are committed in one transaction. Afterwards, the store takes at most ``budget`` bytes
    for pages and original files. ``accept`` must check that the fingerprint, tokens and sizes of a cache match a local
    model. Raises DocumentError for a damaged page, and StoreError if there is no room.
    """
    taken = [(i, cache) for i, cache in enumerate(bundle.caches) if accept(cache)]
    with store_errors(store.home), ExitStack() as stack:
        writers = list[PageWriter]()
        for i, cache in taken:
            writers.append(stack.enter_context(closing(_writer(store, bundle, cache))))
            _write(store, bundle, i, writers[-1], budget)
        with store.db.atomic():
            if not store.documents.has(bundle.row.id):  # a stored document keeps its local name
                store.documents.add(bundle.row, bundle.text, bundle.spans)
            for (_, cache), writer in zip(taken, writers, strict=True):
                _enter(store, bundle.row.id, cache, writer)
    return sum(len(cache.pages) for _, cache in taken)


def bundle_payloads(bundle: Bundle, cache: BundleCache) -> Iterator[np.ndarray]:
    """Yields the bytes of a cache's pages, in order. Raises DocumentError if a page fails its checksum."""
    return _payloads(bundle.path, bundle.caches.index(cache), cache.pages)


def _manifest_of(cache: CacheRow, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    hexed = ("name", "tokens", "checksum")
    return {
        "fingerprint": cache.fingerprint.hex(),
        "model": Path(cache.model).name,
        **{name: getattr(cache, name) for name in ("codec", "keeper", "tokens")},
        "slot_bytes": rows[0]["slot_bytes"],
        "pages": [{**{name: row[name].hex() for name in hexed}, "bytes": row["bytes"]} for row in rows],
    }


def _save(path: Path, tensors: dict[str, np.ndarray], manifest: str) -> None:
    part = path.with_name(f".{path.name}.part")
    metadata = {"format": FORMAT, "manifest": manifest, "sha256": hashlib.sha256(manifest.encode()).hexdigest()}
    try:
        part.touch(0o600)  # it contains the document's text
        save_file(tensors, part, metadata)
        part.replace(path)
    except (OSError, SafetensorError) as e:
        raise DocumentError(f"{path} cannot be written ({e})", "choose another place, or free some space") from e
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _document_errors(path: Path) -> Iterator[None]:
    """Turn every error raised by a malformed file into a DocumentError."""
    try:
        yield
    except OSError as e:
        raise DocumentError(f"{path} cannot be read ({e})", "check that it is a file you may read") from e
    except (SafetensorError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as e:
        reason = str(e) if type(e) is ValueError else type(e).__name__
        raise DocumentError(f"{path} is damaged, or not an exported document ({reason})", "export it again") from e


@contextmanager
def _open_archive(path: Path) -> Iterator[Any]:
    if path.exists() and not path.is_file():  # reading a pipe could block for ever
        raise ValueError("it is no file")
    with safe_open(path, framework="numpy") as file:
        yield file


def _length(file: Any, key: str) -> int:
    part = file.get_slice(key)
    return part.get_shape()[0] if part.get_dtype() == "U8" and len(part.get_shape()) == 1 else -1


def _row(value: dict[str, Any], text: str, path: Path) -> DocumentRow:
    if text_id(text) != value["id"]:
        raise ValueError("its text is not what its id says")
    now, name, encoding = time.time(), _name(value["name"]), _name(value["encoding"])
    return DocumentRow(value["id"], name, str(path.absolute()), encoding, _number(value["bytes"]), len(text), now, now)


def _span(value: list[Any], text: str) -> Span:
    start, end, kind, label = value
    if not 0 <= _number(start) <= _number(end) <= len(text) or not isinstance(label, str):
        raise ValueError("a span lies outside of its text")
    label.encode()  # SQLite rejects text that is not valid UTF-8
    return Span(start, end, _name(kind), label)


def _cache_of(value: dict[str, Any]) -> BundleCache:
    fingerprint = bytes.fromhex(value["fingerprint"])
    pages, name = list[BundlePage](), fingerprint
    for page in value["pages"]:
        tokens = bytes.fromhex(page["tokens"])
        name = next_name(name, tokens)
        last = len(pages) == len(value["pages"]) - 1  # the last page may be open
        if bytes.fromhex(page["name"]) != name or not (
            len(tokens) == 4 * PAGE or (last and 0 < len(tokens) < 4 * PAGE)
        ):
            raise ValueError("its pages are not named after their tokens")
        pages.append(BundlePage(name, tokens, _number(page["bytes"], 1), bytes.fromhex(page["checksum"])))
    return BundleCache(
        fingerprint,
        model=_name(value["model"]),
        codec=_name(value["codec"]),
        keeper=_name(value["keeper"]),
        tokens=_number(value["tokens"], sum(len(page.tokens) for page in pages) // 4),
        slot_bytes=_number(value["slot_bytes"], 1),
        pages=tuple(pages),
    )


def _number(value: Any, minimum: int = 0) -> int:
    if type(value) is not int or not minimum <= value < _MAX_NUMBER:
        raise ValueError("a number is out of range")
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MAX_NAME:
        raise ValueError("a name is none")
    return value


def _writer(store: Store, bundle: Bundle, cache: BundleCache) -> PageWriter:
    tokens = unpack_tokens(b"".join(page.tokens for page in cache.pages))
    return store.pages.writer(cache.fingerprint, tokens, cache.slot_bytes, cache_id(cache.fingerprint, [bundle.row.id]))


def _write(store: Store, bundle: Bundle, cache: int, writer: PageWriter, budget: int) -> None:
    stored = bundle.caches[cache]
    need = sum(writer.disk_bytes(i, page.nbytes) for i, page in enumerate(stored.pages))
    if not make_room(store, budget, need, using=cache_id(stored.fingerprint, [bundle.row.id])).enough:
        raise StoreError(
            f"its pages take {format_bytes(need)}, and all kept pages may take {format_bytes(budget)}",
            "raise --disk, or import it with --text-only",
        )
    for i, payload in enumerate(_payloads(bundle.path, cache, stored.pages)):
        writer.write(i, payload)


def _payloads(path: Path, cache: int, pages: Sequence[BundlePage]) -> Iterator[np.ndarray]:
    with _document_errors(path), _open_archive(path) as file:
        for i, page in enumerate(pages):
            payload = file.get_tensor(f"{cache}/{i}")
            if len(payload) != page.nbytes or page_checksum(payload.data) != page.checksum:
                raise ValueError(f"page {i + 1} fails its checksum")
            yield payload


def _enter(store: Store, document: str, cache: BundleCache, writer: PageWriter) -> None:
    named = {name: getattr(cache, name) for name in ("model", "codec", "keeper", "tokens")}
    entered = store.caches.open(cache.fingerprint, [document], **named)
    writer.commit(len(cache.pages))
    if sum(len(page.tokens) for page in cache.pages) == 4 * cache.tokens:
        store.caches.mark_ready(entered)
