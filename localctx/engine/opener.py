"""Opening a prompt: window, codec, keeper and budgets are decided, what is kept of it is put back, it is planned."""

import time
from collections.abc import Callable, Sequence

from localctx.engine.keep import Held, Identity, Keeping
from localctx.engine.memory import Memory, Relief, choose_codec, choose_window, decide, longest, smaller_codec
from localctx.engine.plan import plan, refuse_too_long
from localctx.engine.prompt import Prompt, Turn, estimate_tokens, make_prompt
from localctx.engine.work import Work
from localctx.errors import UsageError
from localctx.models.base import Model
from localctx.settings import Settings
from localctx.store.store import Store, look_up

SURELY_COUNTED = 8  # characters for each token of the window; a longer text is first counted roughly


class Opener:
    """Opens prompts for ``model`` under ``settings``. ``cancelled`` is looked at while a long text is counted."""

    def __init__(
        self, model: Model, settings: Settings, open_store: Callable[[], Store], cancelled: Callable[[], bool]
    ) -> None:
        self.model, self._settings, self._open_store, self._cancelled = model, settings, open_store, cancelled
        self._window = settings.rope

    def open(
        self,
        documents: Sequence[Held],
        texts: Sequence[str],
        question: str | None,
        *,
        keep: bool,
        part: str = "",
        history: Sequence[Turn] = (),
    ) -> Work:
        """The work of asking ``question`` of ``texts``, or of reading them (None); nothing is read or written yet.

        ``part`` says which part of the ``documents`` the texts are, where they are not the whole. Raises TooLong before
        anything is kept; UsageError for a keeper that would leave nothing to keep.
        """
        started, model = time.perf_counter(), self.model
        prompt = self.prompt(texts, question or "", history)
        boundary = prompt.shared - bool(part)  # of a part that is ranked, the question's first token is foretold too
        tokens = prompt.tokens if question is not None else prompt.tokens[:boundary]
        memory = decide(model, self._settings, self._codec(), len(tokens))
        if not memory.keeper.turns:
            refuse_too_long(len(tokens), model.context, model.name)
        keep = keep and not self._drops(memory, len(tokens), documents[0][0].name if question is None else "")
        cache = memory.new_cache(model, self._settings.home / "spill")
        keeping = self._keeping(documents, prompt.tokens[:boundary], memory.codec, part) if keep else None
        restoring = time.perf_counter()
        news = keeping.restore(cache) if keeping else []
        return Work(
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
                answer=self._settings.max_tokens,
                per_second=keeping.rate if keeping else None,
            ),
            relief=Relief(memory.chunk, self._smaller),
            started=started,
            seconds={"restore": time.perf_counter() - restoring},
            news=news,
        )

    @property
    def fingerprint(self) -> bytes:
        """What pages are kept under now."""
        return self.model.fingerprint(self._codec())

    def prompt(self, texts: Sequence[str], question: str, history: Sequence[Turn] = ()) -> Prompt:
        """The prompt, and the model's window as it wants it. Raises TooLong; what is hopelessly long is not even
        counted.
        """
        model, most = self.model, longest(self._settings, self.model)
        if sum(map(len, texts)) > SURELY_COUNTED * most:
            guess = estimate_tokens(model.tokenizer, texts, int(most), self._cancelled)
            refuse_too_long(guess, most, model.name, "about ")
        prompt = make_prompt(model.tokenizer, texts, question, history)
        refuse_too_long(len(prompt.tokens), most, model.name)
        window = choose_window(self._settings, model, prompt.shared, len(prompt.tokens)).rope
        if window != self._window:
            model.stretch(window)
            self._window = window
        return prompt

    def _drops(self, memory: Memory, tokens: int, only_read: str) -> bool:
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
        return look_up(self._settings.home, self._open_store, lambda store: store.verdicts.passed(fingerprint))

    def _keeping(self, documents: Sequence[Held], tokens: list[int], codec: str, part: str) -> Keeping:
        identity = Identity(self.model.fingerprint(codec), self._settings.model, codec, part)
        return Keeping(self._open_store, documents, identity, tokens, self._settings.caps["disk"])
