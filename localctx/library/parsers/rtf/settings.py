"""Holds the settings of an RTF file's groups: fonts with their code pages, styles, note numbers, form fields."""

from dataclasses import dataclass, field

from localctx.library.parsers.list_numbers import formatted
from localctx.library.parsers.rtf.tokens import codec_of, codec_of_charset

NO_LEVEL = 9
"""The outline level of text that is not a heading."""

_HEADINGS = ("heading ", "title")
_PAGES = {"mac": 10000, "pc": 437, "pca": 850}
_NOTE_FORMS = {"ar": "decimal", "alc": "lowerLetter", "auc": "upperLetter", "rlc": "lowerRoman", "ruc": "upperRoman"}
_KINDS = {"ftn": "footnote", "aftn": "endnote"}


@dataclass
class RtfState:
    """The formatting state of an RTF group, which it inherits from the group around it. When the group ends, the state
    of the outer group applies again.
    """

    destination: str = "text"
    hidden: bool = False
    deleted: bool = False
    font: int | None = None
    fallback: int = 1  # number of letters for older programs after a Unicode letter


class RtfFonts:
    """The font table of an RTF file: names and code pages of fonts. A font without a code page has the file's code
    page.
    """

    def __init__(self) -> None:
        self._default_codec, self._default_font = "cp1252", 0
        self._names: dict[int, str] = {}
        self._codecs: dict[int, str] = {}
        self._defined = 0

    def define(self, word: str, value: int) -> None:
        """Apply a control word of the font table, with its number ``value``."""
        if word == "f":
            self._defined, self._names[value] = value, ""
        elif word == "fcharset":
            self._codecs.setdefault(self._defined, codec_of_charset(value, ""))
        elif word == "cpg":
            self._codecs[self._defined] = codec_of(value)

    def add_name(self, text: str) -> None:
        """Add text of the font table to the name of the font that is being defined."""
        self._names[self._defined] = self._names.get(self._defined, "") + text.replace(";", "")

    def configure(self, word: str, value: int) -> None:
        """Apply a control word of the document that sets the default code page or the default font."""
        if word == "ansicpg" and value:
            self._default_codec = codec_of(value)
        elif word in _PAGES:
            self._default_codec = codec_of(_PAGES[word])
        elif word == "deff":
            self._default_font = value

    def codec(self, font: int | None) -> str:
        """Returns the name of Python's codec for the text of a font. None means the default font."""
        return self._codecs.get(self._default_font if font is None else font) or self._default_codec

    def name(self, font: int | None) -> str:
        """Returns the name of a font. None means the default font."""
        return self._names.get(self._default_font if font is None else font, "").strip()


class RtfStyles:
    """The style sheet of an RTF file, which says which paragraph styles are headings or titles."""

    def __init__(self) -> None:
        self._headings = set[int]()
        self._style, self._name = 0, ""  # that is being defined

    def define(self, word: str, value: int) -> None:
        """Apply a control word of the style sheet, with its number ``value``."""
        if word == "s":
            self._style = value
        elif word == "outlinelevel" and value < NO_LEVEL:
            self._headings.add(self._style)

    def add_name(self, text: str) -> None:
        """Add text of the style sheet to the name of the style that is being defined."""
        self._name += text

    def end_style(self) -> None:
        """End the definition of a style."""
        if self._name.strip().lower().startswith(_HEADINGS):
            self._headings.add(self._style)
        self._style, self._name = 0, ""

    def is_heading(self, style: int) -> bool:
        """Returns True if the paragraph style number ``style`` is a heading or title."""
        return style in self._headings


class RtfNotes:
    """Counts the footnotes and endnotes. ``is_counted`` is set when the text refers to the next note by its automatic
    number.
    """

    def __init__(self) -> None:
        self.is_counted = False
        self._counts = {"footnote": 1, "endnote": 1}  # of the next note
        self._forms = {"footnote": "decimal", "endnote": "lowerRoman"}

    def label(self, kind: str) -> str:
        """Count the next note of this ``kind``, and return its label, such as ``Footnote 3``."""
        if not self.is_counted:
            return kind.title()
        self.is_counted = False
        self._counts[kind] += 1
        return f"{kind.title()} {formatted(self._counts[kind] - 1, self._forms[kind])}"

    def configure(self, word: str, value: int | None) -> bool:
        """Apply a control word of the document that says how notes are numbered. Returns False for any other control
        word.
        """
        prefix, _, form = word.partition("ftnn")
        kind = _KINDS.get(f"{prefix}ftn")
        if kind and form in _NOTE_FORMS:
            self._forms[kind] = _NOTE_FORMS[form]
        elif word in ("ftnstart", "aftnstart"):
            self._counts[_KINDS[word.removesuffix("start")]] = value or 1
        else:
            return False
        return True


@dataclass
class RtfFormField:
    """A form field: a check box, or a list of entries of which one is chosen."""

    kind: int = 0  # 1: a check box, 2: a list
    result: int = 25  # 25: the default
    default: int = 0
    entries: list[str] = field(default_factory=list)

    def define(self, word: str, value: int) -> None:
        """Apply a control word of the field, with its number ``value``."""
        if word == "fftype":
            self.kind = value
        elif word == "ffres":
            self.result = value
        elif word == "ffdefres":
            self.default = value

    @property
    def printed(self) -> str:
        """The field as text: ``[x]`` or ``[ ]`` for a check box, else the chosen entry."""
        chosen = self.default if self.result == 25 else self.result
        if self.kind == 1:
            return "[x]" if chosen else "[ ]"
        return dict(enumerate(self.entries)).get(chosen, "") if self.kind == 2 else ""
