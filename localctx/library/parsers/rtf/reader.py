"""Interprets the tokens of RTF: groups, fonts, styles, and the destinations with text, notes or numbers."""

from collections.abc import Iterator
from dataclasses import replace

from localctx.library.parsers.office import symbols
from localctx.library.parsers.office.blocks import Block, comment_label, labelled
from localctx.library.parsers.rtf import destinations
from localctx.library.parsers.rtf.settings import NO_LEVEL, RtfFonts, RtfFormField, RtfNotes, RtfState, RtfStyles
from localctx.library.parsers.rtf.story import RtfStory, merge_of
from localctx.library.parsers.rtf.tokens import tokens

_ENDS = {"par", "cell", "row", "sect"}
_DEEPEST = 50  # level of a table in a cell in a table, and so on
_MERGES = {"clvmrg", "clmrg"}


class RtfReader:
    """Reads one RTF file. ``headers_and_footers`` are pairs of ``Header`` or ``Footer`` and its blocks, which are added
    while the file is read.
    """

    def __init__(self) -> None:
        self.headers_and_footers: list[tuple[str, list[Block]]] = []
        self._states = [RtfState()]
        self._stories = [RtfStory("text")]
        self._begun: list[bool] = []  # for each open group: True if it began a story
        self._unread: dict[str, int] = {}
        self._fonts = RtfFonts()
        self._styles = RtfStyles()
        self._bytes = bytearray()
        self._skip = 0  # letters to skip after a Unicode letter
        self._is_starred = False
        self._cell_words, self._merges = set[str](), list[str]()
        self._author, self._number, self._entry = "", "", ""
        self._notes = RtfNotes()
        self._form = RtfFormField()

    def read(self, data: bytes) -> None:
        """Read the bytes of a whole file."""
        for token in tokens(data):
            if token.kind == "bytes":
                self._add_bytes(token.data)
                continue
            self._flush()
            match token.kind:
                case "{":
                    self._states.append(replace(self._states[-1]))
                    self._begun.append(False)
                    self._is_starred = False
                case "}" if len(self._states) > 1:
                    self._end_group()
                case "word":
                    self._word(token.name, token.value)
                case "symbol":
                    self._symbol(token.name)
        self._flush()

    def finish(self) -> list[Block]:
        """End the groups that are still open, and return the blocks of the text."""
        if len(self._states) > 1:
            self._note("the end of the file, which is missing or damaged")
        while self._begun:
            self._end_group()
        return self._stories[0].finish()

    def unread(self) -> Iterator[str]:
        """Yields a line for each part that could not be read, such as ``2 pictures``."""
        for told, count in self._unread.items():
            yield f"{count} {told.removeprefix('a ')}s" if told == "a picture" and count > 1 else told

    @property
    def _state(self) -> RtfState:
        return self._states[-1]

    @property
    def _story(self) -> RtfStory:
        return self._stories[-1]

    def _note(self, told: str) -> None:
        self._unread[told] = self._unread.get(told, 0) + 1

    # Text

    def _add_bytes(self, data: bytes) -> None:
        passed_over = min(self._skip, len(data))
        self._skip -= passed_over
        self._bytes += data[passed_over:]

    def _flush(self) -> None:
        self._skip = 0
        if self._bytes:
            self._write(self._bytes.decode(self._fonts.codec(self._state.font), "replace"))
            self._bytes.clear()

    def _write(self, text: str) -> None:
        match self._state.destination:
            case "text":
                self._write_visible(text)
            case "number":
                self._number += symbols.in_unicode(self._fonts.name(self._state.font), text)
            case "fonttbl":
                self._fonts.add_name(text)
            case "stylesheet":
                self._styles.add_name(text)
            case "atnauthor":
                self._author += text
            case "ffl":
                self._entry += text

    def _write_visible(self, text: str) -> None:
        if self._state.hidden and not self._state.deleted and text.strip():
            self._note("hidden text")
        elif not self._state.hidden and not self._state.deleted:
            self._story.add(symbols.in_unicode(self._fonts.name(self._state.font), text))

    def _symbol(self, name: str) -> None:
        if name == "*":
            self._is_starred = True
        elif name in "\r\n" and self._state.destination == "text":
            self._story.end_paragraph()
        else:
            self._write(destinations.SYMBOLS.get(name, ""))

    # Groups

    def _end_group(self) -> None:
        ended, began = self._states.pop(), self._begun.pop()
        if began:
            self._end_story(self._stories.pop())
        elif ended.destination == "number" != self._state.destination:
            number = " ".join(self._number.split())
            self._story.number = "" if not number else f"{number if any(map(str.isalnum, number)) else '•'} "
        elif ended.destination == "stylesheet":
            self._styles.end_style()
        elif ended.destination == "ffl":
            self._form.entries.append(self._entry)
        elif ended.destination == "formfield" != self._state.destination:
            self._story.add(self._form.printed)

    def _begin_story(self, kind: str) -> None:
        self._stories.append(RtfStory(kind, self._state.hidden or self._state.deleted))
        self._begun[-1] = True
        self._state.destination = "text"
        self._state.hidden = self._state.deleted = False

    def _end_story(self, story: RtfStory) -> None:
        blocks = story.finish()
        label = self._notes.label(story.kind) if story.kind in ("footnote", "endnote") else ""
        if story.is_hidden:
            self._note("hidden text")
        elif story.kind in ("Header", "Footer"):
            self.headers_and_footers.append((story.kind, blocks))
        elif story.kind == "annotation":
            author = self._author.strip()
            self._story.after += labelled(comment_label(author), blocks)
        elif label:
            self._story.after += labelled(label, blocks)
        else:
            self._story.after += blocks

    # Control words

    def _word(self, name: str, value: int | None) -> None:
        starred, self._is_starred = self._is_starred, False
        self._leave_damaged(name)
        if self._state.destination in destinations.SKIPPED and name != "ud":
            return
        if name in destinations.LETTERS:
            self._write(destinations.LETTERS[name])
        elif not self._begins_destination(name) and not self._character_word(name, value):
            if defined := self._defined():
                defined.define(name, value or 0)
            elif self._state.destination == "text" and not self._paragraph_word(name, value):
                self._table_word(name) if name in _TABLE_WORDS else self._document_word(name, value)
            if starred and name not in destinations.READ_THROUGH:
                self._state.destination = "passed over"

    def _leave_damaged(self, name: str) -> None:
        """Continue with the text if the control word ``name`` cannot occur in this destination, because the closing
        brace of the destination is missing.
        """
        destination = self._state.destination
        begins = name == "pard" and destination != "stylesheet"
        if destination in destinations.FLAT and (name in _ENDS or begins):
            self._state.destination = "text"
        elif destination == "number" and name in _ENDS:
            self._state.destination = "text"
            self._story.add(self._number)

    def _defined(self) -> RtfFonts | RtfStyles | RtfFormField | None:
        """Returns the object that the control words of the open group define (the fonts, the styles or a form field),
        or None.
        """
        match self._state.destination:
            case "fonttbl":
                return self._fonts
            case "stylesheet":
                return self._styles
        return self._form if self._state.destination == "formfield" else None

    def _begins_destination(self, name: str) -> bool:
        if not self._begun:
            return False
        if name in destinations.STORIES:
            self._begin_story(name)
        elif name in destinations.HEADERS:
            self._begin_story(destinations.HEADERS[name])
        elif name in destinations.NUMBERS:
            self._state.destination, self._number = "number", ""
        elif name in destinations.COLLECTED or name in destinations.SKIPPED:
            self._begin_collecting(name)
        elif name == "ud":
            self._state.destination = "text"
        else:
            return name in destinations.READ_THROUGH
        return True

    def _begin_collecting(self, name: str) -> None:
        self._state.destination = name
        if name == "pict" and not self._state.hidden:
            self._note("a picture")
        elif name in destinations.TOLD:
            self._note(destinations.TOLD[name])
        elif name == "atnauthor":
            self._author = ""
        elif name == "formfield":
            self._form = RtfFormField()
        elif name == "ffl":
            self._entry = ""

    def _character_word(self, name: str, value: int | None) -> bool:
        """Handle a control word for letters. Returns False for any other word."""
        state = self._state
        match name:
            case "u":
                code = value or 0
                self._write(chr(code % 0x10000) if -0x8000 <= code < 0x10000 else "\ufffd")
                self._skip = state.fallback
            case "uc":
                state.fallback = max(0, value or 0)
            case "v" | "deleted":
                setattr(state, "hidden" if name == "v" else name, value != 0)
            case "plain":
                state.hidden = state.deleted = False
                state.font = None
            case "f" if state.destination != "fonttbl":
                state.font = value
            case _:
                return False
        return True

    def _paragraph_word(self, name: str, value: int | None) -> bool:
        """Handle a control word for paragraphs. Returns False for any other word."""
        story = self._story
        match name:
            case "par" | "sect":
                if not self._state.deleted:  # otherwise the next paragraph continues this one
                    story.end_paragraph()
            case "pard":
                story.is_heading, story.level = False, 0
            case "s":
                story.is_heading = self._styles.is_heading(value or 0)
            case "outlinelevel":
                story.is_heading = story.is_heading or (value or 0) < NO_LEVEL
            case "intbl":
                story.level = max(1, story.level)
            case "itap":
                story.level = max(0, min(value or 0, _DEEPEST))
            case "ftnalt":
                story.kind = "endnote"
            case _:
                return False
        return True

    def _table_word(self, name: str) -> None:
        level = max(2, self._story.level)  # of a table in a cell
        match name:
            case "trowd":
                self._cell_words, self._merges = set(), []
            case "cellx":
                self._merges.append(merge_of(self._cell_words))
                self._cell_words = set()
            case "cell" | "nestcell":
                self._story.end_cell(1 if name == "cell" else level)
            case "row" | "nestrow":
                self._story.end_row(1 if name == "row" else level, self._merges)
            case _:
                self._cell_words.add(name)

    def _document_word(self, name: str, value: int | None) -> None:
        if name == "chftn" and self._story.kind not in ("footnote", "endnote"):
            self._notes.is_counted = True
        elif not self._notes.configure(name, value):
            self._fonts.configure(name, value or 0)


_TABLE_WORDS = {"trowd", "cellx", "cell", "nestcell", "row", "nestrow", *_MERGES}
