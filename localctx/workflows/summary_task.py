"""Task: what is wanted of every document of a batch, and the words in which the model is asked for it.

The words are few and plain, for models of a hundred million parameters too; the text always stands before them. An
instruction that came first could be shared by all sections only in whole pages of the KV cache, of 64 tokens, and ours
fill none. With the text first it is the document's pages that are shared: with ``ask``, with another task.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from localctx.errors import UsageError
from localctx.settings import Settings

AS_IT_IS = "{question}"  # how these instructions are put, where ``ask`` would say "answer this question"
LENGTHS = {
    "short": ("in one or two sentences", 80),
    "medium": ("in one paragraph", 200),
    "long": ("in several paragraphs", 600),
}  # in words for the model, and the most tokens
MOST_WORDS = 2000
STYLES = {"prose": "", "bullets": " Write a list of short points.", "simple": " Use simple words."}
PART = ("in two or three sentences", 120)  # the summary of a section

_WHOLE = "Summarize the document above {length}.{style}{language}"
_PART = "Summarize the text above {length}.{language}"
_TOGETHER = (
    "Above are summaries of the parts of one document, in order. Write one summary of them {length}.{style}{language}"
)
_FURTHER = (
    "Document 1 is the summary so far. Document 2 comes next. Write one summary of both {length}.{style}{language}"
)

_MATTER = ("model", "kv", "dtype", "keep", "rope", "temperature", "top_p", "top_k", "seed", "beams", "max_tokens")
_MATTER_TO_ANSWERS = ("mode", "passages", "embedder", "blend")


@dataclass(frozen=True)
class SummaryTask:
    """A summary of this ``length`` (a name of LENGTHS, or a number of words), ``style`` and ``language``, or answers to
    ``questions``. ``refine``: a long document is walked through with its summary in hand.

    Raises UsageError for what cannot be meant.
    """

    length: str = "medium"
    style: str = "prose"
    language: str = ""
    refine: bool = False
    questions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.length not in LENGTHS and not (self.length.isdecimal() and 0 < int(self.length) <= MOST_WORDS):
            choices = f"{', '.join(LENGTHS)} or a number of words up to {MOST_WORDS:,}"
            raise UsageError(f"length {self.length!r} cannot be meant", f"use {choices}")
        if self.style not in STYLES:
            raise UsageError(f"there is no style {self.style!r}", f"use one of: {', '.join(STYLES)}")
        if not all(q.strip() for q in self.questions):
            raise UsageError("a question is empty", "put each in quotes after its --question")

    @property
    def tokens(self) -> int:
        """The most a summary may have."""
        return LENGTHS[self.length][1] if self.length in LENGTHS else 2 * int(self.length) + 32

    @property
    def whole(self) -> str:
        """What is asked of a whole document."""
        return self._asked(_WHOLE)

    @property
    def part(self) -> str:
        """What is asked of a section."""
        return self._asked(_PART, PART[0])

    @property
    def together(self) -> str:
        """What is asked of the summaries of sections."""
        return self._asked(_TOGETHER)

    @property
    def further(self) -> str:
        """What is asked of the summary so far and the next section."""
        return self._asked(_FURTHER)

    def adapted(self, settings: Settings) -> Settings:
        """``settings`` under which this is done: one answer each, as long as is wanted."""
        if settings.n > 1:
            raise UsageError("a batch takes one answer of each document", "leave out --n")
        return settings if self.questions else replace(settings, max_tokens=self.tokens)

    def recipe(self, settings: Settings) -> str:
        """A hash of all that a result depends on, beside the document: done once, it need not be done again."""
        names = _MATTER + (_MATTER_TO_ANSWERS if self.questions else ())
        names += () if settings.weights == "full" else ("weights",)  # full ones are in no recipe that was kept
        names += () if settings.repeats == "stop" else ("repeats",)  # likewise
        names += () if settings.careful == "auto" or not self.questions else ("careful",)
        names += ("effective_context",) if self.questions and settings.effective_context else ()
        asked = {"questions": self.questions} if self.questions else self._words
        what = {**asked, "refine": self.refine, **{name: getattr(settings, name) for name in names}}
        return digest(what)

    @property
    def _words(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("whole", "part", "together", "further")}

    def _asked(self, words: str, length: str = "") -> str:
        how = length or (LENGTHS[self.length][0] if self.length in LENGTHS else f"in about {self.length} words")
        language = f" Write in {self.language}." if self.language else ""
        return words.format(length=how, style=STYLES[self.style], language=language)

    def to_json(self) -> dict[str, Any]:
        """What was wanted."""
        return asdict(self)


def digest(what: Mapping[str, Any] | list[str]) -> str:
    """SHA-256 of JSON with its keys in order."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
