"""Files of text, the web, mail and books made of a report: by Python's own libraries."""

import csv
import io
import json
import mailbox
import tempfile
import zipfile
from collections.abc import Iterator
from email.message import EmailMessage
from html import escape
from pathlib import Path

from known_words.source import Known, Made, Place, Section, Source, headings, report, words

_DATE = "Mon, 04 May 2026 10:00:00 +0200"
_CONTAINER = (
    '<?xml version="1.0"?><container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
_STYLE = (
    "body { font-family: 'DejaVu Sans', 'Noto Sans CJK TC', sans-serif } h2.later { break-before: page }"
    " .columns { columns: 2 } td, th { border: 1px solid black; padding: 2px 8px }"
)
_PREAMBLE = "\\documentclass{article}\n\\usepackage{polyglossia} % five scripts\n"


def make(source: Source) -> Iterator[Made]:
    """The report as text, Markdown, web page, table, notebook, subtitles, LaTeX, book, message and mailbox."""
    name, whole = source.script, report(source, "heading", headings(source), note=False)
    noted = report(source, "heading", headings(source))
    unnamed = Known(whole.body, [], whole.free)
    table = in_rows(source)
    yield Made(f"{name}.txt", "old charset", text(source).encode(source.charset), unnamed)
    yield Made(f"{name}.txt", "utf-16", text(source).encode("utf-16"), unnamed)
    yield Made(f"{name}.md", "text", markdown(source).encode(), noted_at_end(source))
    yield Made(f"{name}.html", "old charset", html(source, source.charset), whole)
    yield Made(f"{name}.csv", "csv, old charset", table_text(source, ";").encode(source.charset), table)
    yield Made(f"{name}.tsv", "csv", table_text(source, "\t").encode(), table)
    yield Made(f"{name}.ipynb", "json", notebook(source), in_cells(source))
    yield Made(f"{name}.srt", "text", subtitles(source, srt=True).encode(), at_times(source))
    yield Made(f"{name}.vtt", "text", subtitles(source, srt=False).encode(), at_times(source))
    yield Made(f"{name}.tex", "text", latex(source).encode(), noted)
    yield Made(f"{name}.epub", "zipfile", epub(source), whole)
    yield Made(f"{name}.eml", "email, old charset", message(source), in_mail(source))
    yield Made(f"{name}.mbox", "mailbox", mail_box(source), in_mails(source))


# --- Text


def text(source: Source) -> str:
    """Each text as a paragraph, each row of the table as a line."""
    blocks = [source.title]
    for section in source.sections:
        blocks += [section.heading, *section.paragraphs, *section.bullets, *numbered(section)]
        blocks += ["\n".join("\t".join(row) for row in (section.header, *section.rows))] if section.header else []
    return "\n\n".join(blocks) + "\n"


def numbered(section: Section) -> list[str]:
    """Its steps with their numbers."""
    return [f"{number}. {step}" for number, step in enumerate(section.steps, 1)]


def markdown(source: Source) -> str:
    """Headings, lists, a table and a footnote, which is told at the end."""
    return f"# {source.title}\n\n{''.join(map(_markdown, source.sections))}".replace(
        source.sections[0].paragraphs[0], f"{source.sections[0].paragraphs[0]}[^1]"
    ) + (f"[^1]: {source.note}\n")


def _markdown(section: Section) -> str:
    lines = [f"## {section.heading}", *section.paragraphs]
    lines += ["\n".join(f"- {bullet}" for bullet in section.bullets), "\n".join(numbered(section))]
    if section.header:
        rows = [section.header, ["---"] * len(section.header), *section.rows]
        lines.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "".join(f"{line}\n\n" for line in lines if line)


def noted_at_end(source: Source) -> Known:
    """What the Markdown says: its note stands in the last section."""
    known = report(source, "heading", headings(source))
    note = Place(source.planted[4], "heading", source.sections[3].heading)
    return Known(known.body, known.notes, known.free, (*known.places[:4], note))


def latex(source: Source) -> str:
    """Sections, lists, a table, a footnote where it is called, and a comment that is not read."""
    made = [_PREAMBLE, f"\\title{{{_tex(source.title)}}}\n\\begin{{document}}\n\\maketitle\n"]
    for number, section in enumerate(source.sections):
        made.append(f"\\section{{{_tex(section.heading)}}} % not this\n")
        paragraphs = list(map(_tex, section.paragraphs))
        paragraphs[0] += f"\\footnote{{{_tex(source.note)}}}" if number == 0 else ""
        made.append("\n\n".join(paragraphs) + "\n")
        for kind, texts in (("itemize", section.bullets), ("enumerate", section.steps)):
            items = "".join(f"\\item {_tex(one)}\n" for one in texts)
            made.append(f"\\begin{{{kind}}}\n{items}\\end{{{kind}}}\n" if texts else "")
        if section.header:
            rows = "".join(f"{' & '.join(map(_tex, row))} \\\\\n" for row in (section.header, *section.rows))
            made.append(f"\\begin{{tabular}}{{llrr}}\n\\hline\n{rows}\\end{{tabular}}\n")
    return "".join(made) + "\\end{document}\n"


def _tex(words: str) -> str:
    return words.replace("&", r"\&").replace("€", r"\euro{}")


# --- Tables, notebooks, subtitles


def table_text(source: Source, separator: str) -> str:
    """The table in lines."""
    csv.writer(made := io.StringIO(), delimiter=separator).writerows((source.table.header, *source.table.rows))
    return made.getvalue()


def in_rows(source: Source) -> Known:
    """What the table says; the planted word is in its second row."""
    body = words(*(cell for row in (source.table.header, *source.table.rows) for cell in row))
    return Known(body, [], frozenset(words(*source.table.header)), (Place(source.planted[2], "row", "2"),))


def notebook(source: Source) -> bytes:
    """A cell of the title, one of each section, and one of code that has printed a line."""
    texts = [f"# {source.title}", *map(_markdown, source.sections)]
    cells = [{"cell_type": "markdown", "metadata": {}, "source": one.splitlines(keepends=True)} for one in texts]
    printed = {"output_type": "stream", "name": "stdout", "text": [source.note + "\n"]}
    code = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [printed], "source": ["print(note)"]}
    made = {"cells": [*cells, code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, ensure_ascii=False).encode()


def in_cells(source: Source) -> Known:
    """What the notebook says: a section is a cell, and so are the code and what it printed."""
    known = report(source, "cell", [str(number) for number in range(2, 6)], free="Output")
    places = (*known.places[:4], Place(source.planted[4], "cell", "6"))
    return Known([*known.body, "print", "note", *words(source.note)], [], known.free, places)


def _cues(source: Source) -> list[str]:
    return [source.title, *(one for section in source.sections for one in section.texts())]


def subtitles(source: Source, srt: bool) -> str:
    """Every text for ten seconds."""
    cues = []
    for number, one in enumerate(_cues(source)):
        start, end = (f"00:{at // 60:02}:{at % 60:02}{',' if srt else '.'}000" for at in (number * 10, number * 10 + 9))
        cues.append((f"{number + 1}\n" if srt else "") + f"{start} --> {end}\n{one}\n")
    return ("" if srt else "WEBVTT\n\n") + "\n".join(cues)


def at_times(source: Source) -> Known:
    """What the subtitles say, and when."""
    places = []
    for planted in source.planted[:4]:
        at = 10 * next(number for number, cue in enumerate(_cues(source)) if planted in cue)
        places.append(Place(planted, "subtitle", f"00:{at // 60:02}:{at % 60:02}"))
    return Known(words(*_cues(source)), [], frozenset(), tuple(places))


# --- Web pages and books


def html(source: Source, charset: str = "utf-8", way: str = "") -> bytes:
    """A page with headings, lists, a table and two columns; a style and a script say nothing."""
    body = "".join(_html(section, number > 0) for number, section in enumerate(source.sections))
    direction = ' dir="rtl"' if source.rtl else ""
    head = f'<meta charset="{charset}"><title>{escape(source.title)}</title><style>{_STYLE}{way}</style>'
    script = "<script>document.title = 'not this'</script>"
    page = f"<!doctype html><html{direction}><head>{head}{script}</head><body><h1>{escape(source.title)}</h1>{body}"
    return f"{page}</body></html>".encode(charset)


def _html(section: Section, later: bool) -> str:
    made = [f"<h2{' class=later' if later else ''}>{escape(section.heading)}</h2>"]
    paragraphs = "".join(f"<p>{escape(one)}</p>" for one in section.paragraphs)
    made.append(f'<div class="columns">{paragraphs}</div>' if len(section.paragraphs) > 2 else paragraphs)
    for kind, texts in (("ul", section.bullets), ("ol", section.steps)):
        made.append(f"<{kind}>{''.join(f'<li>{escape(one)}</li>' for one in texts)}</{kind}>" if texts else "")
    if section.header:
        rows = "".join(f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in row)}</tr>" for row in section.rows)
        head = "".join(f"<th>{escape(one)}</th>" for one in section.header)
        made.append(f"<table><tr>{head}</tr>{rows}</table>")
    return "\n".join(made)


def epub(source: Source) -> bytes:
    """A book with a chapter of the title and one of each section, and a table of contents that is not read."""
    pages = [f"<h1>{escape(source.title)}</h1>", *(_html(one, later=False) for one in source.sections)]
    xmlns = 'xmlns="http://www.w3.org/1999/xhtml"'
    chapters = {
        f"{i}.xhtml": f"<html {xmlns}><head><title/></head><body>{one}</body></html>" for i, one in enumerate(pages)
    }
    items = "".join(f'<item id="c{name[0]}" href="{name}" media-type="application/xhtml+xml"/>' for name in chapters)
    spine = "".join(f'<itemref idref="c{name[0]}"/>' for name in chapters)
    opf = f'<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/><manifest>{items}</manifest>'
    members = {"mimetype": "application/epub+zip", "META-INF/container.xml": _CONTAINER}
    members |= {"OEBPS/book.opf": f"{opf}<spine>{spine}</spine></package>"}
    with zipfile.ZipFile(buffer := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (members | {f"OEBPS/{name}": page for name, page in chapters.items()}).items():
            archive.writestr(name, content)
    return buffer.getvalue()


# --- Mail


def _message(subject: str, lines: list[str], charset: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, "ann@example.org", "bob@example.org"
    made["Date"] = _DATE
    made.set_content("\n\n".join(lines) + "\n", charset=charset)
    return made


def message(source: Source) -> bytes:
    """A message of all sections but the table, which is attached as CSV."""
    lines = [one for section in source.sections if not section.header for one in section.texts()]
    made = _message(source.title, lines, source.charset)
    made.add_attachment(table_text(source, ",").encode(), maintype="text", subtype="csv", filename="table.csv")
    return made.as_bytes()


_MAIL_WORDS = (
    "Subject From To Date ann bob example org Mon 04 May 2026 05 10 08 00 02 0200 Attachment table csv text B UTC"
)


def in_mail(source: Source) -> Known:
    """What the message says, and what is attached."""
    lines = [one for section in source.sections if not section.header for one in section.texts()]
    table = [cell for row in (source.table.header, *source.table.rows) for cell in row]
    size = len(table_text(source, ",").encode())
    free = frozenset(words(_MAIL_WORDS, str(size), *source.table.header))
    places = tuple(Place(source.planted[i], "heading", source.title) for i in (0, 1, 3))
    return Known(
        words(source.title, *lines, *table), [], free, (*places, Place(source.planted[2], "heading", "table.csv"))
    )


def mail_box(source: Source) -> bytes:
    """A message of each section."""
    with tempfile.TemporaryDirectory() as folder:
        box = mailbox.mbox(Path(folder) / "made.mbox")
        for section in source.sections:
            box.add(_message(section.heading, section.texts()[1:], "utf-8"))
        box.close()
        return (Path(folder) / "made.mbox").read_bytes()


def in_mails(source: Source) -> Known:
    """What the mailbox says, a message a section."""
    parts = tuple(Place(planted, "message", str(i)) for i, planted in enumerate(source.planted[:4], 1))
    body = words(*(one for section in source.sections for one in section.texts()))
    return Known(body, [], frozenset(words(_MAIL_WORDS)), parts)
