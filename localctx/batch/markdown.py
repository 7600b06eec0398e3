"""Renders results as Markdown, with or without a template. Text from documents and models is escaped."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

from localctx.document_parts import tell_part
from localctx.errors import UsageError
from localctx.library.citations.sentence_sources import AnswerSentence, checked_summary, numbered_sources
from localctx.store.transcript import one_line, reference
from localctx.workflows.summary_task import digest

_MARKUP = re.compile(r"([\\`\[\]<>&#|~])")  # escapes links, images, HTML, headings and code, not lists and emphasis

FIELDS = {
    "name": "the document's name",
    "path": "its path",
    "document": "its id, a hash of its text",
    "model": "the model that summarized it",
    "summary": "the summary, or the questions and answers, with the numbers of the sources",
    "sections": "a list of the sections with their summaries",
    "sources": "the sources: quotes that support the summary, with page or heading, as footnotes",
}


class SummaryTemplate:
    """Renders results as Markdown, with a ``template`` or, if it is None, in the default layout. A template has
    placeholders: ``$summary`` or another of FIELDS.

    Values are substituted once, so the text of a document may contain ``$summary``. Raises UsageError if the template
    cannot be read, or has an unknown placeholder.
    """

    def __init__(self, template: Path | None = None) -> None:
        text = _read(template) if template else ""
        self._template = Template(text) if text else None
        self.form = digest([text])
        if self._template and not self._template.is_valid():
            raise UsageError(f"{template} has a $ without a field name", "write $$ for a dollar sign")
        if self._template and (unknown := set(self._template.get_identifiers()) - FIELDS.keys()):
            remedy = f"use: {', '.join(f'${name}' for name in FIELDS)}"
            raise UsageError(f"{template} has the unknown field ${min(unknown)}", remedy)

    def render(self, entry: Mapping[str, Any]) -> str:
        """Return a result as a Markdown page."""
        if self._template:
            return self._template.substitute(fields(entry))
        f = fields(entry)
        blocks = [f"# {f['name']}", f["summary"], f["sections"] and f"## Sections\n\n{f['sections']}", f["sources"]]
        return "\n\n".join([*filter(None, blocks), f"---\n{f['path']}, by {f['model']}"]) + "\n"


def fields(entry: Mapping[str, Any]) -> dict[str, str]:
    """Returns the values of all placeholders (FIELDS) for a result, as Markdown."""
    plain = {name: one_line(entry[name]) for name in ("name", "path", "document", "model")}
    if entry["answers"]:
        text, sources = _answers(entry["answers"])
    else:
        checked = checked_summary(entry["summary"], entry["citations"])
        text, sources = _with_numbers(entry["summary"], checked), list(_footnotes(entry["citations"]))
    sections = entry["sections"] if len(entry["sections"]) > 1 else []
    return {**plain, "summary": text, "sections": "\n".join(map(_section, sections)), "sources": "\n".join(sources)}


def _answers(answers: list[dict[str, Any]]) -> tuple[str, list[str]]:
    blocks, sources = list[str](), list[str]()
    for a in answers:
        checked = [AnswerSentence.from_json(sentence) for sentence in a.get("sentences", ())]
        if cited := [asdict(source) for source in numbered_sources(checked)]:
            said = _with_numbers(a["answer"], checked, len(sources))
        else:
            cited = a["citations"]
            marks = "".join(f"[^{len(sources) + 1 + i}]" for i in range(len(cited)))
            said = _prose(a["answer"] or a["why"]) + marks
        blocks.append(f"## {one_line(a['question'])}\n\n{said}")
        sources += _footnotes(cited, len(sources))
    return "\n\n".join(blocks), sources


def _with_numbers(text: str, checked: Sequence[AnswerSentence], before: int = 0) -> str:
    """Return a text with a footnote mark after each sentence that a passage supports. ``before`` is the number of
    footnotes that precede this text.
    """
    marked, start = "", 0
    for sentence in checked:
        mark = f"[^{before + sentence.number}]" if sentence.number else ""
        marked += _prose(text[start : sentence.end]) + mark
        start = sentence.end
    return marked + _prose(text[start:])


def _footnotes(citations: list[dict[str, Any]], before: int = 0) -> Iterator[str]:
    for number, citation in enumerate(citations, before + 1):
        yield f"[^{number}]: {reference(citation)}"


def _section(section: dict[str, Any]) -> str:
    pages, heading = section["pages"], section["heading"]
    where = one_line(tell_part(pages)) if pages else f"characters {section['start']:,} to {section['end']:,}"
    named = f"{one_line(heading)}, {where}" if heading else where
    return f"- **{named}**: {' '.join(_prose(section['summary']).split())}"


def _prose(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as e:
        raise UsageError(f"{file} cannot be read ({e})", "name a text file with --template") from e
