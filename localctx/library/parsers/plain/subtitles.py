"""Reads subtitles (.srt, .vtt): a line for each subtitle, marked with the time at which it is shown.

Other packages were tried on the tests' files: pysubs2 1.8 took a note for speech, srt 3.5 kept the tags, and webvtt-py
0.6 reads only WebVTT.
"""

import re

from localctx.library.parsers.text_builder import TextBuilder

_TIME = r"(?:(\d+):)?(\d\d):(\d\d)[,.]\d{1,3}"
TIMES = re.compile(rf"^[ \t]*{_TIME}[ \t]*-->[ \t]*(?:\d+:)?\d\d:\d\d[,.]\d.*$", re.MULTILINE)
_NAME = re.compile(r"\n[ \t]*\n[ \t]*\S[^\n]*\n\Z|\n[ \t]*\d+[ \t]*\n\Z")  # of the next subtitle
_NOTE = re.compile(r"\n\n(?:NOTE|STYLE|REGION)\b.*\n(?:.*\S.*\n)*")
_SPEAKER = re.compile(r"<v(?:\.[\w.]+)?[ \t]+([^>]*)>")
_TAG = re.compile(r"</?[a-zA-Z][^>\n]*>|<\d[\d:.]*>|\{\\[^}\n]*\}")


def read(text: str) -> TextBuilder:
    """Returns the text of the subtitles. Leaves out text before the first time, and the notes and styles of WebVTT."""
    builder, label = TextBuilder(), ""
    if text.startswith("WEBVTT"):
        text = _NOTE.sub("\n\n", text)
    times = list(TIMES.finditer(text))
    ends = [time.start() for time in times[1:]] + [len(text)]
    for time, end in zip(times, ends, strict=False):
        lines = text[time.end() : end]
        lines = lines if time is times[-1] else _NAME.sub("", lines)
        shown = _TAG.sub("", _SPEAKER.sub(r"\1: ", lines)).strip()
        hours, minutes, seconds = (int(number or 0) for number in time.groups())
        if shown and label != (label := f"{hours:02}:{minutes:02}:{seconds:02}"):
            builder.mark("subtitle", label)
        builder.words(shown)
        builder.line()
    return builder
