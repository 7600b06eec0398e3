"""Extracts the claim of a sentence: the words that a source of the sentence must have.

Greetings, questions and refusals claim nothing.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from localctx.library.wording.word_forms import FUNCTION_WORDS, WordForm, word_forms
from localctx.library.wording.yes_no import clause_after

MAX_QUANTITY = 3  # words of a quantity that stands alone
NEGATED = 3  # a negation denies this many content words after it

_SOURCE = "document|text|passage|context|article|contract|agreement|page|paragraph|section|story|source|file"
_NOT = r"(?:\b(?:not|no|nothing)\b|n[’']t\b)"  # noqa: RUF001
_REFUSALS = re.compile(
    rf"\b(?:{_SOURCE})s?\b[^.]*{_NOT}[^.]*\b(?:say|mention|state|specif|contain|provide|includ|"
    r"tell|give|answer|indicate|discuss|describe|name|information)"
    rf"|{_NOT}[^.]*\b(?:mentioned|specified|stated|provided|given|said|found|indicated)\b[^.]*\b(?:{_SOURCE})"
    r"|\b(?:no|not enough|insufficient) (?:information|mention|answer)\b"
    r"|\b(?:dokument|text|vertrag)\b[^.]*\b(?:nicht|nichts|keine?)\b"
    r"|\b(?:document|texte|contrat)\b[^.]*\b(?:ne|n[’'])[^.]*\b(?:pas|rien)\b"  # noqa: RUF001
    r"|\b(?:documento|texto|contrato)\b[^.]*\b(?:no lo|no)\b[^.]*\b(?:dice|menciona|indica)\b"
    r"|(?:文件|文档|文本|文中|合同)[^。]*(?:没有|未)(?:说明|提及|提到|说|写|提供)",
    re.IGNORECASE,
)
_OF_THE_SPEAKER = re.compile(
    r"\W*(?:(?:i|i[’']m|i[’']ve|i[’']ll|sorry|hello|hi|hey|sure|certainly|of course|thanks|thank you|you[’']re welcome|"  # noqa: RUF001
    r"let me|here (?:is|are)|please (?:let|note|feel|provide)|feel free|hope this|based on the (?:text|document)[^,]*$)"
    r"(?!\w))",
    re.IGNORECASE,
)
_HEADING = re.compile(r"#{1,6}\s|\*\*[^*]*\*\*:?$")


@dataclass(frozen=True)
class Claim:
    """The content of a sentence in a form that can be compared with a source. ``words`` are its normalized words, and
    ``required`` are the numbers and names among them, which a source must have.

    ``denied`` maps a word to True if each occurrence is denied ("not allowed"), and to False if none is. A word with
    both kinds of occurrences is left out. A quantity alone ("5 kg") denies and affirms nothing, so that "not more than
    5 kg" is a source of it.
    """

    words: frozenset[str]
    required: frozenset[str]
    denied: Mapping[str, bool] = field(default_factory=dict)

    def contradicts(self, other: "Claim") -> bool:
        """Returns True if one claim denies a word that the other claim affirms."""
        return any(other.denied.get(word, denied) != denied for word, denied in self.denied.items())


def claim_of(sentence: str) -> Claim:
    """Returns the claim of a ``sentence``. A yes or no at the start is skipped, as in "No, pets are not allowed"."""
    sentence = _without_yes_or_no(sentence)
    forms = list(word_forms(sentence))
    content = [word for word in forms if word.is_content]
    required = frozenset(word.form for word in content if word.is_number or _is_name(sentence, forms, word))
    denied = {} if _is_quantity(forms) else _denied(sentence, forms)
    return Claim(frozenset(word.form for word in content), required, denied)


def claims_something(sentence: str) -> bool:
    """Returns True if a source could support or contradict the sentence.

    Returns False for greetings, questions, refusals, headings, introductions of lists, yes or no alone, and sentences
    without content words.
    """
    stripped = _without_yes_or_no(sentence).strip()
    if not stripped or stripped[-1] in "?？:" or _HEADING.match(stripped):  # noqa: RUF001
        return False
    if _OF_THE_SPEAKER.match(stripped) or _REFUSALS.search(stripped):
        return False
    return any(word.is_content for word in word_forms(stripped))


def _without_yes_or_no(sentence: str) -> str:
    clause = clause_after(sentence)
    return sentence if clause is None else clause


def _is_quantity(forms: list[WordForm]) -> bool:
    return 0 < len(forms) <= MAX_QUANTITY and forms[0].is_number


def _is_name(sentence: str, forms: list[WordForm], word: WordForm) -> bool:
    """Returns True for a capitalized word inside the sentence, and for one at the start of the sentence if another
    capitalized word follows.
    """
    if not sentence[word.start].isupper():
        return False
    before = sentence[: word.start].rstrip(" \t\n\"'“‘(*_")  # noqa: RUF001
    if before and before[-1] not in ".!?:;|-•\n" and not before[-1].isdigit():
        return True
    at = forms.index(word)
    if at + 1 == len(forms):
        return False
    after = forms[at + 1]
    between = sentence[word.end : after.start]
    return between == " " and sentence[after.start].isupper() and after.word not in FUNCTION_WORDS


def _denied(sentence: str, forms: list[WordForm]) -> dict[str, bool]:
    found = defaultdict[str, set[bool]](set)
    left, end = 0, 0
    for word in forms:
        if re.search("[.,;:!?]", sentence[end : word.start]):
            left = 0
        end = word.end
        if word.negates:
            left = NEGATED
        elif word.is_content:
            found[word.form].add(left > 0)
            left -= 1
    return {form: signs == {True} for form, signs in found.items() if len(signs) == 1}
