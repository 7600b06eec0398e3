"""Finds where to cut a document so that the tokens before the cut begin the whole document's prompt."""

from dataclasses import dataclass
from itertools import pairwise

from localctx.engine.prompt import common
from localctx.engine.prompt_wording import ASK, content
from localctx.models.base import Tokenizer

LOOK_AHEAD = 1_000  # characters after a cut that could affect the tokens before it


@dataclass(frozen=True)
class TextPrefix:
    """The beginning of a text: its first ``characters`` characters, which are ``tokens`` tokens long."""

    characters: int
    tokens: int


def cut_at_token(tokenizer: Tokenizer, text: str, end: int) -> TextPrefix:
    """Returns the longest prefix of ``text``, at most ``end`` characters, that has the same first tokens as the whole
    text. The prompt of the prefix can then reuse the kept pages of the whole text. The prefix does not end with white
    space.

    If the decoded tokens differ from the text, the prefix ends with a word, and its last page may differ.
    """
    whole = _prompt(tokenizer, text[: end + LOOK_AHEAD])
    while cut := text[:end].rstrip():
        tokens = _prompt(tokenizer, cut)
        ends = _token_ends(tokenizer, tokens)
        spelled, lead = ends.text.find(f":\n{cut.lstrip()}"), len(cut) - len(cut.lstrip())
        if spelled < 0:
            return _cut_at_word(tokenizer, text, len(cut))
        start, same = spelled + 2, common(tokens, whole)
        shared = (ends.at[same - 1] if same else 0) - start + lead
        if shared >= len(cut):
            stop, overlapping = start + len(cut) - lead, pairwise([0, *ends.at])
            return TextPrefix(len(cut), sum(begin < stop and ended > start for begin, ended in overlapping))
        end = max(0, min(shared, len(cut) - 1))
    return TextPrefix(0, 0)


@dataclass(frozen=True)
class _TokenEnds:
    """The ``text`` that tokens spell, and the character at which each of them ends."""

    text: str
    at: list[int]


def _token_ends(tokenizer: Tokenizer, tokens: list[int]) -> _TokenEnds:
    text_of, pieces, at = tokenizer.stream(), list[str](), list[int]()
    length = 0
    for token in tokens:
        pieces.append(text_of(token))
        length += len(pieces[-1])
        at.append(length)
    return _TokenEnds("".join(pieces), at)


def _prompt(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode_chat([{"role": "user", "content": content([text], "", ASK)}])


def _cut_at_word(tokenizer: Tokenizer, text: str, end: int) -> TextPrefix:
    while 0 < end < len(text) and not text[end].isspace() and not text[end - 1].isspace():
        end -= 1
    cut = text[:end].rstrip()
    return TextPrefix(len(cut), len(tokenizer.encode(cut)))
