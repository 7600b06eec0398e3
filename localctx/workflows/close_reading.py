"""Close reading: a small model answers twice, from the one and from the two sentences that make the question likeliest.

Models of a few hundred million parameters often miss the answer in a paragraph that has it, but they rank its sentences
well by the likelihood of the question after each, as passages are ranked (arXiv:2204.07496). The likelier of the two
answers is given.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from localctx.engine.coroutine import EngineCoroutine, Result, map_events
from localctx.engine.events import Quoted, Token
from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import AS_IT_IS, ASK, ASK_FOR_ITS_WORDS
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, close_request, rank_request, run_request
from localctx.errors import Cancelled
from localctx.library.search import Passage
from localctx.library.sentences import sentences
from localctx.library.words import split_words
from localctx.models.adapter import Adapter
from localctx.models.base import Model
from localctx.settings import Settings
from localctx.store.documents import StoredDocument

SMALL_MODEL = 1_000_000_000  # parameters; a model with more finds the sentence by itself
MIN_WORDS = 3  # of a sentence; a shorter one is a heading or a rule
MIN_GAIN, MIN_GAIN_PER_TOKEN = 8.0, 0.5  # nats by which a passage must make a question likelier; the smaller counts

_NAME = re.compile(r"\d[\d.,:/]*\d|\d|(?<=[a-z,;] )[A-Z][\w'-]+")
_NEXT_QUESTION = re.compile(r"\n\s*(Question|Q):")

Range = tuple[int, int]


def reads_closely(model: Model, settings: Settings, adapter: Adapter | None) -> bool:
    """True if close reading helps: the model is small and no adapter reads for it, and one greedy answer is wanted."""
    return settings.careful != "off" and settings.is_greedy and not adapter and model.parameters < SMALL_MODEL


def makes_likelier(builder: RequestBuilder, question: str, likelihood: float) -> EngineCoroutine[bool]:
    """True if a passage makes the question likelier than it is without one; ``likelihood`` is the question's
    log-likelihood, in nats, after the passage.

    If even the best passage does not, nothing in the documents answers the question.
    """
    request = question_alone(builder, question)
    return is_likelier(likelihood, (yield from _likelihood(request)), request)


def question_gain(builder: RequestBuilder, question: str, likelihood: float) -> EngineCoroutine[tuple[float, int]]:
    """Returns by how many nats a passage makes the question likelier, and the question's tokens; ``likelihood`` is the
    question's log-likelihood after the passage.
    """
    request = question_alone(builder, question)
    without_passage = yield from _likelihood(request)
    return likelihood - without_passage, _question_tokens(request)


def question_alone(builder: RequestBuilder, question: str) -> Request:
    """Build the request for the likelihood of ``question`` without a passage."""
    only_question = Conversation(form=AS_IT_IS)
    return builder.build([], [], question, persist=False, part="question", conversation=only_question)


def is_likelier(likelihood: float, without_passage: float, alone: Request) -> bool:
    """True if a passage makes a question likelier: its log-likelihood after the passage, and that of the request
    ``alone``.
    """
    return likelihood - without_passage > min(MIN_GAIN, MIN_GAIN_PER_TOKEN * _question_tokens(alone))


def _question_tokens(alone: Request) -> int:
    assert alone.ranking, "a part is ranked"
    return len(alone.ranking.tokens) - alone.ranking.question


def without_question(text: str, question: str) -> str:
    """Returns ``text`` with every repetition of ``question`` removed: a question is always likely after itself, which
    says nothing about an answer.
    """
    words = re.findall(r"\w+", question)
    return re.sub(r"\W+".join(map(re.escape, words)) + r"\??", "", text, flags=re.IGNORECASE) if words else text


def rank_sentences(
    builder: RequestBuilder, document: StoredDocument, passage: Passage, question: str
) -> EngineCoroutine[list[Range]]:
    """Returns the sentences of ``passage`` as ranges of its text, those first that make the question likeliest."""
    every_sentence = sentences(passage.text, 0, len(passage.text))
    ranges = [(a, b) for a, b in every_sentence if has_content(without_question(passage.text[a:b], question))]
    ranges = ranges or [(0, len(passage.text))]
    likelihoods = list[float]()
    for start, end in ranges if len(ranges) > 1 else ():
        text = without_question(passage.text[start:end], question)
        request = builder.build([document], [text], question, persist=False, part="sentence")
        likelihoods.append((yield from _likelihood(request)))
    order = sorted(range(len(likelihoods)), key=lambda i: -likelihoods[i])
    return [ranges[i] for i in order] or ranges


def has_content(sentence: str) -> bool:
    """True if a sentence is more than a heading or a rule."""
    return len(split_words(sentence)) >= MIN_WORDS


def answer_from_sentences(
    builder: RequestBuilder,
    settings: Settings,
    document: StoredDocument,
    text: str,
    ranked: Sequence[Range],
    question: str,
) -> EngineCoroutine[tuple[Request, int]]:
    """Answer from the best sentence, in its own words, and from the best two; returns the better request and the number
    of sentences it answers from.

    An answer that invents nothing is better than one that does; then the likelier one is better. The coroutine yields
    no tokens.
    """
    two = " ".join(text[a:b] for a, b in sorted(ranked[:2]))
    (start, end), answers = ranked[0], list[tuple[Request, int]]()
    for sentence, form, count in ((text[start:end], ASK_FOR_ITS_WORDS, 1), (two, ASK, 2)):
        source = without_question(sentence, question)
        answers.append(((yield from _answer(builder, settings, document, source, question, form)), count))
    return max(answers, key=lambda one: (not invents(one[0].texts[0], text, question), one[0].likelihood))


def invents(answer: str, text: str, question: str) -> bool:
    """True if an answer has a number or a name that neither ``text`` nor the question has."""
    known = f"{text} {question}".casefold()
    return any(name.casefold() not in known for name in _NAME.findall(answer))


def without_tokens(coroutine: EngineCoroutine[Result]) -> EngineCoroutine[Result]:
    """The same coroutine without the tokens and quotations it yields."""
    return map_events(coroutine, lambda event: None if isinstance(event, Token | Quoted) else event)


def _likelihood(request: Request) -> EngineCoroutine[float]:
    try:
        return (yield from rank_request(request))
    finally:
        close_request(request)


def _answer(
    builder: RequestBuilder, settings: Settings, document: StoredDocument, text: str, question: str, form: str
) -> EngineCoroutine[Request]:
    asked = Conversation(form=form)
    request = builder.build([document], [text], question, persist=False, part="sentence", conversation=asked)
    undrafted = replace(settings, draft=0)  # prompt lookup finds little in one sentence
    yield from without_tokens(run_request(request, answer_request(request, undrafted)))
    if request.stopped == "cancelled":
        raise Cancelled
    request.answers[0] = before_next_question(request.answers[0])
    return request


def before_next_question(tokens: Sequence[Token]) -> list[Token]:
    """Returns an answer up to where the model writes another question, as some models do."""
    text, kept = "", list[Token]()
    for token in tokens:
        text += token.text
        if found := _NEXT_QUESTION.search(text):
            while kept and len("".join(t.text for t in kept)) > found.start():
                kept.pop()
            break
        kept.append(token)
    return kept or list(tokens)
