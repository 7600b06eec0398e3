r"""Reads LaTeX as text: drops comments, preamble and commands, makes sections headings, keeps formulas as written.

pylatexenc 2.11 was tried on the tests' document. It lost the verbatim text, the numbers of lists, the keys of citations
and the names of pictures, and wrote the headings in capitals. With \href in it, it raised an IndexError.
"""

import re
import unicodedata

from localctx.library.parsers.list_numbers import marked
from localctx.library.parsers.text_builder import TextBuilder

_SECTIONS = {"part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph", "title"}
_SILENT = {  # commands whose arguments are not text, with the number of arguments
    **dict.fromkeys(["label", "vspace", "hspace", "usepackage", "documentclass", "bibliographystyle", "pagestyle"], 1),
    **dict.fromkeys(["thispagestyle", "hypersetup", "geometry", "graphicspath", "index", "cmidrule", "cline"], 1),
    **dict.fromkeys(["phantom", "selectlanguage", "pagenumbering", "theoremstyle", "nocite", "color", "href"], 1),
    **dict.fromkeys(["newcommand", "renewcommand", "providecommand", "newtheorem", "setlength", "addtolength"], 2),
    **dict.fromkeys(["setcounter", "addtocounter", "multirow", "multicolumn", "fontsize", "rule"], 2),
    **{"DeclareMathOperator": 2, "textcolor": 1},
    **dict.fromkeys(["newenvironment", "renewenvironment", "definecolor", "addcontentsline"], 3),
}
_BREAKS = {
    **dict.fromkeys(("par", "newpage", "clearpage", "bigskip", "medskip", "smallskip", "maketitle"), 2),
    **dict.fromkeys(("newline", "linebreak", "tabularnewline", "cr"), 1),
}
_INCLUDED = {"includegraphics": "the picture", "input": "the included file", "include": "the included file"}
_LETTERS = {
    **{"ss": "ß", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å", "l": "ł"},
    **{"L": "Ł", "i": "\u0131", "j": "ȷ", "S": "§", "P": "¶", "copyright": "©", "pounds": "£", "euro": "€", "dag": "†"},
    **{"ldots": "…", "dots": "…", "textellipsis": "…", "textbackslash": "\\", "textasciitilde": "~", "LaTeX": "LaTeX"},
    **{"TeX": "TeX", "textendash": "\u2013", "textemdash": "\u2014", "textdegree": "°", "texteuro": "€", "quad": " "},
    **{"qquad": " ", "textbar": "|", "textless": "<", "textgreater": ">", "textunderscore": "_", "and": ", "},
}
_ACCENTS = dict(
    zip(
        "`'^\"~=.ucvHdbkr",
        "\u0300\u0301\u0302\u0308\u0303\u0304\u0307\u0306\u0327\u030c\u030b\u0323\u0331\u0328\u030a",
        strict=True,
    )
)
_MATHS = "equation|align|gather|multline|eqnarray|displaymath|math|alignat|flalign"
_TOKEN = re.compile(
    rf"""(?P<comment>%[^\n]*(?:\n[ \t]*)?)
    |\\begin{{(?P<raw>verbatim\*?|lstlisting|minted|Verbatim)}}(?P<code>.*?)\\end{{(?P=raw)}}
    |\\verb\*?(?P<bar>[^\w\s*])(?P<verb>[^\n]*?)(?P=bar)
    |(?P<math>\$\$.*?\$\$|\$(?:\\.|[^$\\\n]|\n(?![ \t]*\n))+\$|\\\(.*?\\\)|\\\[.*?\\\]
        |\\begin{{(?P<name>(?:{_MATHS})\*?)}}.*?\\end{{(?P=name)}})
    |(?P<accent>\\[`'^"~=.]|\\[ucvHdbkr](?![a-zA-Z]))[ ]*(?:{{\s*(?P<braced>\\?\w)\s*}}|(?P<bare>\\?\w))
    |\\(?P<command>[a-zA-Z@]+)\*?[ \t]*
    |(?P<line>\\\\\*?(?:\[[^\]\n]*\])?)
    |\\(?P<sign>.)
    |(?P<gap>\n[ \t]*\n\s*)
    |(?P<special>---?|``|''|~|&|[{{}}])
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = {"---": "\u2014", "--": "\u2013", "``": "\u201c", "''": "\u201d", "~": " ", "{": "", "}": ""}
_ARGUMENT = re.compile(r"[ \t]*(\[[^\]]*\]|\{)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_OPTIONS = re.compile(r"\s*\[([^\]]*)\]")
_NUMBERS = (("1", "{}. "), ("a", "({}) "), ("i", "{}. "), ("A", "{}. "))  # of items, by level
_POINTS = re.compile(r"(?:\w*[cC]ite\w*|\w*[rR]ef)\Z")
_BODY = re.compile(r"\\begin\{document\}(.*?)(?:\\end\{document\}|\Z)", re.DOTALL)
_COMMENT = re.compile(r"(?<!\\)%.*")
_TITLE = re.compile(r"\\(?:title|author|date)\b")
_MAX_DEPTH = 50


def read(text: str) -> TextBuilder:
    """Returns the text of a LaTeX document. Notes the pictures and included files in it, which are not read."""
    latex = _Latex()
    if body := _BODY.search(text):
        head = _COMMENT.sub("", text[: body.start()])
        for title in _TITLE.finditer(head):
            _, end = _argument(head, title.end())
            latex.append(head[title.start() : end])
            latex.builder.line(2)
        text = body.group(1)
    latex.append(text)
    return latex.builder


def _argument(text: str, start: int) -> tuple[str, int]:
    """Returns the argument in braces at ``start``, and the position after it. Without an argument, returns "" and the
    position to go on from.

    Optional arguments in brackets before the braces are skipped.
    """
    while (found := _ARGUMENT.match(text, start)) and found.group(1) != "{":
        start = found.end()
    if not found:
        return "", start
    depth, at = 1, found.end()
    for brace in _BRACE.finditer(text, at):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if not depth:
            return text[at : brace.start()], brace.end()
    return text[at:], len(text)


class _Latex:
    """Appends LaTeX to ``builder`` as text.

    ``items`` has the last number of each open list, or None for a list whose items have no numbers.
    """

    def __init__(self) -> None:
        self.builder = TextBuilder()
        self.items = list[int | None]()
        self.depth = 0

    def append(self, text: str) -> None:
        """Append LaTeX source as text."""
        self.depth += 1
        at = 0
        while found := _TOKEN.search(text, at):
            self.builder.words(text[at : found.start()])
            at = self._token(found, text)
        self.builder.words(text[at:])
        self.depth -= 1

    def _token(self, found: re.Match[str], text: str) -> int:
        """Append one token of ``text``. Returns the position after it."""
        if found["code"] is not None:
            self.builder.line(2)
            self.builder.verbatim(found["code"].strip("\n"))
            self.builder.line(2)
        elif command := found["command"]:
            return self._command(command, text, found.end())
        elif found["gap"]:
            self.builder.line(2)
        elif found["line"]:
            self.builder.line()
        elif found["special"] == "&":
            self.builder.cell()
        elif not found["comment"]:
            self.builder.words(_signs(found))
        return found.end()

    def _command(self, command: str, text: str, at: int) -> int:
        if command in ("begin", "end"):
            return self._environment(command, text, at)
        if command == "item":
            return self._item(text, at)
        if command in _LETTERS:
            self.builder.words(_LETTERS[command])
        elif command in _BREAKS:
            self.builder.line(_BREAKS[command])
        elif command == "def":
            return _argument(text, max(at, text.find("{", at)))[1]
        elif command in _SILENT:
            for _ in range(_SILENT[command]):
                _, at = _argument(text, at)
        elif command in _SECTIONS | _INCLUDED.keys() | {"footnote", "caption"} or _POINTS.match(command):
            argument, at = _argument(text, at)
            self._with_argument(command, argument)
        return at  # the argument of any other command is text

    def _with_argument(self, command: str, argument: str) -> None:
        if self.depth > _MAX_DEPTH:
            self.builder.words(argument)
        elif command in _SECTIONS:
            self.builder.begin_heading()
            self.append(argument)
            self.builder.end_heading()
        elif command in _INCLUDED:
            self.builder.note_unread(f"{_INCLUDED[command]} {argument}")
        elif command == "footnote":
            self.builder.words(" (")
            self.append(argument.strip())
            self.builder.words(")")
        elif command == "caption":
            self.builder.line()
            self.append(argument)
            self.builder.line()
        else:
            self.builder.words(f" [{argument}]")

    def _environment(self, command: str, text: str, at: int) -> int:
        name, end = _argument(text, at)
        options = _OPTIONS.match(text, end) if command == "begin" else None
        end = options.end() if options else end
        if name in ("enumerate", "itemize", "description"):
            if command == "begin":
                self.items.append(0 if name == "enumerate" and not options else None)
            elif self.items:
                self.items.pop()
        self.builder.line(2)
        if command == "begin" and (name.startswith(("tabular", "array", "longtable", "minipage", "thebibliography"))):
            for _ in range(2 if name in ("tabular*", "tabularx") else 1):
                _, end = _argument(text, end)
        return end

    def _item(self, text: str, at: int) -> int:
        self.builder.line()
        if label := _OPTIONS.match(text, at):
            self.append(label[1])
            self.builder.words(" ")
            return label.end()
        if self.items and (number := self.items[-1]) is not None:
            self.items[-1] = number + 1
            level = sum(number is not None for number in self.items) - 1
            marker, shown = _NUMBERS[min(level, 3)]
            self.builder.words(shown.format(marked(number + 1, marker)))
        return at


def _signs(found: re.Match[str]) -> str:
    """Returns the characters that a token stands for, such as é for a letter with an accent. A formula is returned as
    it is written.
    """
    if found["accent"]:
        letter = (found["braced"] or found["bare"]).removeprefix("\\")
        return unicodedata.normalize("NFC", letter + _ACCENTS[found["accent"][1]])
    if found["special"]:
        return _SPECIAL[found["special"]]
    if found["sign"]:
        sign = found["sign"]
        return " " if sign in ",;: \n" else "" if sign in "-/!" else sign
    return found["math"] or found["verb"] or ""
