"""Decides which questions the model's adapter answers: those about documents, if they ask for no view of the whole."""

import re
from dataclasses import replace

from localctx.engine.prompt import Conversation
from localctx.engine.prompt_wording import READER
from localctx.engine.runtime import Runtime

_SUMMARY = r"summari[sz]e|summary|overview|overall|main (points?|ideas?|themes?)|throughout"
_WHOLE = rf"{_SUMMARY}|list (all|every|each|the)"
FOR_SUMMARY = re.compile(rf"\b({_SUMMARY})\b", re.IGNORECASE)
"""Finds instructions that only a summary follows."""

OF_THE_WHOLE = re.compile(rf"\b({_WHOLE})\b", re.IGNORECASE)
"""Finds instructions about the whole of a text, which no passage and no short answer follows."""

_EVER = r"(any(one|body|thing|where)|does|did|do) .*\bever"
_SEVERAL = "all|each|every|both"
_OVER = rf"(in|of|for|from|between) ({_SEVERAL})|({_SEVERAL}) of|compare[ds]?|differ(s|ent|ences?)?|in total"
OVER_ALL = re.compile(rf"\b({_WHOLE}|how (many|often)|{_OVER}|{_EVER})\b", re.IGNORECASE)
"""Finds these, and questions whose answer may be in many places."""


_LISTING = re.compile(
    r"\W*((please|can you|could you|now) )*(list|enumerate|name|find|collect|give me|tell me|show me)"
    r" (?!(about|if|of|out|that|to|whether)\b)"
    r"(?P<wanted>((?P<asks>how|what|when|where|which|who|whose|why)\b|(?P<plural>all|the)\b)?.*?\w)[\s.!?]*",
    re.IGNORECASE,
)


def as_question(instruction: str) -> str:
    """Returns the question in an instruction to list things, as an adapter that was trained on questions needs it;
    anything else unchanged. "List all gates' passwords." becomes "What are all gates' passwords?".
    """
    if not (listing := _LISTING.fullmatch(instruction)):
        return instruction
    if listing["asks"]:
        return f"{listing['wanted'][0].upper()}{listing['wanted'][1:]}?"
    return f"What {'are' if listing['plural'] else 'is'} {listing['wanted']}?"


def with_reader(runtime: Runtime, conversation: Conversation, question: str = "") -> Conversation:
    """Returns ``conversation`` with the adapter of the settings and the form of a question it was trained on; unchanged
    where there is none, or ``question`` is about the whole. Raises ModelError for an adapter that does not fit.
    """
    adapter = None if OF_THE_WHOLE.search(question) else runtime.adapter
    return replace(conversation, adapter=adapter, form=adapter.form or READER) if adapter else conversation
