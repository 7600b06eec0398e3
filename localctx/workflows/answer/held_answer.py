"""Checks an answer that was held back against the sentence that it cites, before the user sees it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Event, Quoted, Token
from localctx.engine.request import Request
from localctx.library.citations.yes_no_evidence import supported_answer
from localctx.library.wording.asked_measures import has_other_measure
from localctx.library.wording.dimensions import has_other_dimension
from localctx.library.wording.identify_language import language_of
from localctx.library.wording.quantities import has_other_period
from localctx.library.wording.yes_no import clause_after, without_repeated_clause


def hold(answering: EngineCoroutine[None], held: list[Event]) -> EngineCoroutine[None]:
    """Run ``answering``. Its tokens and quotations are not yielded; they are appended to ``held``."""
    return map_events(answering, lambda event: held.append(event) if isinstance(event, Token | Quoted) else event)


def emit_held(request: Request, question: str, held: Sequence[Event]) -> Iterator[Event]:
    """Yields the ``held`` events of the answer of ``request``. Its text is replaced if the citation does not support
    the yes or no at its start, or gives an amount for another period, a length of another dimension, or another
    kind of quantity, than the ``question`` asks for.
    """
    before = request.texts[0]
    cited = request.result.citations[0].quote if request.result.citations else ""
    text = _supported(before, question, cited) if cited else before
    if text == before:
        yield from held
        return
    yield from (event for event in held if not isinstance(event, Token))
    yield from replace_text(request, text)


def replace_text(request: Request, text: str) -> Sequence[Token]:
    """Replace the text of the answer of ``request``. Returns its tokens: the first has the whole text."""
    first, *others = request.result.answers[0]
    request.result.answers = [[replace(first, text=text), *(replace(token, text="") for token in others)]]
    return request.result.answers[0]


def _supported(answer: str, question: str, cited: str) -> str:
    if clause_after(answer) is not None:
        return without_repeated_clause(supported_answer(answer, question, cited), question)
    is_other = (
        has_other_period(question, answer, cited, language_of(cited) or "en")
        or has_other_dimension(question, answer, cited)
        or has_other_measure(question, answer)
    )
    return " ".join(cited.split()) if is_other else answer
