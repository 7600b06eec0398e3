"""Asks one question about single passages: decides whether a passage answers the question, and generates the answer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import log

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine, map_events
from localctx.engine.decoding.prefill_decode import prefill
from localctx.engine.decoding.span_search import likelihood_of
from localctx.engine.events import Note
from localctx.engine.prompt import NO_CONVERSATION
from localctx.engine.request import Request
from localctx.engine.run_request import close_request, prefill_request, rank_request
from localctx.library.citations.cite import cite_passages, likeliest_sentence
from localctx.library.search.search import Passage
from localctx.store.passage_answers import PassageKey, StoredAnswer
from localctx.workflows.answer.abstention import says_nothing
from localctx.workflows.answer.answer_case import AnswerCase
from localctx.workflows.answer.every_passage import part_of
from localctx.workflows.answer.question_kind import as_question, with_adapter
from localctx.workflows.answer.question_likelihood import is_likelier, question_tokens, without_question
from localctx.workflows.summary_task import digest

MAX_ANSWER = 96  # tokens of one passage's answer
MIN_WORDS = 0.6  # share of the question's words, by weight; a passage with more is asked without a likelihood test
MIN_NOT_SAID = 0.5  # an adapter's "not said" with a greater probability is the likeliest reply
RECIPE = "everywhere 6"  # increase the number when the way of answering from passages changes

AnswerPassage = Callable[[AnswerCase], EngineCoroutine[None]]
"""A coroutine function that answers from the one passage of the case's request, and cites it."""

_NAME = re.compile(r"\d[\d.,:/]*\d|\d|(?<=[a-z,;] )[A-Z][\w'-]+")


@dataclass(frozen=True)
class PassageAnswer:
    """The answer that one ``passage`` gives to a question. ``answer`` is None if the passage does not answer the
    question.

    ``tokens`` has the numbers of prompt, reused, prefilled and generated tokens. ``notes`` are for the user.
    """

    passage: Passage
    answer: StoredAnswer | None
    tokens: dict[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def key(self) -> PassageKey:
        """The key under which the answer is stored."""
        return passage_key(self.passage)

    @property
    def sentence(self) -> str:
        """The sentence of the passage that contains the cited words."""
        p, cited = self.passage, self.citation
        _, _, (start, end) = likeliest_sentence(p.text, [(cited.start - p.start, cited.end - p.start)], "")
        return p.text[start:end]

    @property
    def citation(self) -> Citation:
        """The citation of the answer. There must be an answer."""
        assert self.answer, "only what was said is cited"
        p, (_, start, end, _) = self.passage, self.answer
        quote = p.text[start - p.start : end - p.start]
        return Citation(p.document, p.name, p.page_at(start), p.heading, start, end, quote, "passage", 1.0)


class PassageQuestion:
    """A question that is asked about many passages, each separately. ``answer_passage`` generates the answer from a
    passage.

    The prompt of ``case`` is the question alone, without a passage. ``likelihood`` is the log-likelihood of the
    question in this prompt, in nats.
    """

    def __init__(self, case: AnswerCase, answer_passage: AnswerPassage, likelihood: float) -> None:
        self._builder, self._answer_passage = case.builder, answer_passage
        # in a batch, a drafted token takes another passage's place
        self._settings = replace(case.settings, n=1, beams=1, draft=0)
        self._documents = {document.id: document for document in case.request.prompt.documents}
        self._alone, self._likelihood = case.request, likelihood
        self._conversation = with_adapter(case.builder.runtime, NO_CONVERSATION)
        self._question = as_question(case.question) if self._conversation.adapter else case.question

    @property
    def _decides(self) -> bool:
        """True if each passage is first tested for whether it answers the question."""
        return self._settings.careful != "off"

    @property
    def recipe(self) -> str:
        """A hash of everything that the answer of a passage depends on, except the passage itself."""
        s, adapter = self._settings, self._conversation.adapter
        reader = adapter.recipe if adapter else ()
        sampling = (s.temperature, s.top_p, s.top_k, s.seed) if s.temperature else ()
        model = self._builder.fingerprint.hex(), *reader
        values = (RECIPE, self._question, *model, s.careful, s.answers, s.repeats, s.keep, s.max_tokens, *sampling)
        return digest([str(value) for value in values])

    def ask(self, passage: Passage, persist: bool) -> EngineCoroutine[PassageAnswer]:
        """Ask the question about one passage, and return the answer. If ``persist``, the pages of the passage are kept.

        Yields only notes. Raises Cancelled, OutOfKVMemory.
        """
        self._builder.runtime.check_cancelled()
        request = self._build(passage, persist)
        try:
            relevant = map_events(self._run(request), lambda event: event if isinstance(event, Note) else None)
            tokens = _count_tokens(request, (yield from relevant))
        finally:
            request.prefilled = 0  # the request's time includes other passages, and so does not measure speed
            close_request(request)
        notes = [*request.restore_notes, *request.persist_notes, *filter(None, [request.persist_error])]
        return PassageAnswer(passage, self._answer_of(request, passage), tokens, notes)

    def _build(self, passage: Passage, persist: bool) -> Request:
        document, text = self._documents[passage.document], without_question(passage.text, self._question)
        request = self._builder.build(
            [document],
            [text],
            self._question,
            persist=persist,
            part=part_of([passage]),
            conversation=self._conversation,
        )
        request.prompt.passages = [passage]
        request.plan = replace(request.plan, answer_tokens=min(request.plan.answer_tokens, MAX_ANSWER))
        return request

    def _run(self, request: Request) -> EngineCoroutine[int]:
        """Prefill the passage, and generate the answer if the passage answers the question. Returns the number of
        tokens read to decide that.
        """
        if request.restored < request.prompt.boundary:
            request.begin_persisting()
        else:
            request.persister = None
        yield from prefill_request(request, request.prompt.boundary)
        request.cache.joins_chunks = True  # from here on nothing is persisted
        answers, tokens = yield from self._answers_question(request)
        if not answers:
            request.result.stopped = "unanswered"
            return tokens
        yield from self._answer_passage(AnswerCase(self._builder, request, self._question, self._settings))
        return tokens

    def _answers_question(self, request: Request) -> EngineCoroutine[tuple[bool, int]]:
        """Returns (whether the passage may answer the question, number of tokens read to decide that).

        An adapter decides by whether it would reply "not said". Without an adapter, the passage must have most of the
        question's words, or make the question likelier. (The likelihood alone is not enough: a passage that states the
        number of gates does not make "list all gates" likelier.)
        """
        if not self._decides:
            return True, 0
        if request.adapter:
            says_nothing_answers, tokens = yield from _says_not_said(request)
            return not says_nothing_answers, tokens
        if request.prompt.passages[0].score >= MIN_WORDS:
            return True, 0
        gain = (yield from rank_request(request)) - self._likelihood
        return is_likelier(gain, question_tokens(self._alone)), _ranking_tokens(request)

    def _answer_of(self, request: Request, passage: Passage) -> StoredAnswer | None:
        """Returns the answer from the passage, or None. An answer that invents a name or number is replaced by its
        quotation. If the adapter first found that the passage probably answers, but then replied "not said", the
        sentence nearest to the question is returned as an unsure answer.
        """
        text = request.texts[0]
        if says_nothing(request) and request.result.stopped != "unanswered" and request.adapter and self._decides:
            (nearest, *_) = cite_passages("", self._question, [passage])
            return StoredAnswer(nearest.quote, nearest.start, nearest.end, sure=False)
        if request.result.stopped == "unanswered" or says_nothing(request):
            return None
        start, end = passage.start, passage.end
        if request.result.citations:
            cited = request.result.citations[0]
            start, end = cited.start, cited.end
            if self._decides and request.result.decoding == "free" and invents(text, passage.text, self._question):
                text = cited.quote
        return StoredAnswer(text, start, end)


def invents(answer: str, text: str, question: str) -> bool:
    """Returns True if ``answer`` has a number or name that is neither in ``text`` nor in ``question``."""
    known = f"{text} {question}".casefold()
    return any(name.casefold() not in known for name in _NAME.findall(answer))


def passage_key(passage: Passage) -> PassageKey:
    """Returns the key under which a passage's answer is stored."""
    return passage.document, passage.start, passage.end


def _count_tokens(request: Request, to_decide: int) -> dict[str, int]:
    """Returns the token counts of a passage. ``to_decide`` is the number of tokens read to decide whether the passage
    answers.
    """
    counts = asdict(request.token_counts())
    prefilled = request.prefilled if request.logits is not None else request.prompt.boundary - counts["reused"]
    prefilled += to_decide
    return {
        "prompt": counts["reused"] + prefilled,
        "reused": counts["reused"],
        "prefilled": prefilled,
        "generated": counts["generated"],
    }


def _ranking_tokens(request: Request) -> int:
    """Returns the number of tokens read to rank a request's passage, without the tokens of the passage itself."""
    read = request.prefilled_to_rank
    return read - (request.prompt.boundary - request.plan.reused) if read else 0


def _says_not_said(request: Request) -> EngineCoroutine[tuple[bool, int]]:
    """Returns whether the adapter would reply "not said" with a probability above one half, and the number of tokens
    read to find out.
    """
    tokenizer, cache = request.model.tokenizer, request.cache.fork(recording=False)
    words, asked = tokenizer.encode(request.not_said), len(request.prompt.tokens) - cache.length
    try:
        logits = yield from prefill(cache, request.prompt.tokens, chunk=request.recovery)
        if logits.softmax(-1)[words[0]] < MIN_NOT_SAID:
            return False, asked
        likelihood = yield from likelihood_of(cache, logits, words, tokenizer.stop_ids)
        return likelihood > log(MIN_NOT_SAID), asked + len(words)
    finally:
        cache.drop()
