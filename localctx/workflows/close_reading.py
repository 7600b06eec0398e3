"""Close reading: a small model answers from the one or two sentences that make the question likeliest, in two ways.

Models of some hundred million parameters miss the answer in a paragraph that has it. Which sentence a question is about
they know well: by how likely they find the question after it, as passages are ranked (arXiv:2204.07496). Of the two
answers the one that the model finds likelier is given.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.events import Quoted, Token
from localctx.engine.prompt import ASK, Conversation
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, close_request, rank_request, run_request
from localctx.errors import Cancelled
from localctx.library.cite import split_words
from localctx.library.search import Passage
from localctx.library.sentences import sentences
from localctx.models.base import Model
from localctx.settings import Settings
from localctx.store.documents import StoredDocument

SMALL = 1_000_000_000  # parameters; a larger model finds the sentence by itself
LEAST_WORDS = 3  # of a sentence
WITH_ITS_WORDS = "Question: {question}\nAnswer with words of the document{s} above."
NO_LIFT, NO_LIFT_EACH = 8.0, 0.5  # nats, of the whole question and of each of its tokens

_NAME = re.compile(r"\d[\d.,:/]*\d|\d|(?<=[a-z,;] )[A-Z][\w'-]+")
_NEXT_QUESTION = re.compile(r"\n\s*(Question|Q):")

Range = tuple[int, int]


def reads_closely(model: Model, settings: Settings) -> bool:
    """True if close reading helps: the model is small, and one greedy answer is wanted."""
    greedy = settings.temperature == 0 and settings.n == settings.beams == 1
    return settings.careful != "off" and greedy and model.parameters < SMALL


def makes_likelier(builder: RequestBuilder, question: str, likelihood: float) -> EngineCoroutine[bool]:
    """True if a passage, after which the question has this log-``likelihood``, makes it likelier than it is alone.

    If even the best passage does not, nothing in the documents answers the question.
    """
    alone_form = Conversation(form="{question}")
    request = builder.build([], [], question, persist=False, part="question", conversation=alone_form)
    alone = yield from _likelihood(request)
    tokens = len(request.tokens) - request.boundary - 1
    return likelihood - alone > min(NO_LIFT, NO_LIFT_EACH * tokens)


def without_question(text: str, question: str) -> str:
    """``text`` without the words of ``question`` where it has them one after another: after itself every question is
    likely, and that says nothing of an answer.
    """
    asked = re.findall(r"\w+", question)
    return re.sub(r"\W+".join(map(re.escape, asked)) + r"\??", "", text, flags=re.IGNORECASE) if asked else text


def rank_sentences(
    builder: RequestBuilder, document: StoredDocument, passage: Passage, question: str
) -> EngineCoroutine[list[Range]]:
    """The sentences of ``passage`` as ranges of its text, those first that make the question likeliest."""
    everything = sentences(passage.text, 0, len(passage.text))
    found = [(a, b) for a, b in everything if says_something(without_question(passage.text[a:b], question))]
    found = found or [(0, len(passage.text))]
    likelihoods = list[float]()
    for start, end in found if len(found) > 1 else ():
        text = without_question(passage.text[start:end], question)
        request = builder.build([document], [text], question, persist=False, part="sentence")
        likelihoods.append((yield from _likelihood(request)))
    order = sorted(range(len(likelihoods)), key=lambda i: -likelihoods[i])
    return [found[i] for i in order] or found


def says_something(sentence: str) -> bool:
    """True if a sentence is more than a heading or a rule."""
    return len(split_words(sentence)) >= LEAST_WORDS


def answer_from_sentences(
    builder: RequestBuilder,
    settings: Settings,
    document: StoredDocument,
    text: str,
    ranked: Sequence[Range],
    question: str,
) -> EngineCoroutine[tuple[Request, int]]:
    """The better of two answers, and the number of sentences it is from: one from the best sentence in the sentence's
    own words, and one from the best two. An answer that invents nothing is better than one that does; then the likelier
    one is better. The coroutine yields no tokens.
    """
    two = " ".join(text[a:b] for a, b in sorted(ranked[:2]))
    (start, end), answers = ranked[0], list[tuple[Request, int]]()
    for sentence, form, count in ((text[start:end], WITH_ITS_WORDS, 1), (two, ASK, 2)):
        source = without_question(sentence, question)
        answers.append(((yield from _answer(builder, settings, document, source, question, form)), count))
    return max(answers, key=lambda one: (not invents(one[0].texts[0], text, question), one[0].likelihood))


def invents(answer: str, text: str, question: str) -> bool:
    """True if an answer has a number or a name that neither ``text`` nor the question has."""
    known = f"{text} {question}".casefold()
    return any(name.casefold() not in known for name in _NAME.findall(answer))


def without_tokens(coroutine: EngineCoroutine[None]) -> EngineCoroutine[None]:
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
    request = builder.build(
        [document], [text], question, persist=False, part="sentence", conversation=Conversation(form=form)
    )
    undrafted = replace(settings, draft=0)  # a sentence has little that could be looked up
    yield from without_tokens(run_request(request, answer_request(request, undrafted)))
    if request.stopped == "cancelled":
        raise Cancelled
    request.answers[0] = before_next_question(request.answers[0])
    return request


def before_next_question(tokens: Sequence[Token]) -> list[Token]:
    """An answer up to where the model goes on by asking itself another question, as some do."""
    text, kept = "", list[Token]()
    for token in tokens:
        text += token.text
        if found := _NEXT_QUESTION.search(text):
            while kept and len("".join(t.text for t in kept)) > found.start():
                kept.pop()
            break
        kept.append(token)
    return kept or list(tokens)
