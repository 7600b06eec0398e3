"""Checks an answer that was held back against the sentence that it cites, before the user sees it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from localctx.engine.events import Event, Token
from localctx.engine.request import Request
from localctx.library.citations.yes_no_evidence import supported_answer
from localctx.library.wording.dimensions import has_other_dimension
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.quantities import has_other_period
from localctx.library.wording.yes_no import clause_after


def emit_held(request: Request, question: str, held: Sequence[Event]) -> Iterator[Event]:
    """Yields the ``held`` events of the answer of ``request``. Its text is replaced if the citation does not support
    the yes or no at its start, or gives an amount for another period, or a length of another dimension, than the
    ``question`` asks for.
    """
    before = request.texts[0]
    cited = request.result.citations[0].quote if request.result.citations else ""
    text = _supported(before, question, cited) if cited else before
    if text == before:
        yield from held
        return
    first, *others = request.result.answers[0]
    request.result.answers = [[replace(first, text=text), *(replace(token, text="") for token in others)]]
    yield from (event for event in held if not isinstance(event, Token))
    yield from request.result.answers[0]


def _supported(answer: str, question: str, cited: str) -> str:
    if clause_after(answer) is not None:
        return supported_answer(answer, question, cited)
    other = has_other_period(question, answer, cited, language_of(cited) or "en")
    return " ".join(cited.split()) if other or has_other_dimension(question, answer, cited) else answer
