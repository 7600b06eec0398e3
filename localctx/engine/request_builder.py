"""Builds requests: prompt, window, codec, keeper and memory limits are decided, kept pages are restored, and the work
is planned. Nothing is computed or written yet.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from localctx.engine.cache_plan import choose_window, longest_prompt
from localctx.engine.kv_engine import KVEngine, PlannedCache
from localctx.engine.llama_engine import LlamaEngine
from localctx.engine.persister import CacheIdentity
from localctx.engine.plan import refuse_too_long
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
from localctx.engine.request import Request
from localctx.engine.runtime import Runtime
from localctx.engine.torch_engine import TorchEngine
from localctx.errors import UsageError
from localctx.kv.pages import Activation
from localctx.kv.sequence_cache import SequenceCache
from localctx.models.base import Model
from localctx.settings import EngineName, Settings
from localctx.store.documents import DocumentBeginning, StoredDocument

ENGINES: dict[EngineName, type[KVEngine]] = {"torch": TorchEngine, "llama.cpp": LlamaEngine}
SURELY_COUNTED = 8  # characters for each token of the window; a longer text is first counted roughly


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
        """The request to ask ``question`` of ``texts``, or to prefill them (None).

        ``part`` says which part of the ``documents`` the texts are, where they are not the whole. Raises TooLong before
        anything is persisted; UsageError for a keeper that would leave nothing to persist.
        """
        started, engine, settings = time.perf_counter(), self.engine, self._settings_of(conversation)
        model = self.model
        prompt = self.prompt(texts, question or "", conversation)
        ranking = self._ranking_prompt(prompt, texts, question or "", part, conversation)
        boundary, adapter = _boundary(prompt, ranking), conversation.adapter
        activation = prompt.activation(adapter) if adapter else None
        document_tokens = min(boundary, prompt.documents) if documents else 0
        begun = model.tokenizer.encode(conversation.begun) if conversation.begun else []
        tokens = [*prompt.tokens, *begun]
        cuts = sorted({document_tokens, *([boundary] if ranking else engine.cuts(prompt))} - {0})
        if begun:  # it was persisted when it was cut; its last token is computed again, to go on from
            cuts.append(len(tokens) - 1)
        persisted = tokens[: cuts[-1]]
        tokens = tokens if question is not None else persisted
        planned = engine.plan_cache(settings, len(tokens))
        if not planned.keeper.unbounded_positions:
            refuse_too_long(len(tokens), model.context, model.name)
        drops = _drops(planned, len(tokens), documents[0].name if question is None else "")
        persist = persist and (not drops or conversation.chat is not None)  # a chat goes on from before it dropped
        cache = engine.open_cache(planned)
        cache.activation = activation
        identity = self._identity(documents, planned, part, conversation, activation, document_tokens)
        remote = identity.part == _how_far(documents)  # a passage is not worth a request to a remote store
        persister = engine.persister(documents, persisted, identity, boundary, remote) if persist else None
        restoring = time.perf_counter()
        with _dropped_on_error(cache):
            restore_notes = persister.restore(cache) if persister else []
            if sharing := engine.sharing(planned, tokens) if conversation.is_verbatim else None:
                sharing.begin(cache)
            plan = engine.plan(
                planned,
                tokens=len(tokens),
                reused=cache.length,
                answer=conversation.max_tokens or settings.max_tokens,
                per_second=persister.rate if persister else None,
            )
        return Request(
            engine=engine,
            model=model,
            model_name=settings.model,
            documents=documents,
            tokens=tokens,
            boundary=boundary,
            cuts=cuts,
            ranking=ranking,
            adapter=adapter,
            cache=cache,
            persister=persister,
            plan=plan,
            relief=engine.relief(planned),
            started=started,
            seconds={"restore": time.perf_counter() - restoring},
            continues=bool(conversation.history),
            begun=conversation.begun,
            sharing=sharing,
            planned_chunk=planned.chunk,
            document_ends=() if part or conversation.is_verbatim else self._document_ends(prompt, texts),
            restored=cache.length,
            restore_notes=restore_notes,
            next_prompt=lambda answer: self._next_prompt(texts, conversation, question or "", answer),
        )

    @property
    def max_prompt_tokens(self) -> float:
        """The most tokens a prompt may have, with RoPE scaling where the settings allow it; may be infinite."""
        return longest_prompt(self.runtime.settings, self.model)

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint that pages are named under now."""
        return self.engine.fingerprint(self.engine.codec)

    def prompt(self, texts: Sequence[str], question: str, conversation: Conversation = NO_CONVERSATION) -> Prompt:
        """The prompt; the model's RoPE scaling becomes what the prompt's length needs.

        Raises TooLong, for a text that is far too long without tokenizing all of it.
        """
        model, settings = self.model, self._settings_of(conversation)
        max_tokens = longest_prompt(settings, model)
        if sum(map(len, texts)) > SURELY_COUNTED * max_tokens:
            estimate = estimate_tokens(model.tokenizer, texts, int(max_tokens), self.runtime.cancelled)
            refuse_too_long(estimate, max_tokens, model.name, "about ")
        if conversation.is_verbatim:
            prompt = verbatim_prompt(model.tokenizer, conversation)
        else:
            prompt = make_prompt(model.tokenizer, texts, question, conversation.history, conversation.form)
        refuse_too_long(len(prompt.tokens), max_tokens, model.name)
        rope = choose_window(settings, model, prompt.shared, len(prompt.tokens)).rope
        self.engine.stretch(rope)
        return prompt

    def _identity(
        self,
        documents: Sequence[StoredDocument],
        planned: PlannedCache,
        part: str,
        conversation: Conversation,
        activation: Activation | None,
        document_tokens: int,
    ) -> CacheIdentity:
        fingerprint, part = self.engine.fingerprint(planned.codec), part or _how_far(documents)
        model, chat = self.runtime.settings.model, conversation.chat
        return CacheIdentity(
            fingerprint,
            model,
            planned.codec,
            part,
            chat,
            activation=activation,
            document_tokens=document_tokens,
        )

    def _settings_of(self, conversation: Conversation) -> Settings:
        settings = self.runtime.settings
        return replace(settings, keep=conversation.keeper) if conversation.keeper else settings

    def _ranking_prompt(
        self, prompt: Prompt, texts: Sequence[str], question: str, part: str, conversation: Conversation
    ) -> Prompt | None:
        """The prompt by which a ``part`` of documents is ranked; that of the answer where it is the same; None where
        nothing is ranked, as after what was said in a chat.
        """
        if conversation.history or conversation.is_verbatim:
            return None
        if conversation.form == RANKING:
            return prompt
        return make_prompt(self.model.tokenizer, texts, question, (), RANKING) if part else None

    def _document_ends(self, prompt: Prompt, texts: Sequence[str]) -> list[int]:
        """The tokens at which all but the last of ``texts`` end: as far as the prompt of those before is the same."""
        before = (make_prompt(self.model.tokenizer, texts[:i], "") for i in range(1, len(texts)))
        return [min(one.documents, common(one.tokens, prompt.tokens)) for one in before]

    def _next_prompt(self, texts: Sequence[str], conversation: Conversation, question: str, answer: str) -> list[int]:
        """The tokens that any next question of the conversation begins with."""
        history = [*conversation.history, (question, answer)]
        prompt = make_prompt(self.model.tokenizer, texts, "", history, conversation.form)
        return prompt.tokens[: prompt.shared]


@contextmanager
def _dropped_on_error(cache: SequenceCache) -> Iterator[None]:
    """Drop ``cache`` where the block ends with an error."""
    try:
        yield
    except BaseException:
        cache.drop()
        raise


def _drops(planned: PlannedCache, tokens: int, only_prefilled: str) -> bool:
    """True if the keeper evicts part of the prompt, so that no page of it can be persisted.

    Raises UsageError for a document, ``only_prefilled``, that is read for nothing but to be persisted.
    """
    keeper = planned.keeper
    drops = not keeper.pages_may_persist and keeper.max_tokens_held(tokens) < tokens
    if drops and only_prefilled:
        what = f"{keeper.name} drops part of {only_prefilled}: nothing could be kept for later"
        raise UsageError(what, "prepare it with --keep full, snapkv or select, or ask at once")
    return drops


def _boundary(prompt: Prompt, ranking: Prompt | None) -> int:
    """Returns the token where persisting ends: where the documents end. What follows has to predict the first token of
    the question if it is to be ranked.
    """
    return min(prompt.shared, ranking.shared, ranking.question - 1) if ranking else prompt.shared


def _how_far(documents: Sequence[StoredDocument]) -> str:
    """Names the part of ``documents`` that is read where it is the beginning of one; empty for all."""
    return "+".join(f"up to {len(d.text)}" for d in documents if isinstance(d, DocumentBeginning))
