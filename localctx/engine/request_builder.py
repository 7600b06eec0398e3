"""Opening a prompt: window, codec, keeper and budgets are decided, what is kept of it is put back, it is planned."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from localctx.engine.cache_plan import (
    CachePlan,
    MemoryRelief,
    PoolSet,
    choose_codec,
    choose_window,
    longest,
    plan_cache,
    smaller_codec,
)
from localctx.engine.persist import CacheIdentity, CachePersister
from localctx.engine.plan import plan, refuse_too_long
from localctx.engine.prompt import NO_CONVERSATION, Conversation, Prompt, estimate_tokens, make_prompt, plain_prompt
from localctx.engine.request import Request
from localctx.errors import UsageError
from localctx.models.base import Model
from localctx.settings import Settings
from localctx.store.documents import StoredDocument
from localctx.store.store import Store, read_store

SURELY_COUNTED = 8  # characters for each token of the window; a longer text is first counted roughly


class RequestBuilder:
    """Opens prompts for ``model`` under ``settings``, with caches in ``pools``. ``cancelled`` is looked at while a long
    text is counted.
    """

    def __init__(
        self,
        model: Model,
        settings: Settings,
        open_store: Callable[[], Store],
        cancelled: Callable[[], bool],
        pools: PoolSet | None = None,
    ) -> None:
        self.model, self._settings, self._open_store, self._cancelled = model, settings, open_store, cancelled
        self._window = settings.rope
        self._pools = pools or PoolSet()

    def open(
        self,
        documents: Sequence[StoredDocument],
        texts: Sequence[str],
        question: str | None,
        *,
        keep: bool,
        part: str = "",
        of: Conversation = NO_CONVERSATION,
    ) -> Request:
        """The work of asking ``question`` of ``texts``, or of reading them (None); nothing is read or written yet.

        ``part`` says which part of the ``documents`` the texts are, where they are not the whole. Raises TooLong before
        anything is kept; UsageError for a keeper that would leave nothing to keep.
        """
        started, model, settings = time.perf_counter(), self.model, self._settings_of(of)
        prompt = self.prompt(texts, question or "", of)
        boundary = _boundary(prompt, part)
        tokens = prompt.tokens if question is not None else prompt.tokens[:boundary]
        memory = plan_cache(model, settings, self._codec(), len(tokens))
        if not memory.keeper.turns:
            refuse_too_long(len(tokens), model.context, model.name)
        drops = self._drops(memory, len(tokens), documents[0][0].name if question is None else "")
        keep = keep and (not drops or of.chat is not None)  # a chat that forgets goes on from where it had not yet
        cache = memory.new_cache(model, self._settings.home / "spill", self._pools)
        keeping = self._keeping(documents, prompt.tokens[:boundary], memory.codec, part, of.chat) if keep else None
        restoring = time.perf_counter()
        news = keeping.restore(cache) if keeping else []
        return Request(
            held=documents,
            tokens=tokens,
            boundary=boundary,
            cache=cache,
            keeping=keeping,
            plan=plan(
                model,
                memory,
                tokens=len(tokens),
                reused=cache.length,
                answer=of.most or self._settings.max_tokens,
                per_second=keeping.rate if keeping else None,
            ),
            relief=MemoryRelief(memory.chunk, self._smaller),
            started=started,
            seconds={"restore": time.perf_counter() - restoring},
            news=news,
            restored=cache.length,
            following=lambda answer: self._following(texts, part, of, question or "", answer),
        )

    @property
    def longest(self) -> float:
        """Tokens of the longest prompt that is read, stretched where that is how the model reads long ones."""
        return longest(self._settings, self.model)

    @property
    def fingerprint(self) -> bytes:
        """What pages are kept under now."""
        return self.model.fingerprint(self._codec())

    def prompt(self, texts: Sequence[str], question: str, of: Conversation = NO_CONVERSATION) -> Prompt:
        """The prompt, and the model's window as it wants it. Raises TooLong; what is hopelessly long is not even
        counted.
        """
        model, settings = self.model, self._settings_of(of)
        most = longest(settings, model)
        if sum(map(len, texts)) > SURELY_COUNTED * most:
            guess = estimate_tokens(model.tokenizer, texts, int(most), self._cancelled)
            refuse_too_long(guess, most, model.name, "about ")
        if of.messages:
            prompt = plain_prompt(model.tokenizer, of.messages)
        else:
            prompt = make_prompt(model.tokenizer, texts, question, of.history, of.form)
        refuse_too_long(len(prompt.tokens), most, model.name)
        window = choose_window(settings, model, prompt.shared, len(prompt.tokens)).rope
        if window != self._window:
            model.stretch(window)
            self._window = window
        return prompt

    def _settings_of(self, of: Conversation) -> Settings:
        return replace(self._settings, keep=of.keep) if of.keep else self._settings

    def _following(self, texts: Sequence[str], part: str, of: Conversation, question: str, answer: str) -> list[int]:
        """The tokens that any next question of a conversation comes after."""
        prompt = make_prompt(self.model.tokenizer, texts, "", [*of.history, (question, answer)], of.form)
        return prompt.tokens[: _boundary(prompt, part)]

    def _drops(self, memory: CachePlan, tokens: int, only_read: str) -> bool:
        """Whether the keeper drops part of the prompt, so that nothing of it can be kept. Raises UsageError for a
        document, ``only_read``, that is to be read for nothing else.
        """
        drops = memory.keeper.drops and memory.keeper.held(tokens) < tokens
        if drops and only_read:
            what = f"{memory.keeper.name} drops part of {only_read}: nothing could be kept for later"
            raise UsageError(what, "prepare it with --keep full, snapkv or select, or ask at once")
        return drops

    def _codec(self) -> str:
        s = self._settings
        return choose_codec(self.model.shape, self._passed) if s.kv == "auto" else s.kv

    def _smaller(self, codec: str) -> str | None:
        return smaller_codec(self.model.shape, self._passed, codec) if self._settings.kv == "auto" else None

    def _passed(self, codec: str) -> bool | None:
        """What the quality gate said of a codec with this model; None where it was not asked, or cannot be."""
        fingerprint = self.model.fingerprint(codec)
        return read_store(self._settings.home, self._open_store, lambda store: store.verdicts.passed(fingerprint))

    def _keeping(
        self, documents: Sequence[StoredDocument], tokens: list[int], codec: str, part: str, chat: str | None
    ) -> CachePersister:
        identity = CacheIdentity(self.model.fingerprint(codec), self._settings.model, codec, part, chat)
        return CachePersister(self._open_store, documents, identity, tokens, self._settings.caps["disk"])


def _boundary(prompt: Prompt, part: str) -> int:
    """Where keeping ends: of a part that is ranked, the question's first token is foretold too."""
    return prompt.shared - bool(part)
