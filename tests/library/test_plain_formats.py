"""Markdown, notebooks, subtitles and LaTeX: their text, their places, and nothing of their marks that nobody reads."""

# ruff: noqa: RUF001 (signs that look alike, as documents have them)

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.library.parsers.plain import latex, notebook, subtitles
from localctx.library.parsers.plain.markdown import headings
from localctx.library.parsers.text_builder import clean
from localctx.library.read_document import Document, read_document


@pytest.fixture
def read(tmp_path, parsed_here):
    def read(data: bytes | str, name: str) -> Document:
        (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return read_document(str(tmp_path / name))

    return read


def parts(document: Document, kind: str) -> list[tuple[str, str]]:
    return [(s.label, document.text[s.start : s.end].strip()) for s in document.spans if s.kind == kind]


# Markdown


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("# One\ntext\n## Two ##\n### Using C#\n#no\n####### no\n#\n# \n", ["One", "Two", "Using C#"]),
        ("One\n===\n\nTwo\n---\n\n- item\n---\n\n---\n", ["One", "Two"]),
        ("A long\ntitle\n===\ntext\n", ["A long title"]),
        ("~~~sh\n# no\n~~~\n# yes\n", ["yes"]),
        ("````md\n```\n# no\n```\n````\n# yes\n", ["yes"]),
        ("```\n# no\n~~~\n# no\n```\n# yes\n", ["yes"]),
        ("```py\n# no\n", []),
        ("``` a`b\n# yes\n", ["yes"]),
        ("- item\n\n  ```sh\n  # no\n  ```\n\n# yes\n", ["yes"]),
        ("1. item\n   ~~~\n   # no\n   ~~~\n# yes\n", ["yes"]),
        ("- ```\n  # no\n\n# yes\n", ["yes"]),
        ("> ```\n> # no\n# yes\n", ["yes"]),
        ("    # no\n\n# yes\n", ["yes"]),
        ("---\ntitle: Notes\n---\n# yes\n", ["yes"]),
        ("+++\ntitle = 'x'\n+++\n\n# yes\n", ["yes"]),
        ("<!-- a\n# no\n-->\n# yes\n<!-- b -->\n# and\n", ["yes", "and"]),
        ("<pre>\n# no\n</pre>\n# yes\n", ["yes"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", []),
        ("  # yes  \r\n", ["yes"]),
    ],
)
def test_headings_of_markdown_are_those_outside_of_code(text, labels):
    assert [label for _, _, label in headings(clean(text))] == labels


LINES = [
    "# A",
    "## B #",
    "text",
    "===",
    "---",
    "",
    "```",
    "~~~",
    "````",
    "~~~~~",
    "``` sh",
    "<!-- c",
    "d -->",
    "-->",
    "  # E",
]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(LINES), max_size=12))
def test_headings_are_those_of_a_parser_of_markdown(lines):
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["block"])
    text = "\n".join(["x", "", *lines, ""])
    tokens = parser.parse(text)
    found = [t for name, t in itertools.pairwise(tokens) if name.type == "heading_open" and t.content]
    assert [label for _, _, label in headings(text)] == [" ".join(t.content.split()) for t in found]


# Notebooks


def cell(kind: str, source: object, **more: object) -> dict[str, object]:
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def test_a_notebook_is_its_cells_with_headings_code_and_what_was_printed(read):
    picture = {"output_type": "display_data", "data": {"image/png": "iVBOR" * 99, "text/plain": ["<Figure size 6x4>"]}}
    table = {
        "output_type": "execute_result",
        "data": {"text/html": "<table><tr><td>a<td>b</table>", "text/plain": "a b"},
    }
    html = {"output_type": "display_data", "data": {"text/html": ["<p>only ", "html"]}}
    printed = {"output_type": "stream", "name": "stdout", "text": ["\x1b[31mred\x1b[0m\n", "two\n"]}
    error = {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["\x1b[0m..."]}
    cells = [
        cell("markdown", ["# Tides\n", "High at noon. ![x](data:image/png;base64," + "A" * 80 + ")"]),
        cell("code", "# no heading\nplot()", outputs=[picture, picture]),
        cell("code", ["show()"], outputs=[printed, table, html, error]),
        cell("raw", "as it is"),
    ]
    about = {"kernelspec": {"name": "python3", "language": "python"}}
    document = read(json.dumps({"cells": cells, "metadata": about, "nbformat": 4}), "n.ipynb")
    assert parts(document, "cell") == [
        ("1", "# Tides\nHigh at noon. ![x]()"),
        ("2", "```python\n# no heading\nplot()\n```"),
        ("3", "```python\nshow()\n```\n\nred\ntwo\n\na b\n\nonly html\n\nKeyError: 'x'"),
        ("4", "as it is"),
    ]
    assert [label for label, _ in parts(document, "heading")] == ["Tides"]
    assert document.row.unread == "1 picture in cell 1\n2 pictures in cell 2"
    assert document.row.encoding == "ipynb"


def test_old_and_damaged_notebooks_are_read(read):
    old = {
        "worksheets": [{"cells": [{"cell_type": "code", "input": ["1+1"], "outputs": [{"text": "2"}]}]}],
        "nbformat": 3,
    }
    assert read(json.dumps(old), "old.ipynb").text == "```\n1+1\n```\n\n2"
    damaged = '{"cells": [{"source": "The keeper is Oda."'
    document = read(damaged, "cut.ipynb")
    assert (document.text, document.row.unread) == (
        damaged,
        "the cells: the notebook is damaged and shown as the text of the file",
    )
    assert read('{"a": 1}', "a.json").text == '{"a": 1}'


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["cells", "source", "outputs", "data", "text", "image/png", "cell_type", "worksheets", "metadata"]
                ),
                x,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_no_notebook_is_too_odd(content):
    notebook.read(json.dumps({"cells": [content], "metadata": content}))
    notebook.read(json.dumps(content))


# Subtitles

SRT = """1
00:00:01,000 --> 00:00:03,000
The pilot is
<i>Gerda Holm</i>.

2
00:00:04,000 --> 00:00:06,000 X1:40
{\\an8}She sails at dawn.

3
01:00:07,500 --> 01:00:09,000
42
"""
VTT = """WEBVTT - a title

STYLE
::cue { color: red }

NOTE The pilot is
not said here.

intro
00:01.000 --> 00:03.000 align:start
<v Gerda>Good <b>morning</b>.

NOTE not here

02:10.000 --> 02:12.000
To all <00:02:11.000>of you.
"""


def test_subtitles_are_lines_at_their_times(read):
    document = read(SRT.replace("\n", "\r\n"), "a.srt")
    assert document.text == "The pilot is Gerda Holm.\nShe sails at dawn.\n42"
    assert parts(document, "subtitle") == [
        ("00:00:01", "The pilot is Gerda Holm."),
        ("00:00:04", "She sails at dawn."),
        ("01:00:07", "42"),
    ]
    document = read(VTT, "a.vtt")
    assert parts(document, "subtitle") == [("00:00:01", "Gerda: Good morning."), ("00:02:10", "To all of you.")]
    assert document.text == "Gerda: Good morning.\nTo all of you."


def test_subtitles_are_known_by_their_content_and_a_text_with_an_arrow_is_not(read):
    assert read(SRT, "talk.txt").row.encoding == "subtitles"
    assert read("1\n00:00 --> 00:01 is a time\n", "a.txt").row.encoding == "utf-8"
    assert subtitles.read("WEBVTT\n").done()[0] == ""


# LaTeX

TEX = r"""% a comment
\documentclass[12pt]{article}
\usepackage[utf8]{inputenc} % more
\newcommand{\keeper}[1]{secret #1}
\title{The \emph{Tower}}
\author{Hedvig Moll}
\begin{document}
\maketitle
\section{The bell\label{sec:bell}}
It weighs 5\,\% of 3~tons % not this
and cost \$5 \& more --- ``so'' M\"uller, \'etude, Bj{\o}rn, na\"{\i}ve\footnote{In 1731.}.
See \cite{moll1731} and~\ref{sec:bell}, \href{http://x.y}{the page}, $a^2+b^2$.

\subsection*{Parts}
\begin{enumerate}
  \item First \begin{enumerate}\item inner\end{enumerate}
  \item Second \textbf{bold} text
\end{enumerate}
\begin{itemize}\item dot\item[Key] value\end{itemize}
\begin{tabular}{|l|r|}
\hline
Port & Ship \\ \hline
Varna & \multicolumn{2}{c}{Aurora} \\
\end{tabular}
\includegraphics[width=3cm]{bell.png}
\input{chapter2}
\begin{verbatim}
x = 1 % kept
\end{verbatim}
\[ E = mc^2 \]
\end{document}
not read
"""


def test_latex_is_its_text_with_sections_numbers_and_rows(read):
    document = read(TEX, "t.tex")
    assert document.text == (
        "The Tower\n\nHedvig Moll\n\nThe bell\n\nIt weighs 5 % of 3 tons and cost $5 & more — “so” Müller, étude, "
        "Bjørn, naïve (In 1731.). See [moll1731] and [sec:bell], the page, $a^2+b^2$.\n\nParts\n\n"
        "1. First\n\n(a) inner\n\n2. Second bold text\n\n"
        "dot\nKey value\n\nPort\tShip\nVarna\tAurora\n\nx = 1 % kept\n\n\\[ E = mc^2 \\]"
    )
    assert [label for label, _ in parts(document, "heading")] == ["The Tower", "The bell", "Parts"]
    assert document.row.unread.split("\n") == ["the picture bell.png", "the included file chapter2"]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *"{}[]$%\\&~",
                "\\section{",
                "\\begin{itemize}",
                "\\end{document}",
                "\\item",
                "\\'",
                "\\def\\x",
                "word",
                "\n\n",
                "\\verb|",
                "\\footnote{",
            ]
        ),
        max_size=30,
    )
)
def test_no_latex_is_too_odd(pieces):
    latex.read("".join(pieces))


def test_deep_latex_is_read():
    assert "deep" in latex.read("\\footnote{" * 3000 + "deep").done()[0]


# All


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\vb\fc", "a\nb\nc"),
        ("a\x1fb\x1ec", "a b\nc"),
        ("a\x85b\u2028c\u2029d", "a\nb\nc\nd"),
        ("it\x92s \x80500", "it’s €500"),
        ("so\xadft zero\u200bwidth \ufeffx\u2060y", "soft zerowidth xy"),
        ("ภาษา\u200bไทย", "ภาษา\u200bไทย"),
        ("می\u200cخواهم क्\u200dष 👩\u200d🚀", "می\u200cخواهم क्\u200dष 👩\u200d🚀"),
        ("a\x00\x07b\x81c\ud800", "abc"),
    ],
)
def test_signs_that_part_words_part_them_and_signs_that_are_not_seen_are_not_there(text, shown):
    assert clean(text) == shown


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.html", "a.srt", "a.tex"])
def test_one_bad_byte_costs_one_letter_of_any_text_and_is_told(read, name):
    text = "Der Bürgermeister von Schönau heißt Jörg Müller und die Brücke ist fünf Meter lang."
    begin = {"a.html": "<html><p>", "a.srt": "1\n00:00:01,000 --> 00:00:02,000\n"}.get(name, "")
    data = f"{begin}{text}".encode().replace("fünf".encode(), b"f\xc3nf")
    document = read(data, name)
    assert document.text.strip() == text.replace("fünf", "f\ufffdnf")
    assert document.row.unread == "1 byte that fits no encoding"


def test_a_title_in_a_comment_of_latex_is_no_title(read):
    text = "% \\title{Old}\n\\title{New}\n\\begin{document}\nText.\n\\end{document}\n"
    assert read(text, "a.tex").text.split() == ["New", "Text."]
