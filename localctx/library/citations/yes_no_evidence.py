"""Checks an answer of yes or no against the sentence that it cites."""

import re

from localctx.library.citations.claims import claim_of
from localctx.library.wording.word_forms import NEGATIONS, content_forms
from localctx.library.wording.yes_no import clause_after, only_yes_or_no, starts_with_yes

ENOUGH = 0.5  # share of the question's content words; a sentence with no more of them does not support a yes or no
GENERAL = content_forms(
    "allowed permitted included covered insured possible bring get erlaubt enthalten inbegriffen versichert gedeckt "
    "möglich autorisé permis inclus compris couvert permitido incluido cubierto posible"
)
"""Words that say of a question what is asked, not what about."""
_CONDITIONS = re.compile(
    r"\b(?:only|unless|except|provided that|subject to|without (?:the )?(?:\w+ )*(?:consent|permission)|"
    r"nur|außer|sofern|es sei denn|seulement|sauf|à condition|ne .* que|solo|sólo|solamente|excepto|salvo|"
    r"a menos que)\b"
    r"|除非|只有|仅",
    re.IGNORECASE,
)
_PROHIBITED = re.compile(
    r"\b(?:prohib|forbid|banned|exclu|refus|deni|verboten|untersagt|ausgeschlossen|interdit)\w*|禁止|不得",
    re.IGNORECASE,
)
_CLAUSE_ENDS = re.compile(r"[;:]|,\s*(?:but|and not|aber|mais|pero)\b|，但")  # noqa: RUF001


def supported_answer(answer: str, question: str, cited: str) -> str:
    """Returns as much of an ``answer`` that begins with yes or no as the sentence ``cited`` supports.

    Returns the whole answer if its other words are in the sentence, and only the yes or no if they are from other
    places. Returns the sentence itself if it sets a condition, says the contrary, or has too few words of the question:
    a "yes" to "Is flooding covered?" cannot come from a sentence that covers something else.
    """
    asked, about = content_forms(question), _clause_about(question, cited)
    shared = len(asked & content_forms(about))
    clause = clause_after(answer) or ""
    before = _words_before(clause, cited)
    if _CONDITIONS.search(about) or (shared == len(asked) and _contradicts(answer, question, about)):
        return " ".join(cited.split())
    if before is not None and not {*before[-2:]} & NEGATIONS and _is_on_topic(asked, cited):
        return answer if answer.endswith((".", "!", "。")) else f"{answer}."
    if shared > ENOUGH * len(asked):
        return only_yes_or_no(answer)
    return " ".join(cited.split()) if shared or before is not None else answer


def shares_words(question: str, sentence: str) -> bool:
    """Returns True if ``sentence`` has a content word of ``question``, or if the question has none."""
    asked = content_forms(question)
    return not asked or bool(asked & content_forms(sentence))


def _contradicts(answer: str, question: str, clause: str) -> bool:
    """Returns True if ``clause``, which has all content words of ``question``, affirms them where the answer is no, or
    denies one of them where the answer is yes.
    """
    if any(claim_of(question).denied.values()):
        return False
    denied = claim_of(clause).denied
    denies = any(denied.get(word, True) for word in content_forms(question)) or bool(_PROHIBITED.search(clause))
    return denies == starts_with_yes(answer)


def _is_on_topic(asked: set[str], cited: str) -> bool:
    """Returns True if at least half of the question's words, without general ones, are in the sentence ``cited``."""
    topic = asked - GENERAL
    return 2 * len(topic & content_forms(cited)) >= len(topic)


def _clause_about(question: str, sentence: str) -> str:
    """Returns the clause of ``sentence`` with the most content words of ``question``."""
    asked = content_forms(question)
    return max(_CLAUSE_ENDS.split(sentence), key=lambda clause: len(asked & content_forms(clause)))


def _words_before(clause: str, cited: str) -> list[str] | None:
    """Returns the words of ``cited`` before ``clause``; None if the clause is empty or not in it."""
    words, sentence = _squeezed(clause), _squeezed(cited)
    found = re.search(rf"(?<!\w){re.escape(words)}(?!\w)", sentence) if words else None
    return sentence[: found.start()].split() if found else None


def _squeezed(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .;:")
