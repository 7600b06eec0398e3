"""Divides a mailbox (.mbox) into its messages.

Own code: Python's mailbox module takes every line that begins with "From " after an empty one for the next message.
"""

import re
from collections.abc import Callable

from localctx.errors import DocumentError
from localctx.library.parsers.mail.message import ReadFile, append_message
from localctx.library.parsers.text_builder import TextBuilder

_DAY = rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?"
_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DATE = rb"%b[ ]+(?:%b[ ]+\d{1,2}|\d{1,2}[ ]%b)[ ,][^\r\n]*\b\d\d:\d\d\b[^\r\n]*" % (_DAY, _MONTH, _MONTH)
_FIELD = rb"(?=>?From |[A-Za-z][\w-]*:)"
_BEGIN = re.compile(rb"(?:\AFrom [^\r\n]*|^From (?:[^\r\n]*[ ])?%b)\r?\n%b" % (_DATE, _FIELD), re.MULTILINE)
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)


def read_mailbox(data: bytes, progress: Callable[[int, int], None], read_file: ReadFile) -> TextBuilder:
    """Returns the text of all messages of a mailbox. Raises DocumentError if it has none.

    A message begins at a line of the sender and the date it was sent, whether or not an empty line comes before.
    ``read_file`` reads attached files.
    """
    builder = TextBuilder()
    begins = list(_BEGIN.finditer(data))
    if not begins:
        remedy = "export it from the mail program again; if it is plain text, let its name end in .txt"
        raise DocumentError("is a mailbox without a message", remedy)
    ends = [begin.start() for begin in begins[1:]] + [len(data)]
    for number, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        builder.mark("message", str(number))
        append_message(_QUOTED_FROM.sub(rb"\1", data[begin.end() : end]), builder, read_file)
        builder.line(2)
        progress(number, len(begins))
    return builder
