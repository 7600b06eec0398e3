"""Reads files attached to messages: decides the kind of a file by its content, and parses the file as if it were added
by itself.

One file may use half of the processor time that is left for the message or mailbox.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from localctx.errors import DocumentError
from localctx.library.parsers.encodings import declared_encoding, decode_mostly
from localctx.library.parsers.file_kind import kind_of, text_kind
from localctx.library.parsers.sheets.csv_text import SUFFIXES, read_csv
from localctx.library.parsers.text_builder import TextBuilder, clean

_MAX_FILES = 1000  # of one mailbox
_MIN_SECONDS = 0.5
_SOON = 0.001  # seconds until an outer limit that is already over takes effect


class AttachedFiles:
    """Reads the files attached to the messages of one document.

    ``parse`` is a function that parses the bytes of a file of a given kind. ``left`` is a function that returns the
    seconds of processor time that are left for the document.
    """

    def __init__(self, parse: Callable[[str, bytes], TextBuilder], left: Callable[[], float]) -> None:
        self._parse, self._left = parse, left
        self._files = 0

    def read(self, data: bytes, name: str, declared: str) -> TextBuilder | str:
        """Parse the attached file ``data`` and return its text. If the file is itself a message, return ``eml``, and
        the caller reads it.

        ``declared`` is the encoding that the message declares for a text file, or "". Raises DocumentError if the file
        cannot be read, has no text, or takes more than half of the time left.
        """
        kind = kind_of(data, name)
        if kind == "eml":
            return kind
        read = self._parsed(kind, data) if kind else self._text(data, name, declared)
        if not read.length:
            raise DocumentError("has no text in it", "")
        return read

    def _parsed(self, kind: str, data: bytes) -> TextBuilder:
        self._files += 1
        if self._files > _MAX_FILES:
            raise DocumentError(f"one of more than {_MAX_FILES:,}", "")
        try:
            with time_limit(self._left() / 2):
                return self._parse(kind, data)
        except DocumentError:
            raise
        except TimeoutError as e:
            raise DocumentError("takes too long to read", "") from e
        except MemoryError as e:
            raise DocumentError("needs too much memory", "") from e
        except BaseException as e:  # parsers raise anything for damaged files; those in Rust raise a BaseException
            raise DocumentError("is damaged", "") from e

    def _text(self, data: bytes, name: str, declared: str) -> TextBuilder:
        read, builder = decode_mostly(data, declared or declared_encoding(data)), TextBuilder()
        if not read.is_text:
            raise DocumentError("is not text", "")
        text = clean(read.text)
        if kind := text_kind(text, name):
            builder = self._parsed(kind, text.encode())
        elif Path(name).suffix.lower() in SUFFIXES and (table := read_csv(text)):
            builder = table
        else:
            builder.verbatim(text.strip())
        if read.unread:
            builder.note_unread(read.unread)
        return builder


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block after this much processor time, on systems that have such a timer.

    A time limit around this one still applies: it ends the block of this one, too.
    """
    if seconds < _MIN_SECONDS:
        raise TimeoutError
    if sys.platform == "win32":
        yield
    else:
        before = signal.signal(signal.SIGVTALRM, _raise_timeout)
        outer, _ = signal.getitimer(signal.ITIMER_VIRTUAL)
        seconds = min(seconds, outer or seconds)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            yield
        finally:
            left, _ = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
            if outer:  # the time limit of a mailbox or message that this file is in goes on
                signal.setitimer(signal.ITIMER_VIRTUAL, max(outer - (seconds - left), _SOON))


def _raise_timeout(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
