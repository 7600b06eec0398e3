"""Caches in memory the PDF pages that were drawn for the viewer. The most recently used pages are kept, up to
MAX_BYTES.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from localctx.errors import DocumentError
from localctx.library.parsers.sandbox import PageDrawing

MAX_BYTES = 48 << 20
# seconds until a page that could not be drawn is tried again, because the machine may have been busy
RETRY_SECONDS = 30


class DrawnPages:
    """Caches drawn pages by document and page number. Only one page is drawn at a time, because drawing keeps a
    processor busy.
    """

    def __init__(self) -> None:
        self._lock, self._drawn = threading.Lock(), OrderedDict[tuple[str, int], PageDrawing]()
        self._failed = dict[tuple[str, int], tuple[DocumentError, float]]()  # error and time

    def get(self, document: str, number: int, draw: Callable[[], PageDrawing]) -> PageDrawing:
        """Returns page ``number`` of a document from the cache, or calls ``draw()`` to draw it.

        Raises DocumentError if the page cannot be drawn. For RETRY_SECONDS after a failure, the same error is raised
        without another attempt.
        """
        with self._lock:
            key = document, number
            error, since = self._failed.pop(key, (None, 0.0))
            if error and time.monotonic() - since < RETRY_SECONDS:
                self._failed[key] = error, since
                raise error
            if key not in self._drawn:
                try:
                    self._drawn[key] = draw()
                except DocumentError as e:
                    self._failed[key] = e, time.monotonic()
                    raise
            self._drawn.move_to_end(key)
            drawn = self._drawn[key]
            while sum(len(d.png) for d in self._drawn.values()) > MAX_BYTES:
                self._drawn.popitem(last=False)
        return drawn
