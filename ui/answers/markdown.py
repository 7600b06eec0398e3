"""Renders the Markdown of answers as HTML: headings, lists, tables, code. HTML, links and pictures in the Markdown are
shown as plain text.

The sentences of an answer are marked by single characters of Unicode's private use area, which survive the rendering.
"""

import re
from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt

from localctx.library.citations.sentence_sources import AnswerSentence
from localctx.ui.render import without_templates

UNSUPPORTED = "No passage says this"
_BEGIN, _END, _NUMBER = "\ue000", "\ue001", "\ue002"
_MARKS = re.compile(f"[{_BEGIN}{_END}{_NUMBER}]")
_DIMMED = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}<]*){_END}")  # a sentence without markup inside
_LIST_WITHOUT_GAP = re.compile(r"(?<=\S)\n(?=(?:[-*+]|\d{1,3}[.)]) )")
# the end of the last row of a table, except the line below the headings
_LAST_CELL = re.compile(r"\s*\|\s*(?:\n[-|: ]+)?\Z")
_parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
_parser.enable(["table", "strikethrough"]).disable(["link", "image", "autolink", "html_inline", "html_block"])
_parser.disable(["reference", "entity"])


def to_html(text: str) -> str:
    """Returns the Markdown ``text`` as HTML. HTML in the text is escaped."""
    return without_templates(_parser.render(_LIST_WITHOUT_GAP.sub("\n\n", _MARKS.sub("", text))))


def answer_html(text: str, checked: Sequence[AnswerSentence], link: Callable[[AnswerSentence], str]) -> str:
    """Returns an answer as HTML.

    ``link`` returns the HTML to insert after a supported sentence. Unsupported sentences are dimmed.
    """
    marked, at = list[str](), 0
    for sentence in checked:
        before, said = text[at : sentence.start], text[sentence.start : sentence.end]
        marked += [_MARKS.sub("", before), _marked(sentence, _MARKS.sub("", said))]
        at = sentence.end
    rendered = _parser.render(_LIST_WITHOUT_GAP.sub("\n\n", "".join([*marked, _MARKS.sub("", text[at:])])))
    links = iter([link(s) for s in checked if s.number])
    html = _DIMMED.sub(_dimmed, without_templates(rendered)).replace(_BEGIN, "").replace(_END, "")
    return re.sub(_NUMBER, lambda _: next(links), html)


def _marked(sentence: AnswerSentence, said: str) -> str:
    """Returns ``said``, the text of a sentence, with the marks for its support. In rows of a table, the number is in
    the last cell.
    """
    number = _NUMBER if sentence.number else ""
    if said.startswith("|"):
        last = _LAST_CELL.search(said)
        end = last.start() if last else len(said)
        return said[:end] + number + said[end:]
    return f"{_BEGIN}{said}{_END}" if sentence.support == "unsupported" else said + number


def _dimmed(sentence: re.Match[str]) -> str:
    heard = f'<span class="lc-unseen"> ({UNSUPPORTED.lower()})</span>'
    return f'<span class="lc-unsupported" title="{UNSUPPORTED}">{sentence[1]}{heard}</span>'
