"""Defines text generators, which follow instructions about a document.

``LocalGenerator`` uses this machine's model. Other classes with the same protocol use a server or a Ray worker.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from localctx.document_parts import Citation
from localctx.engine.coroutine import EngineCoroutine, flat_map_events
from localctx.engine.events import Event, Note, Planned, Quoted, Token
from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import AS_IT_IS
from localctx.engine.request import Request
from localctx.engine.request_builder import RequestBuilder
from localctx.engine.run_request import answer_request, run_request
from localctx.errors import Cancelled
from localctx.library.wording.no_answer import is_no_answer
from localctx.library.wording.repeated_sentences import ends_in_repeats
from localctx.library.wording.sentences import trim_to_sentence
from localctx.store.documents import StoredDocument
from localctx.workflows.answer.ask import AskWorkflow

MAX_REPEATS = 2  # a text is stopped after so many repeated sentences in a row


def zero_token_counts() -> Counter[str]:
    """Returns the token counts of a result, all of them zero."""
    return Counter(prompt=0, reused=0, prefilled=0, generated=0, dropped=0)


def without_text(event: Event) -> Event | None:
    """Returns ``event``, or None if it shows text (Token, Quoted or Planned), because such text is only an intermediate
    result.
    """
    return None if isinstance(event, Token | Quoted | Planned) else event


@dataclass(frozen=True)
class GeneratedAnswer:
    """An answer to a question about a document. ``mode`` is the mode of the request's plan.

    ``answered`` is False if the answer is that the text does not answer the question. ``confidence`` is the probability
    that the text answers the question; None if no adapter computes it.
    """

    text: str
    mode: str
    citations: Sequence[Citation]
    answered: bool
    confidence: float | None = None


class TextGenerator(Protocol):
    """Generates text about one document with the model named ``model``. ``token_counts`` are the numbers of tokens of
    all prompts and generated texts so far.

    Raises TooLong before generating if a text is too long. All methods raise Cancelled, OutOfKVMemory.
    """

    model: str
    token_counts: Counter[str]

    @property
    def window(self) -> int:
        """The number of tokens that the model was trained to read at once. If a server does not report it, a number is
        assumed.
        """

    def count(self, text: str) -> int:
        """Returns the number of tokens of a text, approximately."""

    def refuse_too_long(self, texts: Sequence[str], instruction: str) -> None:
        """Raise TooLong if ``texts`` and the ``instruction`` do not fit in one prompt."""

    def generate(self, texts: Sequence[str], instruction: str, max_tokens: int) -> EngineCoroutine[str]:
        """Generate a text of at most ``max_tokens`` that follows an instruction about parts of the document."""

    def generate_from_whole(self, instruction: str, max_tokens: int, persist: bool) -> EngineCoroutine[str]:
        """Generate a text of at most ``max_tokens`` that follows an instruction about the whole document.

        With ``persist``, the document's pages are kept, if there is a store for them.
        """

    def answer(self, question: str) -> EngineCoroutine[GeneratedAnswer]:
        """Answer a question about the document. Raises NothingFound if no passage matches the question."""


class LocalGenerator:
    """Generates text with this machine's model. ``ask`` is the workflow that answers questions."""

    def __init__(self, builder: RequestBuilder, ask: AskWorkflow, document: StoredDocument) -> None:
        settings = builder.runtime.settings
        self.model, self.token_counts, self.window = settings.model, zero_token_counts(), builder.model.trained
        # in a batch of documents, a drafted token takes the place of another document's token
        self._builder, self._settings, self._document = builder, replace(settings, draft=0), document
        self._ask, self._runtime = ask, builder.runtime

    def count(self, text: str) -> int:
        """Returns the exact number of tokens of a text."""
        self._runtime.check_cancelled()
        return len(self._builder.model.tokenizer.encode(text))

    def refuse_too_long(self, texts: Sequence[str], instruction: str) -> None:
        """Raise TooLong if the texts do not fit in one prompt, or if the prompt does not fit in memory."""
        self._build(texts, instruction).cache.drop()

    def generate(self, texts: Sequence[str], instruction: str, max_tokens: int) -> EngineCoroutine[str]:
        """Generate a text of at most ``max_tokens`` tokens that follows an instruction about parts of the document.
        Pages are not persisted, because each is used only once and would fill the disk budget.
        """
        return (yield from self._follow(_limited(max_tokens, self._build(texts, instruction))))

    def generate_from_whole(self, instruction: str, max_tokens: int, persist: bool) -> EngineCoroutine[str]:
        """Generate a text of at most ``max_tokens`` tokens that follows an instruction about the whole document. Kept
        pages are reused. New pages are persisted only if ``persist``, because a batch of documents would evict the
        pages of documents that a user asks about.
        """
        request = _limited(max_tokens, self._build([self._document.text], instruction, persist=True))
        if persist:
            request.begin_persisting()
        else:
            request.persister = None
        return (yield from self._follow(request))

    def answer(self, question: str) -> EngineCoroutine[GeneratedAnswer]:
        """Answer a question about the document as ``ask`` does. If several questions share a part of the prompt, it is
        prefilled only for the first one. Raises NothingFound if no passage matches the question.
        """
        request = yield from self._ask.open([self._document], question, True)
        text = yield from self._run(request, self._ask.answer(request, question, self._settings))
        answered = request.result.stopped != "unanswered" and bool(text.strip()) and not is_no_answer(text)
        result = request.result
        return GeneratedAnswer(text, request.plan.mode, result.citations, answered, result.confidence)

    def _follow(self, request: Request) -> EngineCoroutine[str]:
        return (yield from self._run(request, _stop_at_repeats(request, answer_request(request, self._settings))))

    def _run(self, request: Request, coroutine: EngineCoroutine[None]) -> EngineCoroutine[str]:
        """Run a request and count its tokens. Returns the answer, trimmed to whole sentences if it was cut off."""
        yield from run_request(request, coroutine)
        if request.result.stopped == "cancelled":
            raise Cancelled
        dropped = self._count_tokens(request)
        yield from map(Note, (*request.persist_notes, *([request.persist_error] if request.persist_error else [])))
        if dropped:
            total = len(request.prompt.tokens)
            yield Note(f"{request.plan.keeper} dropped {dropped:,} of {total:,} tokens: not all of the text was seen")
        cut = request.result.stopped in ("length", "repeated")
        return trim_to_sentence(request.texts[0]) if cut else request.texts[0]

    def _build(self, texts: Sequence[str], instruction: str, persist: bool = False) -> Request:
        conversation = Conversation(form=AS_IT_IS)
        return self._builder.build([self._document], texts, instruction, persist=persist, conversation=conversation)

    def _count_tokens(self, request: Request) -> int:
        """Add the tokens of the request and of its ranked passages to ``token_counts``. Returns the number of tokens
        that the keeper dropped.
        """
        dropped = round(sum((e.stop - e.start) * (1 - e.kept) for e in request.result.evicted))
        self.token_counts.update(generated=sum(map(len, request.result.answers)), dropped=dropped)
        for one in {id(r): r for r in (*request.result.ranked, request)}.values():
            self.token_counts.update(prompt=len(one.prompt.tokens), reused=one.plan.reused, prefilled=one.prefilled)
        return dropped


class _Repeats(Exception):
    """Raised when the text ends in repeated sentences."""


def _stop_at_repeats(request: Request, coroutine: EngineCoroutine[None]) -> EngineCoroutine[None]:
    """Run ``coroutine``, but stop it once the text ends in MAX_REPEATS repeated sentences, because only more
    repetitions would follow.
    """

    def check(event: Event) -> Iterator[Event]:
        yield event
        if isinstance(event, Token) and ends_in_repeats(request.text, MAX_REPEATS):
            raise _Repeats

    try:
        yield from flat_map_events(coroutine, check)
    except _Repeats:
        request.result.stopped = "repeated"


def _limited(max_tokens: int, request: Request) -> Request:
    """Limit the request's answer to ``max_tokens``, and return the request."""
    request.plan = replace(request.plan, answer_tokens=max(1, min(request.plan.answer_tokens, max_tokens)))
    return request
