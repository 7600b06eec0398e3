"""Renders an answer that gives one value of each document: under a document's name its value, with the quotation."""

import re
from collections.abc import Mapping, Sequence

from localctx.library.citations.sentence_sources import AnswerSentence
from localctx.ui.answers import evidence
from localctx.ui.answers.evidence import EvidencePlace
from localctx.ui.render import escape


def compared_lines(
    text: str, checked: Sequence[AnswerSentence], places: Mapping[int, EvidencePlace], documents: int
) -> str:
    """Returns the lines of an answer as HTML: first the verdict, which follows the lines of ``documents`` documents."""
    lines = [(text[s.start : s.end], places.get(s.number or 0)) for s in checked]
    verdict = "".join(f'<p class="lc-value">{escape(line)}</p>' for line, _ in lines[documents:])
    shown = "".join(_line(line, place) for line, place in lines[:documents])
    return f'<div class="lc-compared">{verdict}{shown}</div>'


def _line(line: str, place: EvidencePlace | None) -> str:
    named = place and re.match(rf"({re.escape(place.name)}(?: \(\d+\))?)\s?[:：]\s?(.*?)[.。]?$", line, re.DOTALL)  # noqa: RUF001
    if not place or not named:
        return f'<p class="lc-told">{escape(line)}</p>'
    name, value = named.groups()
    head, is_quoted = (
        f'<p class="lc-quiet">{escape(name)}</p>',
        evidence.squeezed(value) in evidence.squeezed(place.text),
    )
    if not is_quoted:
        head += f'<p class="lc-value">{escape(value)}</p>'
    return f"<section>{head}{evidence.quotation(place, value, css='lc-alone' * is_quoted)}</section>"
