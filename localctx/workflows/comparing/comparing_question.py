"""Recognizes questions that compare documents, by rules in five languages. A question that no rule matches is not
treated as a comparison.
"""

from dataclasses import replace

from localctx.workflows.comparing.chinese import CHINESE
from localctx.workflows.comparing.english import ENGLISH
from localctx.workflows.comparing.french import FRENCH
from localctx.workflows.comparing.german import GERMAN
from localctx.workflows.comparing.rules import ComparingQuestion
from localctx.workflows.comparing.spanish import SPANISH

LANGUAGES = (ENGLISH, GERMAN, FRENCH, SPANISH, CHINESE)
FEWEST, MOST = 2, 6
"""How many documents one question may compare."""

_AROUND = " \t\n.?!¿¡。？！"  # noqa: RUF001
_MOST_CHARACTERS = 300
_PLAIN = str.maketrans({"’": "'", "？": "?", "，": ","})  # noqa: RUF001


def comparing_question(question: str, documents: int) -> ComparingQuestion | None:
    """Returns ``question`` as a ComparingQuestion for this number of ``documents``, or None if no rule matches it, or
    if it names more documents.
    """
    if not FEWEST <= documents <= MOST or len(question) > _MOST_CHARACTERS:
        return None
    words = " ".join(question.translate(_PLAIN).strip(_AROUND).split())
    asked = next((asked for rules in LANGUAGES if (asked := rules.read(words, documents))), None)
    return replace(asked, plain=question.strip()) if asked and asked.implied else asked
