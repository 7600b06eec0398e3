"""Builds requests: chooses prompt, window, codec, keeper and memory limits, restores kept pages and plans the request.
Nothing is computed or written yet.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from localctx.engine.kv_engine import KVEngine, PlannedCache
from localctx.engine.llama_engine import LlamaEngine
from localctx.engine.persistence.persister import CacheIdentity, Persister
from localctx.engine.planning.cache_plan import choose_window, longest_prompt
from localctx.engine.planning.plan import MESSAGES, QUESTION, RAW, refuse_too_long
from localctx.engine.prompt import (
    NO_CONVERSATION,
    Conversation,
    Prompt,
    common,
    estimate_tokens,
    make_prompt,
    verbatim_prompt,
)
from localctx.engine.prompt_wording import RANKING
from localctx.engine.request import Request, RequestPrompt
from localctx.engine.runtime import Runtime
from localctx.engine.torch_engine import TorchEngine
from localctx.errors import UsageError
from localctx.kv.pages import Activation
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.base import Model
from localctx.settings import EngineName, Settings
from localctx.store.documents import DocumentBeginning, StoredDocument

ENGINES: dict[EngineName, type[KVEngine]] = {"torch": TorchEngine, "llama.cpp": LlamaEngine}
SURELY_COUNTED = 8  # characters per token of the window; a longer text is first counted roughly


@dataclass(frozen=True)
class _PromptSpec:
    """The parameters of a request: it asks ``question`` about ``texts``, or only prefills them if ``question`` is None.
    ``part`` names the part of ``documents`` that ``texts`` are (empty: all).
    """

    documents: Sequence[StoredDocument]
    texts: Sequence[str]
    question: str | None
    part: str
    conversation: Conversation


@dataclass(frozen=True)
class _TokenizedPrompt:
    """The ``tokens`` to compute: ``prompt`` and the beginning of an answer, if any. Chunks end at ``cuts``. The
    ``persisted`` tokens are restored and stored; those before ``boundary`` are the same for any question. ``ranking``
    is a result of ``_ranking_prompt``.
    """

    prompt: Prompt
    ranking: Prompt | None
    tokens: list[int]
    cuts: list[int]
    persisted: list[int]
    boundary: int
    document_tokens: int
    activation: Activation | None


class RequestBuilder:
    """Builds requests for the model of a ``runtime``, under its settings."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._engine: KVEngine | None = None

    @property
    def engine(self) -> KVEngine:
        """The engine of the runtime's model. Raises ModelError."""
        if self._engine is None:
            self._engine = ENGINES[self.model.engine](self.runtime)
        return self._engine

    @property
    def model(self) -> Model:
        """The runtime's model. Raises ModelError."""
        return self.runtime.model

    def build(
        self,
        documents: Sequence[StoredDocument],
        texts: Sequence[str],
        question: str | None,
        *,
        persist: bool,
        part: str = "",
        conversation: Conversation = NO_CONVERSATION,
    ) -> Request:
        """Build the request to ask ``question`` about ``texts``, or to prefill them ahead of questions (``question``
        None).

        ``part`` names the part of ``documents`` that ``texts`` are, empty for the whole. ``conversation`` is the
        conversation that the question continues. If ``persist``, pages are restored from the store and new ones written
        to it. Raises TooLong before anything is persisted. Raises UsageError for a document that is only prefilled, if
        the keeper would leave nothing to persist.
        """
        started, settings = time.perf_counter(), self._settings_of(conversation)
        spec = _PromptSpec(documents, texts, question, part, conversation)
        tokenized = self._tokenize(spec)
        planned = self._planned(settings, len(tokenized.tokens), _contents(conversation))
        dropped = _drops(planned, len(tokenized.tokens), documents[0].name if question is None else "")
        cache = self.engine.open_cache(planned)
        cache.activation = tokenized.activation
        persists = persist and (not dropped or conversation.chat is not None)  # a chat resumes from before the eviction
        with _dropped_on_error(cache):
            persister = self._persister(spec, tokenized, planned) if persists else None
            restoring = time.perf_counter()
            restore_notes = persister.restore(cache) if persister else []
            sharing = self.engine.sharing(planned, tokenized.tokens) if conversation.is_verbatim else None
            if sharing:
                sharing.begin(cache)
            plan = self.engine.plan(
                planned,
                tokens=len(tokenized.tokens),
                reused=cache.length,
                answer=conversation.max_tokens or settings.max_tokens,
                per_second=persister.rate if persister else None,
            )
        return Request(
            model_name=settings.model,
            plan=plan,
            prompt=self._request_prompt(spec, tokenized),
            engine=self.engine,
            model=self.model,
            cache=cache,
            adapter=conversation.adapter,
            persister=persister,
            recovery=self.engine.oom_recovery(planned),
            started=started,
            seconds={"restore": time.perf_counter() - restoring},
            sharing=sharing,
            planned_chunk=planned.chunk,
            restored=cache.length,
            restore_notes=restore_notes,
        )

    @property
    def max_prompt_tokens(self) -> float:
        """The maximum number of tokens of a prompt, with RoPE scaling if the settings allow it. It is infinite if the
        keeper evicts tokens and keeps positions within the window, because a prompt of any length can then be read.
        """
        return longest_prompt(self.runtime.settings, self.model)

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint from which the names of pages are made, with the current settings and RoPE scaling."""
        return self.engine.fingerprint(self.engine.codec)

    def prompt(self, texts: Sequence[str], question: str, conversation: Conversation = NO_CONVERSATION) -> Prompt:
        """Build the prompt that asks ``question`` about ``texts`` and continues ``conversation``. If the prompt is
        long, scale the model's RoPE to a longer window.

        Raises TooLong; a text that is far too long is not tokenized whole.
        """
        model, settings = self.model, self._settings_of(conversation)
        max_tokens, what = longest_prompt(settings, model), _contents(conversation)
        if sum(map(len, texts)) > SURELY_COUNTED * max_tokens:
            estimate = estimate_tokens(model.tokenizer, texts, int(max_tokens), self.runtime.cancelled)
            refuse_too_long(estimate, max_tokens, model.name, "about ", what)
        if conversation.is_verbatim:
            prompt = verbatim_prompt(model.tokenizer, conversation)
        else:
            prompt = make_prompt(model.tokenizer, texts, question, conversation.history, conversation.form)
        refuse_too_long(len(prompt.tokens), max_tokens, model.name, what=what)
        rope = choose_window(settings, model, prompt.shared, len(prompt.tokens)).rope
        self.engine.scale_rope(rope)
        return prompt

    def _tokenize(self, spec: _PromptSpec) -> _TokenizedPrompt:
        """Returns the tokens of the request, and where they are cut. Raises TooLong."""
        conversation, question = spec.conversation, spec.question or ""
        prompt = self.prompt(spec.texts, question, conversation)
        ranking = self._ranking_prompt(prompt, spec.texts, question, spec.part, conversation)
        boundary = _boundary(prompt, ranking)
        document_tokens = min(boundary, prompt.documents) if spec.documents else 0
        tokens = [*prompt.tokens, *(self.model.tokenizer.encode(conversation.begun) if conversation.begun else [])]
        cuts = sorted({document_tokens, *([boundary] if ranking else self.engine.cuts(prompt))} - {0})
        if len(tokens) > len(prompt.tokens):  # the answer so far was persisted; recompute its last token
            cuts.append(len(tokens) - 1)
        activation = prompt.activation(conversation.adapter) if conversation.adapter else None
        persisted = tokens[: cuts[-1]]
        read = persisted if spec.question is None else tokens
        return _TokenizedPrompt(prompt, ranking, read, cuts, persisted, boundary, document_tokens, activation)

    def _planned(self, settings: Settings, tokens: int, what: str) -> PlannedCache:
        planned = self.engine.plan_cache(settings, tokens)
        if not planned.keeper.unbounded_positions:
            refuse_too_long(tokens, self.model.context, self.model.name, what=what)
        return planned

    def _persister(self, spec: _PromptSpec, tokenized: _TokenizedPrompt, planned: PlannedCache) -> Persister:
        identity = CacheIdentity(
            self.engine.fingerprint(planned.codec),
            self.runtime.settings.model,
            planned.codec,
            spec.part or _how_far(spec.documents),
            spec.conversation.chat,
            activation=tokenized.activation,
            document_tokens=tokenized.document_tokens,
        )
        remote = not spec.part  # a passage is not worth a request to a remote store
        return self.engine.persister(spec.documents, tokenized.persisted, identity, tokenized.boundary, remote)

    def _settings_of(self, conversation: Conversation) -> Settings:
        settings = self.runtime.settings
        return replace(settings, keep=conversation.keeper) if conversation.keeper else settings

    def _ranking_prompt(
        self, prompt: Prompt, texts: Sequence[str], question: str, part: str, conversation: Conversation
    ) -> Prompt | None:
        """Returns the prompt for scoring a passage. It is ``prompt`` itself if that has the form RANKING. Returns None
        if there is no ``part`` to rank, in a chat with history, and for a raw prompt.
        """
        if conversation.history or conversation.is_verbatim:
            return None
        if conversation.form == RANKING:
            return prompt
        return make_prompt(self.model.tokenizer, texts, question, (), RANKING) if part else None

    def _request_prompt(self, spec: _PromptSpec, tokenized: _TokenizedPrompt) -> RequestPrompt:
        texts, conversation = spec.texts, spec.conversation
        only_part = spec.part or conversation.is_verbatim
        return RequestPrompt(
            documents=spec.documents,
            tokens=tokenized.tokens,
            boundary=tokenized.boundary,
            cuts=tokenized.cuts,
            ranking=tokenized.ranking,
            document_ends=() if only_part else self._document_ends(tokenized.prompt, texts),
            asked_before=conversation.history[-1][0] if conversation.history else "",
            begun=conversation.begun,
            next_tokens=lambda answer: self._next_prompt(texts, conversation, spec.question or "", answer),
        )

    def _document_ends(self, prompt: Prompt, texts: Sequence[str]) -> list[int]:
        """Returns for each of ``texts`` but the last the token where it ends. If ``prompt`` differs earlier from the
        prompt of only the texts up to there, returns the token of the first difference instead.
        """
        before = (make_prompt(self.model.tokenizer, texts[:i], "") for i in range(1, len(texts)))
        return [min(one.documents, common(one.tokens, prompt.tokens)) for one in before]

    def _next_prompt(self, texts: Sequence[str], conversation: Conversation, question: str, answer: str) -> list[int]:
        """Returns the tokens that begin the prompt of any next question of the conversation."""
        history = [*conversation.history, (question, answer)]
        prompt = make_prompt(self.model.tokenizer, texts, "", history, conversation.form)
        return prompt.tokens[: prompt.shared]


@contextmanager
def _dropped_on_error(cache: SequenceCache) -> Iterator[None]:
    """Drop ``cache`` if the block raises."""
    try:
        yield
    except BaseException:
        cache.drop()
        raise


def _drops(planned: PlannedCache, tokens: int, only_prefilled: str) -> bool:
    """Returns True if the keeper evicts part of the prompt, so that no page of it can be persisted.

    In that case, raises UsageError if ``only_prefilled`` is set: the name of a document that is prefilled only to be
    persisted.
    """
    keeper = planned.keeper
    drops = not keeper.pages_may_persist and keeper.max_tokens_held(tokens) < tokens
    if drops and only_prefilled:
        what = f"{keeper.name} drops part of {only_prefilled}: nothing could be kept for later"
        raise UsageError(what, "prepare it with --keep full, snapkv or select, or ask at once")
    return drops


def _boundary(prompt: Prompt, ranking: Prompt | None) -> int:
    """Returns the token where persisting ends: the end of the part that any question shares. For ranking, the token
    before the question is not persisted, because it must be computed to predict the question's first token.
    """
    return min(prompt.shared, ranking.shared, ranking.question - 1) if ranking else prompt.shared


def _how_far(documents: Sequence[StoredDocument]) -> str:
    """Returns a name for the part of ``documents`` that is read, if only the beginning of one is read; "" for all."""
    return "+".join(f"up to {len(d.text)}" for d in documents if isinstance(d, DocumentBeginning))


def _contents(conversation: Conversation) -> str:
    """Says what the prompt consists of, for messages to the user: QUESTION, MESSAGES or RAW."""
    return MESSAGES if conversation.messages else RAW if conversation.raw else QUESTION
