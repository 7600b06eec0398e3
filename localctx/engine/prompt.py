"""Documents and a question as one conversation whose beginning depends on the documents alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from localctx.models.base import Tokenizer

_ASK = "Answer this question from the document{s} above, in a few words if you can.\nQuestion: {question}"


@dataclass(frozen=True)
class Prompt:
    """``tokens`` of the whole prompt; the first ``shared`` are the same for every question on these documents."""

    tokens: list[int]
    shared: int


def make_prompt(tokenizer: Tokenizer, texts: Sequence[str], question: str) -> Prompt:
    """The documents first, the question last, so that reading ends where the question begins.

    Names are left out: a renamed file is the same document. Where the question begins is found by rendering another
    question, so no chat template needs to be understood.
    """
    rendered, other = (tokenizer.render([{"role": "user", "content": _content(texts, q)}]) for q in (question, "\0"))
    tokens, ends = tokenizer.encode(rendered)
    shared = next(i for i, pair in enumerate(zip(rendered, other, strict=False)) if pair[0] != pair[1])
    return Prompt(tokens, min(sum(end <= shared for end in ends), len(tokens) - 1))


def _content(texts: Sequence[str], question: str) -> str:
    one = len(texts) == 1
    parts = [f"{'Document' if one else f'Document {i}'}:\n{text.strip()}" for i, text in enumerate(texts, 1)]
    return "\n\n".join([*parts, _ASK.format(s="" if one else "s", question=question)])
