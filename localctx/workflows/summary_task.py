"""Defines the task to do on each document of a batch, and the instructions for it.

Instructions are short and plain, so that models of a hundred million parameters follow them. They come after the text,
so that ``ask`` and other tasks share the document's pages. (If the instruction came before the text, every page would
depend on it, and could not be shared.)
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from localctx.errors import UsageError
from localctx.models.adapter_folders import adapter_content, find_adapter
from localctx.settings import Settings, invalid
from localctx.settings.kinds import one_of
from localctx.workflows.summary_method import SummaryMethod, extract_words, summary_method

LENGTHS = {
    "short": ("in one or two sentences", 80),
    "medium": ("in one paragraph", 200),
    "long": ("in several paragraphs", 600),
}  # (words for the model, most tokens)
MAX_WORDS = 2000
STYLES = {"prose": "", "bullets": " Write a list of short points.", "simple": " Use simple words."}
MAX_SECTION = 2048  # tokens; of longer sections, small models summarize only the first and last sentences
SECTION_LENGTH = ("in two or three sentences", 120)  # of a section's summary, as in LENGTHS

_DOCUMENT = "Summarize the document above {length}. Name the people, dates and amounts in it.{style}{language}"
_SECTION = "Summarize the text above {length}.{language}"
_MERGE = (
    "Above are summaries of the parts of one document, in order. Write one summary of them {length}.{style}{language}"
)
_REFINE = (
    "Document 1 is the summary so far. Document 2 comes next. Write one summary of both {length}.{style}{language}"
)

_GENERATION_SETTINGS = (
    "model",
    "kv",
    "dtype",
    "keep",
    "rope",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "beams",
    "max_tokens",
)
ANSWER_VERSION = 2  # version of the fields of an answer; part of the recipe
EXTRACT_VERSION = 2  # version of the sentence selection; part of the recipe
_RETRIEVAL_SETTINGS = ("mode", "passages", "embedder", "blend")


@dataclass(frozen=True)
class SummaryTask:
    """A task for each document of a batch: a summary of this ``length``, ``style`` and ``language``, or the answers to
    ``questions``.

    ``length`` is ``short``, ``medium``, ``long`` or a number of words. ``style`` is ``prose``, ``bullets`` or
    ``simple``. If ``refine``, one summary of a long document is extended with each section. Raises UsageError for an
    unknown value.
    """

    length: str = "medium"
    style: str = "prose"
    language: str = ""
    refine: bool = False
    questions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.length not in LENGTHS and not (self.length.isdecimal() and 0 < int(self.length) <= MAX_WORDS):
            choices = f"{', '.join(LENGTHS)} or a number of words up to {MAX_WORDS:,}"
            raise invalid("length", self.length, choices)
        if self.style not in STYLES:
            raise invalid("style", self.style, one_of(list(STYLES)))
        if not all(q.strip() for q in self.questions):
            raise UsageError("a question is empty", "put each in quotes after its --question")

    @property
    def tokens(self) -> int:
        """The maximum number of tokens of a summary."""
        return LENGTHS[self.length][1] if self.length in LENGTHS else 2 * int(self.length) + 32

    @property
    def document_instruction(self) -> str:
        """The instruction to summarize a whole document."""
        return self._format(_DOCUMENT)

    @property
    def section_instruction(self) -> str:
        """The instruction to summarize one section."""
        return self._format(_SECTION, SECTION_LENGTH[0])

    @property
    def merge_instruction(self) -> str:
        """The instruction to merge the summaries of sections into one."""
        return self._format(_MERGE)

    @property
    def refine_instruction(self) -> str:
        """The instruction to extend the summary so far with the next section."""
        return self._format(_REFINE)

    def adapted(self, settings: Settings) -> Settings:
        """Returns ``settings`` with the maximum length of this task's summaries.

        Raises UsageError if the settings ask for several answers, or for extracts although the task needs other words
        than the document's.
        """
        self.method(settings)
        if settings.n > 1:
            raise UsageError("a batch gives one answer for each document", "leave out --n")
        return settings if self.questions else replace(settings, max_tokens=self.tokens)

    def method(self, settings: Settings) -> SummaryMethod:
        """Returns how summaries are made under ``settings``. Raises UsageError for an option that the method cannot
        follow.
        """
        options = {"--style simple": self.style == "simple", "--language": bool(self.language), "--refine": self.refine}
        rewords = next((option for option, given in options.items() if given), "")
        return SummaryMethod(False) if self.questions else summary_method(settings, rewords)

    def of_question(self, question: str) -> "SummaryTask":
        """Returns a task with this question alone. Its result is stored separately, so that other batches can use
        it.
        """
        return replace(self, questions=(question,))

    def recipes(self, settings: Settings) -> list[str]:
        """Returns the keys of stored results (``recipe``) for this task and for each of its questions asked alone."""
        return [task.recipe(settings) for task in (self, *map(self.of_question, self.questions))]

    def recipe(self, settings: Settings) -> str:
        """Returns the key under which results of this task are stored: a hash of everything that they depend on except
        the document.
        """
        if self.method(settings).extracts:
            return digest({"extract": EXTRACT_VERSION, "words": extract_words(self.length), "style": self.style})
        names = _GENERATION_SETTINGS + (_RETRIEVAL_SETTINGS if self.questions else ())
        # a default is left out, so that older hashes stay valid
        names += () if settings.weights == "full" else ("weights",)
        names += () if settings.reading == "full" else ("reading",)  # likewise
        names += () if settings.repeats == "stop" else ("repeats",)  # likewise
        names += () if settings.careful == "auto" or not self.questions else ("careful",)
        names += () if settings.answers == "auto" or not self.questions else ("answers",)
        names += ("effective_context",) if self.questions and settings.effective_context else ()
        # the default was once ``off``
        settings = replace(settings, blend="off") if settings.blend == "auto" else settings
        names += () if settings.engine == "auto" else ("engine",)
        wanted: dict[str, Any] = {**self._instructions, "sentences": "checked"}
        if self.questions:
            wanted = {"questions": self.questions, "answers": ANSWER_VERSION}
            if adapter := find_adapter(settings.adapter, settings.model):
                wanted["adapter"] = adapter_content(adapter)
        return digest({**wanted, "refine": self.refine, **{name: getattr(settings, name) for name in names}})

    @property
    def _instructions(self) -> dict[str, str]:
        """The instructions that are hashed into the recipe, by name."""
        return {
            "whole": self.document_instruction,
            "part": self.section_instruction,
            "together": self.merge_instruction,
            "further": self.refine_instruction,
        }

    def _format(self, instruction: str, length: str = "") -> str:
        length = length or (LENGTHS[self.length][0] if self.length in LENGTHS else f"in about {self.length} words")
        language = f" Write in {self.language}." if self.language else ""
        return instruction.format(length=length, style=STYLES[self.style], language=language)

    def to_json(self) -> dict[str, Any]:
        """Returns the task as JSON."""
        return asdict(self)


def digest(value: Mapping[str, Any] | list[str]) -> str:
    """Returns the SHA-256 of a value as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
