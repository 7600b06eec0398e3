"""RemotePages: a PageStore at any fsspec URL (a shared folder, S3, ...), with one encrypted object per page."""

import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from localctx.network import refuse_offline
from localctx.store.daemon_threads import DaemonThreads, T
from localctx.store.pages.page_store import OpenedPage, PageKey
from localctx.store.remote.page_cipher import PageCipher

TIMEOUT = 20.0  # seconds for one object
READ_AHEAD = 8  # objects downloaded at once
MAX_OBJECT = 1 << 27  # bytes; pages of the largest models have half of this, so a longer object is not a page
_OBJECT = re.compile("[0-9a-f]{64}")
_CHECK_ID = "0" * 64  # the object that is decrypted to test the key
_CHECK_KEY = (b"localctx key check".ljust(32), b"")
# written under a temporary name first, so that no reader sees a partial file
_RENAMED = {"file", "local", "sftp", "ssh", "smb"}


class RemotePages:
    """A ``RemotePageStore`` in the folder at ``url`` (any fsspec URL). The transfer of one object may take ``timeout``
    seconds.
    """

    def __init__(self, url: str, cipher: PageCipher, timeout: float = TIMEOUT) -> None:
        self._url, self._cipher, self._timeout = url, cipher, timeout
        self._threads = DaemonThreads(READ_AHEAD)
        self._place: tuple[Any, str] | None = None  # fsspec's file system, and the folder in it

    def append(self, pages: Sequence[tuple[PageKey, np.ndarray]]) -> None:
        for key, payload in pages:
            if not self.has(key[0]):
                self._wait(partial(self._write, self._cipher.object_id(key[0]), key, payload))

    def open(self, keys: Sequence[PageKey]) -> Iterator[OpenedPage]:
        """Yields the pages of ``keys``, in order. Pages are downloaded before the caller takes them: one at first, then
        twice as many requests at once for each page, up to READ_AHEAD.
        """
        ahead, waiting = iter(keys), deque[Future[OpenedPage]]()
        for number, _ in enumerate(keys):
            while len(waiting) < min(2**number, READ_AHEAD) and (key := next(ahead, None)):
                waiting.append(self._threads.submit(partial(self._read, self._cipher.object_id(key[0]), key)))
            yield self._result(waiting.popleft())

    def unlink(self, names: Iterable[bytes]) -> None:
        for name in names:
            self._wait(partial(self._remove, self._cipher.object_id(name)))

    def verify(self, on_progress: Callable[[int, int], None] = lambda done, total: None) -> list[bytes]:
        """Read and check every page. Returns the ids of the damaged objects, because the name of a page cannot be read
        from a damaged object. Calls ``on_progress`` with the number of bytes read and the total number of bytes.
        """
        sizes, damaged, done = self._wait(self._list), list[bytes](), 0
        for object_id, size in sizes.items():
            if self._wait(partial(self._check, object_id)).fault:
                damaged.append(bytes.fromhex(object_id))
            on_progress(done := done + size, sum(sizes.values()))
        return damaged

    def has(self, name: bytes) -> bool:
        return self._wait(partial(self._exists, self._cipher.object_id(name)))

    def has_our_key(self, write: bool) -> bool:
        page = self._wait(partial(self._read, _CHECK_ID, _CHECK_KEY))
        if write and page.payload is None and not page.fault:
            with suppress(PermissionError):  # the store may still be readable
                self._wait(partial(self._write, _CHECK_ID, _CHECK_KEY, np.zeros(1, np.uint8)))
            page = self._wait(partial(self._read, _CHECK_ID, _CHECK_KEY))
        return not page.fault

    def _wait(self, function: Callable[[], T]) -> T:
        return self._result(self._threads.submit(function))

    def _result(self, future: "Future[T]") -> T:
        try:
            return future.result(self._timeout)
        except TimeoutError as e:
            self._threads = DaemonThreads(READ_AHEAD)  # the other threads may hang too
            raise TimeoutError(f"no answer in {self._timeout:g} seconds") from e
        except OSError:
            raise
        except Exception as e:  # each file system has its own errors
            raise OSError(f"{type(e).__name__}: {e}") from e

    # The methods below run in a thread.

    def _file_system(self) -> tuple[Any, str]:
        if self._place is None:
            if not self._url.startswith(("file:", "/", "memory:", "local:")):
                refuse_offline("the remote store of pages is on another machine", "leave the setting remote empty")
            from fsspec.core import url_to_fs

            self._place = url_to_fs(self._url)
        return self._place

    def _path(self, object_id: str) -> str:
        return f"{self._file_system()[1].rstrip('/')}/{object_id}"

    def _exists(self, object_id: str) -> bool:
        return self._file_system()[0].exists(self._path(object_id))

    def _list(self) -> dict[str, int]:
        """Returns the size in bytes of each object, by its id."""
        fs, root = self._file_system()
        sizes = {about["name"].rpartition("/")[2]: int(about["size"] or 0) for about in fs.ls(root, detail=True)}
        return {name: sizes[name] for name in sorted(sizes) if _OBJECT.fullmatch(name)}

    def _remove(self, object_id: str) -> None:
        with suppress(FileNotFoundError):
            self._file_system()[0].rm_file(self._path(object_id))

    def _read(self, object_id: str, key: PageKey) -> OpenedPage:
        try:
            data = self._file_system()[0].cat_file(self._path(object_id), end=MAX_OBJECT)
        except FileNotFoundError:
            return OpenedPage()
        found, page = self._cipher.decrypt(object_id, data)
        return page if page.fault or found == key else OpenedPage(fault="is of other text")

    def _check(self, object_id: str) -> OpenedPage:
        return self._cipher.decrypt(object_id, self._file_system()[0].cat_file(self._path(object_id)))[1]

    def _write(self, object_id: str, key: PageKey, payload: np.ndarray) -> None:
        fs, root = self._file_system()
        fs.makedirs(root, exist_ok=True)
        data = self._cipher.encrypt(object_id, key, payload)
        if len(data) > MAX_OBJECT:
            raise OSError(f"a page of {len(data):,} bytes is too long for a remote store")
        if _RENAMED.intersection([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol):
            part = f"{self._path(object_id)}.{secrets.token_hex(4)}.part"
            fs.pipe_file(part, data)
            fs.mv(part, self._path(object_id))
        else:
            fs.pipe_file(self._path(object_id), data)
