"""Guesses the kind of a question by its English words, and decides whether the model's adapter answers it.

For a text in another language every guess is False, because the same words may have other meanings there.
"""

import re
from dataclasses import replace

from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import READER
from localctx.engine.runtime import Runtime
from localctx.library.wording.identify_language import language_of

_SUMMARY = r"summari[sz]e|summary|overview|overall|main (points?|ideas?|themes?)|throughout"
_WHOLE = rf"{_SUMMARY}|list (all|every|each|the)"
_EVER = r"(any(one|body|thing|where)|does|did|do) .*\bever"
_SEVERAL = "all|each|every|both"
_OVER = rf"(in|of|for|from|between) ({_SEVERAL})|({_SEVERAL}) of|compare[ds]?|differ(s|ent|ences?)?|in total"
_FOR_SUMMARY = re.compile(rf"\b({_SUMMARY})\b", re.IGNORECASE)
_OF_THE_WHOLE = re.compile(rf"\b({_WHOLE})\b", re.IGNORECASE)
_OVER_ALL = re.compile(rf"\b({_WHOLE}|how (many|often)|{_OVER}|{_EVER})\b", re.IGNORECASE)
_LISTING = re.compile(
    r"\W*((please|can you|could you|now) )*(list|enumerate|name|find|collect|give me|tell me|show me)"
    r" (?!(about|if|of|out|that|to|whether)\b)"
    r"(?P<wanted>(?P<asks>how|what|when|where|which|who|whose|why)?\b.*?\w)[\s.!?]*",
    re.IGNORECASE,
)
_AFTER_HEAD = re.compile(r" (?:of|in|for|on|at|to|from|with|about|that|which|who|whose)\b", re.IGNORECASE)
_INSTRUCTION = re.compile(
    r"\W*(?:please |can you |could you |now )*(?:summari[sz]e|sum up|explain|describe|compare|contrast|translate|write|"
    r"rewrite|rephrase|paraphrase|outline|discuss|list|enumerate|give me|tell me|show me|make|create|draft|suggest)\b",
    re.IGNORECASE,
)
_PLEASE = r"\W*(?:(?:please|can you|could you|now|then|and),? )*"
_SUMMARIZE = (
    r"(?:summari[sz]e|sum up|(?:give|write|make|show) (?:me |us )?(?:an?|the) (?:short |brief |quick |written )?"
    r"(?:summary|overview)(?: of)?|(?:an? |the )?(?:short |brief )?summary(?: of)?|tl;?dr)"
)
_DOCUMENT = (
    r"(?: (?:it|this|that|these|them|everything|"
    r"(?:all (?:of )?)?(?:the|this|that|these|my|our|your|both|all|whole|entire)"
    r"(?: whole| entire| full| attached| two)?"
    r"(?: (?:document|file|text|book|novel|story|paper|report|article|letter|contract|agreement|lease|manual|guide|"
    r"notes|minutes|e-?mail|pdf|chapters|pages)s?)?|\S+\.[a-z0-9]{2,5}))?"
)
_LENGTH = (
    r"(?:,? (?:to me|for me|briefly|shortly|please|in (?:brief|short)|in (?:about |at most |up to )?"
    r"(?P<count>an?|one|two|three|four|five|six|seven|eight|nine|ten|a few|several|\d{1,4}) "
    r"(?P<unit>sentence|line|word|paragraph|bullet point|bullet|point)s?|"
    r"(?:as|in) (?P<bullets>bullet points|a list|bullets)))*"
)
_SUMMARY_OF_ALL = re.compile(f"{_PLEASE}{_SUMMARIZE}{_DOCUMENT}{_LENGTH}[\\s.!?]*", re.IGNORECASE)
_SHORT_WORDS = re.compile(r"\b(briefly|shortly|short|brief|quick|in brief|in short|tl;?dr)\b", re.IGNORECASE)
_OF_INSTRUCTIONS = re.compile(
    r"\b(list|name|find|count|tell|give|show|me|please|all|every|each|any|many|often|much|ever|anyone|anybody|there)\b",
    re.IGNORECASE,
)


def asks_for_summary(question: str) -> bool:
    """Returns True for an English instruction that asks for a summary."""
    return bool(_FOR_SUMMARY.search(question)) and may_be_english(question)


def summary_of_all(question: str) -> tuple[str, str] | None:
    """Returns (length, style) if the question asks for a summary of whole documents.

    The length is ``short``, ``medium``, ``long`` or a number of words; the style is ``prose`` or ``bullets``. Returns
    None if the question asks for anything else, such as a summary of one topic.
    """
    found = _SUMMARY_OF_ALL.fullmatch(question)
    if not found or not may_be_english(question):
        return None
    points = found["bullets"] or (found["unit"] or "").lower() in ("bullet point", "bullet", "point")
    return _summary_length(found["count"], found["unit"], question), "bullets" if points else "prose"


def _summary_length(count: str | None, unit: str | None, question: str) -> str:
    if not count or not unit:
        return "short" if _SHORT_WORDS.search(question) else "medium"
    if unit.lower() == "word":
        return str(min(max(int(count), 1), 2000)) if count.isdecimal() else "short"
    few = count.lower() in ("a", "an", "one", "two", "1", "2")
    if unit.lower() == "paragraph":
        return "medium" if count.lower() in ("a", "an", "one", "1") else "long"
    return "short" if few else "medium"


def asks_of_the_whole(question: str) -> bool:
    """Returns True for an English instruction about a whole text, which needs more than a passage or a short answer."""
    return bool(_OF_THE_WHOLE.search(question)) and may_be_english(question)


def asks_in_many_places(question: str) -> bool:
    """Returns True for an English instruction about a whole text, and for an English question whose answer may be in
    many places of the text.
    """
    return bool(_OVER_ALL.search(question)) and may_be_english(question)


def is_instruction(question: str) -> bool:
    """Returns True for an English instruction to write something. No words of a document can be the answer to it."""
    return bool(_INSTRUCTION.match(question)) and may_be_english(question)


def as_question(instruction: str) -> str:
    """Returns an instruction to list things, reworded as a question. Any other text is returned unchanged.

    Adapters are trained on questions. "List all gates' passwords." becomes "What are all gates' passwords?".
    """
    listing = _LISTING.fullmatch(instruction)
    if not listing or not may_be_english(instruction):
        return instruction
    if listing["asks"]:
        return f"{listing['wanted'][0].upper()}{listing['wanted'][1:]}?"
    head = _AFTER_HEAD.split(listing["wanted"], 1)[0].lower()
    is_plural = head.startswith("all ") or (head.endswith("s") and not head.endswith("ss"))
    return f"What {'are' if is_plural else 'is'} {listing['wanted']}?"


def without_instruction(question: str) -> str:
    """Returns the question without words that only tell the model what to do, such as "please list", because a search
    must not match them.
    """
    return _OF_INSTRUCTIONS.sub(" ", question) if may_be_english(question) else question


def may_be_english(text: str) -> bool:
    """Returns False for a text that is in another language, or has letters that English does not use.

    The language of a short text cannot be detected. Such a text may be English if it has only letters that English
    uses.
    """
    language = language_of(text)  # loads its model only for long texts with few common English words
    return language == "en" if language else all(c.isascii() for c in text if c.isalpha())


def with_adapter(runtime: Runtime, conversation: Conversation, question: str = "") -> Conversation:
    """Returns ``conversation`` with the adapter that the settings name, and with the wording of questions on which the
    adapter was trained.

    Returns ``conversation`` unchanged if there is no adapter, or if ``question`` is about the whole text. Raises
    ModelError for an adapter that does not fit the model.
    """
    adapter = None if asks_of_the_whole(question) else runtime.adapter
    return replace(conversation, adapter=adapter, form=adapter.form or READER) if adapter else conversation
