"""Builds prompts: documents and a question as one conversation, with the documents first so that their pages are
shared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from localctx.engine.prompt_wording import ASK, content
from localctx.errors import Cancelled
from localctx.models.base import Messages, Tokenizer

_PROBES = ("\0", "A")  # two other questions: no question begins like both
_PIECE = 100_000  # characters tokenized between two checks for a cancel


Exchange = tuple[str, str]
"""An earlier question of a conversation, and its answer."""


@dataclass(frozen=True)
class Conversation:
    """The conversation that a question continues: a ``chat`` (its id) and its ``history``; ``keeper`` if the chat has
    one of its own.

    ``form`` is the wording of a first question about documents (``prompt_wording``), with ``{question}`` and ``{s}``
    (plural) in it. ``messages`` replace all of that by a conversation word for word, with ``max_tokens`` of answer (0:
    the setting).
    """

    chat: str | None = None
    history: Sequence[Exchange] = ()
    keeper: str = ""
    form: str = ASK
    messages: Messages = ()
    max_tokens: int = 0


NO_CONVERSATION = Conversation()
"""A question that is not part of a chat."""


@dataclass(frozen=True)
class Prompt:
    """``tokens`` of the whole prompt; the first ``shared`` are the same for every question on these documents."""

    tokens: list[int]
    shared: int


def make_prompt(
    tokenizer: Tokenizer, texts: Sequence[str], question: str, history: Sequence[Exchange] = (), form: str = ASK
) -> Prompt:
    """The prompt: documents first, then earlier questions and answers, the question last.

    Names of files are left out, so that a renamed file has the same pages. Where the question begins is found by
    comparing the prompts of two other questions, so no chat template needs to be understood.
    """
    tokens, *others = (tokenizer.encode_chat(_messages(texts, history, q, form)) for q in (question, *_PROBES))
    left = min(map(len, (tokens, *others))) - 1  # one token at least is left to be read
    return Prompt(tokens, min(left, *(common(tokens, other) for other in others)))


def plain_prompt(tokenizer: Tokenizer, messages: Messages) -> Prompt:
    """The prompt of a conversation word for word. All but the last token are shared: one token is left to prefill."""
    tokens = tokenizer.encode_chat(messages)
    return Prompt(tokens, len(tokens) - 1)


def common(tokens: Sequence[int], other: Sequence[int]) -> int:
    """The number of tokens that both begin with."""
    differ = (i for i, (a, b) in enumerate(zip(tokens, other, strict=False)) if a != b)
    return next(differ, min(len(tokens), len(other)))


def estimate_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], enough: int, cancelled: Callable[[], bool] = lambda: False
) -> int:
    """Returns the number of tokens of ``texts``: exact up to ``enough``, beyond that extrapolated by characters.

    So a text that is far too long is not tokenized whole. Raises Cancelled.
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
    """The conversation as messages; the documents are part of the first one."""
    questions = [*(earlier for earlier, _ in history), question]
    user_messages = [{"role": "user", "content": q} for q in (content(texts, questions[0], form), *questions[1:])]
    answers = [{"role": "assistant", "content": answer} for _, answer in history]
    return [message for pair in zip_longest(user_messages, answers) for message in pair if message]
