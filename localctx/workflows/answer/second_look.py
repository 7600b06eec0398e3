"""Asks a question once more of the sentences that have more of its words than the sentence that the answer cites.

A small model takes near misses: asked for the excess for a storm, it gives the excess of every claim, although another
sentence names storms. From a few sentences it chooses better than from a document.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Event, Progress, Quoted
from localctx.engine.prompt import NO_CONVERSATION
from localctx.engine.request import Request
from localctx.engine.run_request import run_request
from localctx.errors import OutOfKVMemory, TooLong
from localctx.library.citations.cite import TextRange, cite_characters
from localctx.library.citations.rarity import rarity, weight_of
from localctx.library.citations.source_index import sentence_words
from localctx.library.citations.yes_no_evidence import GENERAL
from localctx.library.wording.word_forms import content_forms
from localctx.store.documents import StoredDocument, text_id
from localctx.workflows.answer.answer_case import AnswerCase, MakeAnswer
from localctx.workflows.answer.held_answer import hold, replace_text
from localctx.workflows.answer.question_kind import with_adapter

LONGEST = 100_000  # characters of a document whose sentences are compared
BEST = 3  # sentences that are asked, each with its neighbours


@dataclass(frozen=True)
class _SentencesToAsk:
    """Sentences of a document: ``text`` has those at the ranges ``of``, each on a line."""

    document: StoredDocument
    of: Sequence[TextRange]

    @property
    def text(self) -> str:
        return "\n".join(self.document.text[start:end] for start, end in self.of)

    @property
    def alone(self) -> StoredDocument:
        """The sentences as a document of their own."""
        return StoredDocument(replace(self.document.row, id=text_id(self.text)), self.text, ())

    def cite(self, citation: Citation) -> Citation:
        """Returns a citation of ``alone`` as one of the document."""
        at = 0
        for start, end in self.of:
            after = at + end - start + 1
            if citation.start < after:
                first, last = start + citation.start - at, min(end, start + citation.end - at)
                return replace(
                    cite_characters(self.document, first, last), source=citation.source, weight=citation.weight
                )
            at = after
        raise AssertionError("a citation is within the text")


def look_again(case: AnswerCase, answering: EngineCoroutine[None], make_answer: MakeAnswer) -> EngineCoroutine[None]:
    """Run ``answering``. If another sentence has more words of the question than the sentence that the answer cites,
    answer from such sentences with ``make_answer``, and give this answer instead, unless it is that nothing answers.

    The answer is held back meanwhile.
    """
    held = list[Event]()
    yield from hold(answering, held)
    part = _sentences_to_ask(case)
    second = (yield from _ask(case, part, make_answer)) if part else None
    if part and second:
        held = list(_given_instead(case.request, second, part, held))
    yield from held


def _ask(case: AnswerCase, part: _SentencesToAsk, make_answer: MakeAnswer) -> EngineCoroutine[Request | None]:
    """Answer from the sentences alone. Returns the request if it has an answer, else None."""
    builder, started = case.builder, time.perf_counter()
    conversation = with_adapter(builder.runtime, NO_CONVERSATION, case.question)
    try:
        request = builder.build(
            [part.alone], [part.text], case.question, persist=False, part="sentences", conversation=conversation
        )
        second = AnswerCase(builder, request, case.question, replace(case.settings, mode="full"))
        yield from map_events(run_request(request, make_answer(second)), _progress)
    except (TooLong, OutOfKVMemory):
        return None
    finally:
        now = time.perf_counter()
        case.request.seconds |= {"again": now - started, "first_token": now - case.request.started}
    answered = request.result.stopped == "eos" and request.result.citations
    return request if answered else None


def _progress(event: Event) -> Event | None:
    """Returns the progress of reading the sentences, and None for other events, which the first answer had."""
    return replace(event, phase="reading again") if isinstance(event, Progress) and event.phase == "reading" else None


def _given_instead(request: Request, second: Request, part: _SentencesToAsk, held: Sequence[Event]) -> Iterator[Event]:
    """Yields the events of the ``second`` answer, which becomes that of ``request``."""
    request.result.citations = [part.cite(citation) for citation in second.result.citations]
    request.result.confidence, request.result.evidence = second.result.confidence, second.result.evidence
    if any(isinstance(event, Quoted) for event in held):
        yield Quoted(request.result.citations[0].to_json())
    yield from replace_text(request, second.texts[0])


def _sentences_to_ask(case: AnswerCase) -> _SentencesToAsk | None:
    """Returns the sentences with the most words of the question, weighted by rarity, their neighbours, and those that
    the answer cites. Returns None if none has more of these words than the cited ones.
    """
    request = case.request
    if request.result.stopped != "eos" or not request.result.citations or len(request.prompt.documents) != 1:
        return None
    (document,), cited = request.prompt.documents, request.result.citations[0]
    if len(document.text) > LONGEST:
        return None
    ranges = sentence_words(document.text)
    weights = _weights(content_forms(case.question) - GENERAL, [words for *_, words in ranges])
    scores = [weight_of(words, weights) for *_, words in ranges]
    own = [i for i, (start, end, _) in enumerate(ranges) if start < cited.end and cited.start < end]
    have = frozenset[str]().union(*(ranges[i][2] for i in own))
    best = sorted(range(len(ranges)), key=lambda i: (-scores[i], i))[:BEST]
    if not best or scores[best[0]] <= weight_of(have, weights):
        return None
    near = {j for i in best if scores[i] > 0 for j in (i - 1, i, i + 1) if 0 <= j < len(ranges)}
    return _SentencesToAsk(document, [ranges[i][:2] for i in sorted({*own, *near})])


def _weights(asked: set[str], sentences: Sequence[frozenset[str]]) -> dict[str, float]:
    counts = {word: sum(word in words for words in sentences) for word in asked}
    return {word: rarity(len(sentences), count) for word, count in counts.items() if count}
