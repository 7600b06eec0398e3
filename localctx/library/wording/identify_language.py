"""Detects the language of a text."""

import re
from functools import cache
from typing import Any

SAMPLE = 4_000  # characters from the middle of a text that are examined
MIN_SAMPLE = 60  # characters; the language of a shorter text stays unknown
MIN_PROBABILITY = 0.9
_ENGLISH = frozenset(
    re.findall(r"\w+", "the of and to in is that for it was with as on be by this are from which have")
)
_ENGLISH_SHARE = 0.15  # only English prose has this share of these words
_SCRIPTS = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),  # kana; tested before Chinese, because Japanese text contains both
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")),
)
_SCRIPT_SHARE = 0.2  # of all characters
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
"""Languages that are detected, by their ISO 639-1 codes."""


def language_of(text: str) -> str | None:
    """Returns the ISO 639-1 code of the language of ``text``; None if it is uncertain or not one of NAMES."""
    start = max(0, (len(text) - SAMPLE) // 2)
    sample = text[start : start + SAMPLE]
    if len(sample) < MIN_SAMPLE:
        return None
    words = _WORD.findall(sample.lower())
    if words and sum(word in _ENGLISH for word in words) >= _ENGLISH_SHARE * len(words):
        return "en"  # the common case, without the model below, which takes most of a second to load
    for code, characters in _SCRIPTS:
        if len(characters.findall(sample)) >= _SCRIPT_SHARE * len(sample):
            return code
    code, probability = _identifier().classify(sample)
    return code if probability >= MIN_PROBABILITY and code in NAMES else None


@cache
def _identifier() -> Any:
    """Load py3langid's model (Lui and Baldwin, "langid.py", ACL 2012)."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
