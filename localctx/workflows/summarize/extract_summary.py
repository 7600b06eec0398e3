"""Extracts a summary, which consists of sentences of the document, in order and with their places."""

import time
from dataclasses import asdict
from typing import Any

from localctx.document_parts import Citation
from localctx.library.citations.summary_sentences import extract
from localctx.library.outline import outline
from localctx.library.search.sections import section_at
from localctx.store.documents import StoredDocument, labels, part_labels
from localctx.workflows.summary_method import extract_words
from localctx.workflows.summary_task import SummaryTask
from localctx.workflows.text_generator import zero_token_counts

EXTRACTED = "sentences of the document"
"""The name in results, in place of a model's name, of summaries that are extracted."""


def extract_summary(document: StoredDocument, task: SummaryTask) -> dict[str, Any]:
    """Returns an extracted summary of the length and style of ``task``, in the JSON form of
    ``SummarizeWorkflow.summarize``. Every sentence is cited.
    """
    start = time.perf_counter()
    (row, text, spans), before = document, "- " if task.style == "bullets" else ""
    page, heading = part_labels(spans), labels(spans, "heading")
    summary, citations = "", list[dict[str, Any]]()
    for start, end in extract(text, extract_words(task.length), outline(text, spans)):
        summary += ("\n" if before else " ") * bool(summary) + before + " ".join(text[start:end].split())
        cited = Citation(row.id, row.name, page(start), heading(start), start, end, text[start:end], "passage", 1.0)
        citations.append({**asdict(cited), "at": len(summary)})
    section = {**asdict(section_at(spans, 0, len(text))), "summary": summary}
    return {
        "summary": summary,
        "answers": [],
        "sections": [section],
        "citations": citations,
        "mode": "extract",
        "model": EXTRACTED,
        "tokens": dict(zero_token_counts()),
        "seconds": round(time.perf_counter() - start, 4),
    }
