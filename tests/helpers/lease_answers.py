"""Answers about the rent of leases, made from their texts without a model."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localctx.batch.table.columns import TableColumn, parse_column
from localctx.workflows.summarize.summarize import SummarizeWorkflow

RENT = "rent (money): How much is the rent?"
COLUMNS: tuple[TableColumn, ...] = (parse_column(RENT),)


def write_lease(folder: Path, name: str, rent: str) -> Path:
    """Write a lease, in place of an earlier one of the name."""
    path = folder / name
    path.write_text(f"This is the lease of {path.stem}. The rent is {rent} a month.\n")
    return path


def answer_about_rents(patch: pytest.MonkeyPatch, before: Callable[[str], object] = lambda name: None) -> list[str]:
    """Have documents answered from their texts. Returns the names of the documents that are asked, as they are.

    ``before`` is called with the name of each before it is answered.
    """
    asked = list[str]()

    def summarize(workflow: Any, document: Any, task: Any, persist: bool) -> Iterator[Any]:
        asked.append(document.name)
        before(document.name)
        yield from ()
        return {"summary": None, "answers": [_answer(document, q) for q in task.questions], "sections": []} | {
            "citations": [],
            "mode": "questions",
            "model": "m",
            "tokens": {"prompt": 1, "reused": 0, "prefilled": 1, "generated": 1},
            "seconds": 0.1,
        }

    patch.setattr(SummarizeWorkflow, "summarize", summarize)
    return asked


def _answer(document: Any, question: str) -> dict[str, Any]:
    found = re.search(r"The rent is (.*?) a month", document.text)
    told = {"question": question, "answered": bool(found), "answer": found[1] if found else "", "confidence": 0.9}
    quoted = {"document": document.id, "name": document.name, "page": None, "heading": None, "weight": 1.0}
    quoted |= {"quote": found[0], "start": found.start(), "end": found.end(), "source": "quote"} if found else {}
    return told | {"citations": [quoted] if found else [], "sentences": []}
