"""Rewords the engine's reports for users: phases of work, amounts of text, and remedies of errors."""

import re

from localctx.ui.settings_fields import FIELDS

WORDS_OF_A_TOKEN = 0.75  # rough average for English text with the catalogue's tokenizers
_PHASES = {
    "reading": "Reading",
    "ranking": "Comparing passages",
    "asking": "Asking passages",
    "quoting": "Finding the words",
    "beams": "Answering",
    "loading": "Loading the model",
    "indexing": "Making the text searchable",
    "embedding": "Making the text searchable",
    "converting": "Preparing the model",
    "saving": "Preparing the model",
    "sealing": "Preparing the model",
    "sections": "Summarizing sections",
    "summaries": "Joining summaries",
    "questions": "Answering questions",
    "comparing": "Asking each document",
    "checking": "Checking",
    "verifying": "Checking",
    "measuring": "Measuring",
    "pages": "Reading",
    "deleting": "Deleting",
}
_PAGES_OF = re.compile(r"pages of (?:.*[/\\])?(.+)", re.DOTALL)
_VALUES = {value for field in FIELDS for value in field.labels}
_VALUES |= {"none", "cpu", "sink-window", "snapkv", "select", "h2o"}
_IN_THE_CHAT = {"until": "“Read only up to”"}  # command-line options that have a field beside the chat
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:[ =]([a-z][\w.:/-]*))?")
_TOKENS = re.compile(r"(?:about )?(?<![\d.,])(\d[\d,]*(?:\.\d+)?) tokens( a second)?")
_PHRASES = (
    (re.compile(r" ?\(localctx [^)]*\)"), ""),
    (re.compile(r",? or see localctx plan\b"), ""),
    (re.compile(r"(?:see:? )?localctx library list"), "see the Library"),
    (re.compile(r"localctx summarize"), "“Summarize” in the Library"),
    (re.compile(r"localctx doctor says what to do"), "open Settings, Data"),
    (re.compile(r"localctx quality --blend"), "a measurement"),
    (re.compile(r"\bof KV\b"), "of memory"),
    (re.compile(r"\bthe KV cache\b"), "the cache"),
    (re.compile(r"\bKV\b"), "cache"),
    (re.compile(r"\bkeeper\b"), "attention limit"),
    (re.compile(r"\bcodec\b"), "memory precision"),
    (re.compile(r"\bprefill(?:ed|ing)?\b"), "reading"),
    (re.compile(r"\btokens\b"), "words"),
)


def words(tokens: float) -> str:
    """Returns the length of a text of ``tokens`` tokens as a rounded number of words, such as ``about 6,100 words``."""
    return about_words(tokens * WORDS_OF_A_TOKEN)


def about_words(number: float) -> str:
    """Returns a rounded number of words, such as ``about 6,100 words``."""
    step = 10 if number < 1000 else 100
    return f"about {max(step, round(number / step) * step):,} words"


def phase_name(phase: str) -> str:
    """Returns the label of a phase of work for the user. Files are named without their folders."""
    if match := _PAGES_OF.fullmatch(phase):
        return f"Reading {match[1]}"
    first, _, rest = phase.partition(" ")
    if first == "downloading":
        return f"Downloading {rest}".strip()
    if "/" in phase:  # the name of a file, before its pages are counted
        return f"Reading {phase.rpartition('/')[2]}"
    return _PHASES.get(first, phase[:1].upper() + phase[1:])


def in_everyday_words(text: str) -> str:
    """Rewords a line of the engine for users of the window.

    Settings are named by their labels, tokens are given as words, and commands are left out.
    """
    text = _TOKENS.sub(_amount, text)
    for pattern, everyday in _PHRASES[:6]:
        text = pattern.sub(everyday, text)
    text = _FLAG.sub(_setting, text)
    for pattern, everyday in _PHRASES[6:]:
        text = pattern.sub(everyday, text)
    return text


def _amount(match: re.Match[str]) -> str:
    number = float(match[1].replace(",", ""))
    return f"about {number * WORDS_OF_A_TOKEN:.1f} words a second" if match[2] else words(number)


def _setting(flag: re.Match[str]) -> str:
    name, value = flag[1], flag[2] or ""
    if name in _IN_THE_CHAT:
        return f"{_IN_THE_CHAT[name]} {value}".rstrip()
    field = next((f for f in FIELDS if f.name == name.replace("-", "_")), None)
    label = field.label if field else name.replace("-", " ")
    if value in _VALUES:
        return f"“{label}: {field.labels.get(value, value) if field else value}” in Settings"
    return f"“{label}” in Settings" + (f" {value}" if value else "")
