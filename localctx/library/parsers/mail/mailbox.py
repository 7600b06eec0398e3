"""Divides a mailbox (.mbox) into its messages and reads each.

Python's mailbox module is not used: it takes every line that begins with "From " after an empty line for a new message.
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
    """Returns the text of all messages of a mailbox. Raises DocumentError if the mailbox has no message.

    A message begins at a line with "From", a sender and a date, if a header field follows. No empty line is needed
    before it. ``read_file`` reads attached files. Calls ``progress(messages read, all messages)``.
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
