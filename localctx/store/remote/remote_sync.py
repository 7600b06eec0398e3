"""RemoteSync: downloads from a remote store the pages that the local store lacks, and uploads pages in the background.

Failures never stop an answer: after a failure, the remote store is not used for REST seconds, and one note tells the
user why.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock

import numpy as np

from localctx.store.daemon_threads import DaemonThreads
from localctx.store.pages.page_store import PageKey, RemotePageStore
from localctx.store.remote.page_cipher import PageCipher, parse_key
from localctx.store.remote.remote_pages import RemotePages

WRITE = "write"
KEY = "LOCALCTX_REMOTE_KEY"
UPLOAD_WAIT = 30.0  # seconds to wait for unfinished uploads at the end
REST = 60.0  # seconds without a request after a failure
StoredPage = tuple[PageKey, Callable[[], np.ndarray | None]]
"""A page of the local store, and a function that returns its verified bytes, or None if damaged."""


class RemoteSync:
    """Downloads pages from the remote store ``pages``, and uploads pages to it if ``writable``. Methods may be called
    from any thread.
    """

    def __init__(self, pages: RemotePageStore, writable: bool) -> None:
        self._pages, self._writable = pages, writable
        self._usable: bool | None = None  # None: not tried yet
        self._retry_at = 0.0
        self._missing = set[bytes]()  # names of pages that were missing or damaged when fetched
        self._notes = list[str]()
        self._lock = Lock()
        self._uploader = DaemonThreads(1)
        self._uploads = list[Future[None]]()
        self._round = 0  # ``finish`` starts a new round; uploads of earlier rounds are cancelled

    def fetch(self, keys: Sequence[PageKey]) -> Iterator[np.ndarray]:
        """Yields the verified bytes of these pages, in order, up to the first missing or damaged one."""
        try:
            if not self._is_usable():
                return
            for number, page in enumerate(self._pages.open(keys)):
                if page.fault:
                    self._note(f"a page of the remote store {page.fault}: going on without it")
                    self._remove_damaged(keys[number][0])
                if page.payload is None:
                    self._missing.add(keys[number][0])
                    return
                yield page.payload
        except OSError as e:
            self._fail(e)

    def upload(self, pages: Sequence[StoredPage]) -> None:
        """Upload consecutive pages of one sequence in the background, if the remote store is writable.

        Pages are uploaded in order. If the remote store has the last page, it is assumed to have all pages, unless
        ``fetch`` found one of them missing or damaged.
        """
        if self._writable and pages:
            self._uploads = [u for u in self._uploads if not u.done()]
            self._uploads.append(self._uploader.submit(partial(self._upload, pages, self._round)))

    def finish(self, seconds: float) -> None:
        """Wait at most ``seconds`` for the uploads, then cancel the unfinished ones. They are also cancelled if the
        wait is interrupted.
        """
        deadline = time.monotonic() + seconds
        try:
            for upload in self._uploads:
                upload.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            pass
        finally:
            self._round += 1

    def take_notes(self) -> list[str]:
        """Returns notes for the user about failures since the last call."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def _upload(self, pages: Sequence[StoredPage], round: int) -> None:
        try:
            if round != self._round or not self._is_usable() or self._has_all([name for (name, _), _ in pages]):
                return
            for key, stored in pages:
                if round != self._round:
                    return
                if (payload := stored()) is not None:
                    self._pages.append([(key, payload)])
        except PermissionError as e:
            self._writable = False
            self._note(f"the remote store cannot be written ({e}): it is only read")
        except OSError as e:
            self._fail(e)

    def _has_all(self, names: Sequence[bytes]) -> bool:
        return self._missing.isdisjoint(names) and self._pages.has(names[-1])

    def _is_usable(self) -> bool:
        """Returns True if the remote store has our key and did not fail recently."""
        if time.monotonic() < self._retry_at:
            return False
        if self._usable is None:
            self._usable = self._pages.has_our_key(self._writable)
            if not self._usable:
                self._note(f"the remote store was written with another {KEY}: it is not used")
        return self._usable

    def _remove_damaged(self, name: bytes) -> None:
        if self._writable:
            self._pages.unlink([name])

    def _fail(self, e: OSError) -> None:
        self._retry_at = time.monotonic() + REST
        self._note(f"the remote store cannot be used ({e}): going on without it")

    def _note(self, text: str) -> None:
        with self._lock:
            if text not in self._notes:
                self._notes.append(text)


_remotes: dict[tuple[str, str, str], RemoteSync] = {}  # one per URL, mode and key, so that failures are remembered


def open_remote(url: str, mode: str) -> RemoteSync | None:
    """Returns the remote store at ``url`` with the key from the environment, or None without a URL.

    Raises UsageError if the key is missing or malformed.
    """
    if not url:
        return None
    key = os.environ.get(KEY, "")
    if (url, mode, key) not in _remotes:
        _remotes[url, mode, key] = RemoteSync(_pages_at(url, PageCipher(parse_key(key))), mode == WRITE)
    return _remotes[url, mode, key]


def _pages_at(url: str, cipher: PageCipher) -> RemotePageStore:
    """Returns the page store for ``url``. To support another kind of remote store, return its implementation of
    RemotePageStore here.
    """
    return RemotePages(url, cipher)


def finish_uploads() -> None:
    """Wait for the uploads of every remote store, at most UPLOAD_WAIT seconds each."""
    for remote in _remotes.values():
        remote.finish(UPLOAD_WAIT)
