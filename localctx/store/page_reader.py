"""PageReader: maps the page files of the local folder and verifies the pages in them."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_128_digest

from localctx.store.page_store import OpenedPage
from localctx.store.slot_file import EmptyFile, SlotFile


class PageReader:
    """Reads pages by their rows of the database. Each file is mapped once, and stays readable after it is unlinked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = dict[str, SlotFile | None]()

    def has_mapped(self, segment: str) -> bool:
        """Returns True if the file was mapped, or missed, before."""
        return segment in self._files

    def open(self, row: dict[str, Any], tokens: bytes) -> OpenedPage:
        """Returns the page's mapped bytes after comparing their checksum and ``tokens``, or what is wrong with it."""
        if (file := self._file(row)) is None:
            return OpenedPage(fault="has lost its file")
        payload = file.payload(row["slot"], row["bytes"])
        if payload is None:
            return OpenedPage(fault="is cut short")
        if verified(payload, row["checksum"]) is None:
            return OpenedPage(fault="fails its checksum")
        return OpenedPage(payload) if row["tokens"] == tokens else OpenedPage(fault="is of other text")

    def map(self, row: dict[str, Any]) -> Callable[[], np.ndarray | None]:
        """Map a page now and compare its checksum later: the result returns its bytes, or None if they are wrong."""
        file = self._file(row)
        payload = file.payload(row["slot"], row["bytes"]) if file else None
        return (lambda: None) if payload is None else partial(verified, payload, row["checksum"])

    def _file(self, row: dict[str, Any]) -> SlotFile | None:
        segment = row["segment"]
        if segment not in self._files:
            self._files[segment] = None
            with suppress(FileNotFoundError, EmptyFile):  # any other error is this machine's trouble, now
                self._files[segment] = SlotFile(self._folder / f"{segment}.kv", row["slot_bytes"])
        return self._files[segment]


def verified(payload: np.ndarray, checksum: bytes) -> np.ndarray | None:
    """Returns ``payload`` if it has this checksum, else None."""
    return payload if xxh3_128_digest(payload.data) == checksum else None
