"""Languages: which one a text is in, as far as that is certain, and a warning where a model was not made for it."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from localctx.models.catalog import load_catalog
from localctx.settings import Settings
from localctx.store.documents import StoredDocument

SAMPLE = 4_000  # characters from the middle of a text that are looked at
ENOUGH = 60  # characters; of less nothing is said
SURE = 0.9  # probability
_ENGLISH = frozenset(
    re.findall(r"\w+", "the of and to in is that for it was with as on be by this are from which have")
)
_PLAINLY = 0.15  # of the words of a text are among these few in English prose alone
_SCRIPTS = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),  # kana, which stand among Chinese signs
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")),
)
_OWN_SCRIPT = 0.2  # of all characters
_WORD = re.compile(r"[^\W\d_]+")

NAMES = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
"""Languages that people have documents in, by their ISO 639-1 codes."""


def language_of(text: str) -> str | None:
    """The ISO 639-1 code of the language of ``text``; None where that is not certain, or it is none of NAMES."""
    start = max(0, (len(text) - SAMPLE) // 2)
    sample = text[start : start + SAMPLE]
    if len(sample) < ENOUGH:
        return None
    words = _WORD.findall(sample.lower())
    if words and sum(word in _ENGLISH for word in words) >= _PLAINLY * len(words):
        return "en"  # most documents are: the model below takes most of a second to load
    for code, signs in _SCRIPTS:
        if len(signs.findall(sample)) >= _OWN_SCRIPT * len(sample):
            return code
    code, probability = _identifier().classify(sample)
    return code if probability >= SURE and code in NAMES else None


def language_warnings(settings: Settings, documents: Sequence[StoredDocument]) -> Iterator[str]:
    """A line for each language of ``documents`` that the model of ``settings`` was not made for, as far as is known."""
    known = load_catalog()
    reads = known[settings.model].languages if settings.model in known else ()
    searches = known[settings.embedder].languages if settings.embedder in known else ()
    if not reads:
        return
    told = set[str]()
    for row, text, _ in documents:
        language = language_of(text)
        if language is None or language in reads or language in told:
            continue
        told.add(language)
        by_words = searches and language not in searches
        means = ", and passages are found by their words rather than their meaning" if by_words else ""
        yield (
            f"{row.name} is in {NAMES[language]}, which {settings.model} was not made for: trust the quoted words, not "
            f"the answer{means}; models that read it: localctx models list"
        )


@cache
def _identifier() -> Any:
    """py3langid's model (Lui and Baldwin, "langid.py", ACL 2012)."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
