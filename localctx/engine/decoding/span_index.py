"""SpanIndex: indexes all runs of consecutive words of a text as token sequences, so that decoding can be limited to
words of the text.

A ``SpanState`` is the set of runs that begin with the tokens chosen so far. The next tokens of these runs are the
allowed ones. Building the index takes time and memory linear in the length of the text.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from localctx.models.base import Tokenizer

Form = Literal["bare", "spaced"]
"""How the first word of a run is tokenized: as at the beginning of a line, or after a space."""


class Place(NamedTuple):
    """The characters ``start..end`` of the text with index ``text``."""

    text: int
    start: int
    end: int


_PREFIX: dict[Form, str] = {"bare": "\n", "spaced": "a "}
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_CJK_CHARACTER = re.compile(f"[{_CJK}]")
_JOINED = re.compile("(?=\\w['\u2019.]\\w|\\d[,:]\\d)")  # an elision, abbreviation or number is one word
_GENITIVE = re.compile("['\u2019]s\\b")
_BEFORE_NUMBERS = frozenset("$€£¥#")  # a run may begin with one of these inside a word
MAX_SPAN = 64  # characters a run may have inside a longer word: a text without spaces would have as many runs as
# characters, each as long as the rest of the text
_NO_FOLLOWING = 1 << 40  # the base of runs whose first word ends inside a longer word
_NO_END = frozenset(",;:([{<¿¡-\u2013\u2014«“\u2018„$€£#")  # a span that ended with one of these would look cut off


class SpanState(NamedTuple):
    """The runs of words that begin with the tokens chosen so far. ``depth`` is the number of these tokens, and ``rows``
    are the indices of the runs in a ``SpanIndex``.
    """

    rows: np.ndarray
    depth: int


class _Word(NamedTuple):
    """The ``tokens`` of a word, and for each the number of the word's characters spelled so far; 0 where no run may
    end.
    """

    tokens: list[int]
    ends: list[int]


_NOTHING = _Word([-1], [0])


class SpanIndex:
    """Indexes the runs of consecutive words in ``texts``, so that an answer can be limited to them. A run begins and
    ends at word boundaries and stays in one text.

    Any white space counts as one space. ``tokenizer`` encodes each word alone, so no token spans two words.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        self._words, self._texts = _WordEncoder(tokenizer), texts
        following, firsts = _Flat(), _Flat()
        self._start, base, rows_of_form = list[int](), list[int](), dict[Form, list[int]]({"bare": [], "spaced": []})
        self._first_row = list[int]()
        for text in texts:
            self._first_row.append(len(self._start))
            for match in re.finditer(r"\S+", text):
                at, word = match.start(), match.group()
                following.add(self._words.encode(word, "spaced"), at)
                for start, end in _firsts(word):
                    for form, rows in rows_of_form.items():
                        first = self._words.encode(word[start:end], form)
                        firsts.add(first, at + start)
                        rows.append(len(self._start))
                        self._start.append(at + start)
                        base.append(len(following.tokens) - len(first.tokens) if end == len(word) else _NO_FOLLOWING)
            following.add(_NOTHING, 0)  # no run crosses into the next text
        self._following, self._firsts = following.arrays(), firsts.arrays()
        self._first_at = np.array(firsts.starts, np.int64)
        self._first_len = np.diff(np.array([*firsts.starts, len(firsts.tokens)], np.int64))
        self._base = np.array(base, np.int64)
        self._rows = {form: np.array(rows, np.int64) for form, rows in rows_of_form.items()}

    def begin(self, *forms: Form) -> SpanState:
        """Returns the state before the first token, which has all runs. The first word of a run is tokenized in each of
        ``forms``: ``bare`` (as at the beginning of a line) and ``spaced`` (as after a space).
        """
        return SpanState(np.concatenate([self._rows[form] for form in forms]), 0)

    def next_tokens(self, state: SpanState) -> np.ndarray:
        """Returns the ids of the tokens that are allowed next, after the tokens chosen in ``state``. Each occurs once,
        in ascending order.
        """
        tokens = np.unique(self._at(0, state.rows, state.depth))
        return tokens[tokens >= 0]

    def choose(self, state: SpanState, token: int) -> SpanState:
        """Returns the state after choosing ``token``: the runs of ``state`` that continue with it."""
        return SpanState(state.rows[self._at(0, state.rows, state.depth) == token], state.depth + 1)

    def places(self, state: SpanState) -> list[Place]:
        """Returns the places in the texts that consist of exactly the words chosen in ``state``, in order. Returns none
        if a run may not end here, for example inside a word.
        """
        if not state.depth:
            return []
        ends = self._at(1, state.rows, state.depth - 1)
        found = {self._place(int(row), int(end)) for row, end in zip(state.rows, ends, strict=True) if end}
        return sorted(place for place in found if _balanced(self.words_at(place)))

    def words_at(self, place: Place) -> str:
        """Returns the text at ``place``, unchanged."""
        return self._texts[place.text][place.start : place.end]

    def _place(self, row: int, end: int) -> Place:
        return Place(bisect_right(self._first_row, row) - 1, self._start[row], end)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of ``text`` as it is tokenized after a word."""
        return self._words.encode_after("a", text)

    def _at(self, what: int, rows: np.ndarray, depth: int) -> np.ndarray:
        """Returns for each of ``rows`` the token (``what`` 0) or the end (``what`` 1) at index ``depth`` of the run. It
        belongs to the run's first word or, if ``depth`` is greater, to the words that follow.
        """
        first, following = self._firsts[what], self._following[what]
        in_first = depth < self._first_len[rows]
        after = np.minimum(self._base[rows] + depth, len(following) - 1)
        of_first = first[np.minimum(self._first_at[rows] + depth, len(first) - 1)]
        return np.where(in_first, of_first, following[np.where(in_first, 0, after)])


class _Flat:
    """Lists words one after the other: their ``tokens``, the character of the text where a run may end after each token
    (``ends``; 0: none), and the index of each word's first token (``starts``).
    """

    def __init__(self) -> None:
        self.tokens, self.ends, self.starts = list[int](), list[int](), list[int]()

    def add(self, word: _Word, at: int) -> None:
        """Append ``word``, which begins at character ``at``."""
        self.starts.append(len(self.tokens))
        self.tokens += word.tokens
        self.ends += [at + end if end else 0 for end in word.ends]

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns ``tokens`` and ``ends`` as arrays [n]."""
        return np.array(self.tokens, np.int64), np.array(self.ends, np.int64)


class _WordEncoder:
    """Encodes words as tokens, and caches the tokens of each spelling."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._known = tokenizer, dict[tuple[str, Form], _Word]()
        self._prefixes = {prefix: tokenizer.encode(prefix) for prefix in ("\n", "a")}

    def encode(self, word: str, form: Form) -> _Word:
        """Returns the tokens of a word without white space, and where runs may end in it."""
        key = word, form
        if key not in self._known:
            prefix = _PREFIX[form]
            tokens = self.encode_after(prefix.strip(" "), prefix[len(prefix.strip(" ")) :] + word)
            self._known[key] = _Word(tokens, self._ends(word, tokens, form))
        return self._known[key]

    def encode_after(self, prefix: str, text: str) -> list[int]:
        """Returns the tokens of ``text`` as it is encoded after ``prefix``."""
        first = self._prefixes[prefix]
        encoded = self._tokenizer.encode(prefix + text)
        return encoded[len(first) :] if encoded[: len(first)] == first else self._tokenizer.encode(text)

    def _ends(self, word: str, tokens: Sequence[int], form: Form) -> list[int]:
        possible = _possible_ends(word)
        ends = [0] * (len(tokens) - 1) + [len(word) if len(word) in possible else 0]
        if len(possible) > 1 or (possible and not ends[-1]):
            text_of, spelled = self._tokenizer.stream(), ""
            for token in self._prefixes[_PREFIX[form].strip(" ")]:
                text_of(token)
            for i, token in enumerate(tokens[:-1]):
                piece = text_of(token)
                spelled = (spelled + piece).lstrip(" ")
                if piece and len(spelled) in possible and word.startswith(spelled):
                    ends[i] = len(spelled)
        return ends


def _balanced(run: str) -> bool:
    """Returns True if the parentheses and brackets of a run are balanced."""
    return run.count("(") == run.count(")") and run.count("[") == run.count("]")


def _starts(word: str) -> list[int]:
    """Returns the indices in ``word``, which has no white space, where a run may begin."""
    return [0, *(i for i in _boundaries(word) if word[i].isalnum() or word[i] in _BEFORE_NUMBERS)]


def _firsts(word: str) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of each possible first word of a run inside ``word``. A first word ends where ``word`` ends,
    or at the last possible end within MAX_SPAN characters if ``word`` is longer than that.
    """
    if len(word) <= MAX_SPAN:
        yield from ((start, len(word)) for start in _starts(word))
        return
    ends = sorted(_possible_ends(word))
    for start in _starts(word):
        last = bisect_right(ends, start + MAX_SPAN)
        if last and ends[last - 1] > start:
            yield start, ends[last - 1]


def _possible_ends(word: str) -> set[int]:
    """Returns the indices in ``word``, which has no white space, where a run may end."""
    genitives = {match.start() for match in _GENITIVE.finditer(word)}
    return {i for i in {*_boundaries(word), *genitives, len(word)} if word[i - 1 : i] not in _NO_END}


def _boundaries(word: str) -> Iterator[int]:
    """Yields the indices inside ``word`` where a reader sees a word begin or end."""
    if word.isascii() and word.isalpha():
        return
    joined = {i for match in _JOINED.finditer(word) for i in (match.start() + 1, match.start() + 2)}
    for i in range(1, len(word)):
        before, after = word[i - 1], word[i]
        inside = before.isalnum() and after.isalnum() and not _CJK_CHARACTER.search(before + after)
        if not inside and not unicodedata.combining(after) and i not in joined:
            yield i
