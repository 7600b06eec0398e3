"""Builds prompts: documents and a question as one conversation, documents first so that their pages are shared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

from localctx.engine.prompt_wording import AS_IT_IS, ASK, content
from localctx.errors import Cancelled, ModelError, UsageError
from localctx.kv.pages import Activation
from localctx.models.adapter import Adapter
from localctx.models.base import Messages, Tokenizer

_PROBES = ("\0", "A")  # two probe questions: no question begins like both
_PIECE = 100_000  # characters tokenized between two checks for a cancel


Exchange = tuple[str, str]
"""An earlier question of a conversation, and its answer."""


@dataclass(frozen=True)
class Conversation:
    """The conversation that a question continues: ``chat`` (its id), ``history`` (earlier questions and answers), and
    ``keeper`` if the chat has an eviction policy of its own.

    ``form`` is the wording of a first question about documents (see ``prompt_wording``), with ``{question}`` and
    ``{s}`` (plural). ``adapter`` is the LoRA adapter that answers (None: no adapter). Instead of documents and a
    question, ``messages`` may give a raw conversation, with ``tools`` that the answer may call, or ``raw`` a text to
    continue. ``max_tokens`` limits the answer (0: the setting). If ``begun`` is set, the answer continues this text. If
    ``formatted`` is True, a grammar restricts the answer.
    """

    chat: str | None = None
    history: Sequence[Exchange] = ()
    keeper: str = ""
    form: str = ASK
    adapter: Adapter | None = None
    messages: Messages = ()
    max_tokens: int = 0
    begun: str = ""
    raw: str = ""
    tools: Sequence[Any] = ()
    formatted: bool = False

    @property
    def is_free(self) -> bool:
        """True if the answer may be any text: it has not begun, and has no format."""
        return not (self.begun or self.formatted)

    @property
    def is_verbatim(self) -> bool:
        """True if the prompt is raw: given as messages or text, without our wording."""
        return bool(self.messages or self.raw)


NO_CONVERSATION = Conversation()
"""A question that is not part of a chat."""


@dataclass(frozen=True)
class Prompt:
    """The ``tokens`` of a whole prompt, and the token counts at which its parts end. The first ``documents`` tokens are
    the same for every question about these documents. The first ``shared`` tokens, with the history of a chat, are the
    same for every question at this point of the chat, in any wording. From index ``question`` on, tokens depend on the
    text of the question; before it, only on the wording around the question.
    """

    tokens: list[int]
    shared: int
    documents: int
    question: int

    def activation(self, adapter: Adapter) -> Activation:
        """Returns the token from which on the LoRA ``adapter`` applies: the beginning of its invocation (the tokens
        that activate it), at the first place after the documents. So in a chat, the adapter also applies to earlier
        answers.

        Raises ModelError if the prompt does not contain the invocation.
        """
        wanted = list(adapter.invocation)
        starts = range(self.documents, len(self.tokens) - len(wanted) + 1)
        start = next((i for i in starts if self.tokens[i : i + len(wanted)] == wanted), None)
        if start is None:
            raise ModelError(
                f"the adapter {adapter.name} is activated by tokens that the prompt does not have",
                'write the words that activate it in its reader.json: {"form": "... {question}"}, or --adapter none',
            )
        return Activation(adapter.fingerprint, start)


def make_prompt(
    tokenizer: Tokenizer, texts: Sequence[str], question: str, history: Sequence[Exchange] = (), form: str = ASK
) -> Prompt:
    """Returns the prompt that asks ``question`` in the wording ``form``: first the documents (``texts``), then the
    ``history`` of earlier questions and answers, last the question.

    File names are left out, so that a renamed file has the same pages. The end of the documents and the beginning of
    the question are found by comparison with the prompts of two probe questions, which works with any chat template.
    After a ``history``, everything before the last question counts as shared.
    """
    encode = partial(_encode, tokenizer)
    tokens = encode(texts, question, history, form)
    differs = partial(_differs_from, tokens, encode, texts, (question, history, form))
    documents, asked = differs(((), AS_IT_IS)), differs((history, form))
    shared = asked if history else documents
    return Prompt(tokens, shared, min(documents, shared), max(asked, shared))


def _differs_from(
    tokens: Sequence[int],
    encode: Callable[..., list[int]],
    texts: Sequence[str],
    asked: tuple[str, Sequence[Exchange], str],
    other: tuple[Sequence[Exchange], str],
) -> int:
    """Returns the index where ``tokens`` begin to differ from the prompts of two probe questions. ``tokens`` are the
    prompt of ``asked`` (question, history, form). The probes have the history and form of ``other``.

    The index is counted from the end, in prompts with "-" in place of each text, which are fast to encode. If the ends
    of such prompts do not match ``tokens``, prompts with the texts are compared.
    """
    for some in (["-"] * len(texts), texts):
        mine = encode(some, *asked)
        others = [encode(some, probe, *other) for probe in _PROBES]
        after = len(mine) - min(len(mine) - 1, *(common(mine, one) for one in others))
        if list(tokens[-after:]) == mine[-after:]:
            break
    return len(tokens) - after


def _encode(
    tokenizer: Tokenizer, texts: Sequence[str], question: str, history: Sequence[Exchange], form: str
) -> list[int]:
    return tokenizer.encode_chat(_messages(texts, history, question, form))


def verbatim_prompt(tokenizer: Tokenizer, conversation: Conversation) -> Prompt:
    """Returns the prompt of a raw conversation or text. All tokens but the last count as shared, because one token must
    be left to prefill. Raises UsageError for a text with fewer than two tokens.
    """
    if conversation.messages:
        tokens = tokenizer.encode_chat(conversation.messages, conversation.tools)
    else:
        tokens = tokenizer.encode_text(conversation.raw)
        tokens = tokens[:-1] if tokens[-1:] and tokens[-1] in tokenizer.stop_ids else tokens  # it is continued
    if len(tokens) < 2:
        raise UsageError("the prompt has fewer than two tokens", "write a longer one")
    shared = len(tokens) - 1
    return Prompt(tokens, shared, shared, shared)


def common(tokens: Sequence[int], other: Sequence[int]) -> int:
    """Returns the length of the common prefix of two token sequences."""
    differ = (i for i, (a, b) in enumerate(zip(tokens, other, strict=False)) if a != b)
    return next(differ, min(len(tokens), len(other)))


def estimate_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], enough: int, cancelled: Callable[[], bool] = lambda: False
) -> int:
    """Returns the number of tokens of ``texts``. It is exact up to ``enough`` tokens; beyond that it is extrapolated
    from the number of characters.

    In this way, a text that is far too long is not tokenized whole. Raises Cancelled.
    """
    counted = read = 0
    for text in texts:
        for start in range(0, len(text), _PIECE):
            if cancelled():
                raise Cancelled
            piece = text[start : start + _PIECE]
            counted, read = counted + len(tokenizer.encode(piece)), read + len(piece)
            if counted > enough:
                return counted * sum(map(len, texts)) // read
    return counted


def _messages(texts: Sequence[str], history: Sequence[Exchange], question: str, form: str) -> list[dict[str, str]]:
    """Returns the conversation as messages; the documents are part of the first one."""
    questions = [*(earlier for earlier, _ in history), question]
    user_messages = [{"role": "user", "content": q} for q in (content(texts, questions[0], form), *questions[1:])]
    answers = [{"role": "assistant", "content": answer} for _, answer in history]
    return [message for pair in zip_longest(user_messages, answers) for message in pair if message]
