"""Documents and a question as one conversation, whose beginning depends only on what comes before the question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from localctx.errors import Cancelled
from localctx.models.base import Messages, Tokenizer

ASK = "Answer this question from the document{s} above, in a few words if you can.\nQuestion: {question}"
_PROBES = ("\0", "A")  # other questions: two, that no question begins as both do
_PIECE = 100_000  # characters tokenized between looks at the cancel flag


Exchange = tuple[str, str]
"""An earlier question and its answer."""


@dataclass(frozen=True)
class Conversation:
    """What a question continues: a ``chat`` and its ``history``; ``keep`` where it has a keeper of its own.

    ``form``: how a first question is put to documents, with ``{question}`` and ``{s}`` (of several documents) in it.
    ``messages``: what is said word for word in place of all that; ``most`` tokens of its answer, where it says so.
    """

    chat: str | None = None
    history: Sequence[Exchange] = ()
    keep: str = ""
    form: str = ASK
    messages: Messages = ()
    most: int = 0


NO_CONVERSATION = Conversation()
"""A question outside of any chat."""


@dataclass(frozen=True)
class Prompt:
    """``tokens`` of the whole prompt; the first ``shared`` are the same for every question on these documents."""

    tokens: list[int]
    shared: int


def make_prompt(
    tokenizer: Tokenizer, texts: Sequence[str], question: str, history: Sequence[Exchange] = (), form: str = ASK
) -> Prompt:
    """The documents first, then what was asked and answered, the question last: reading ends where it begins.

    Names are left out: a renamed file is the same document. Where the question begins is found by asking another, so
    no chat template needs to be understood.
    """
    tokens, *others = (tokenizer.encode_chat(_messages(texts, history, q, form)) for q in (question, *_PROBES))
    left = min(map(len, (tokens, *others))) - 1  # one token at least is left to be read
    return Prompt(tokens, min(left, *(common(tokens, other) for other in others)))


def plain_prompt(tokenizer: Tokenizer, messages: Messages) -> Prompt:
    """Messages as they are. Whatever pages of their beginning are kept, one token is left to be read."""
    tokens = tokenizer.encode_chat(messages)
    return Prompt(tokens, len(tokens) - 1)


def common(tokens: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    differ = (i for i, (a, b) in enumerate(zip(tokens, other, strict=False)) if a != b)
    return next(differ, min(len(tokens), len(other)))


def estimate_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], enough: int, cancelled: Callable[[], bool] = lambda: False
) -> int:
    """The tokens of ``texts``, about: counting stops past ``enough``, the rest is taken to be like it.

    A book of millions of characters is so refused in a moment. Raises Cancelled.
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
    """The documents stand in the first question."""
    questions = [*(asked for asked, _ in history), question]
    asked = [{"role": "user", "content": q} for q in (content(texts, questions[0], form), *questions[1:])]
    answers = [{"role": "assistant", "content": answer} for _, answer in history]
    return [message for pair in zip_longest(asked, answers) for message in pair if message]


def content(texts: Sequence[str], question: str, form: str) -> str:
    if not texts:
        return question
    one = len(texts) == 1
    parts = [f"{'Document' if one else f'Document {i}'}:\n{text.strip()}" for i, text in enumerate(texts, 1)]
    return "\n\n".join([*parts, form.format(s="" if one else "s", question=question)])
