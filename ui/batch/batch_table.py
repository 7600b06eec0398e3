"""Renders a batch as HTML: its progress, the table of its documents, and the result of one document."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from localctx.document_parts import tell_part
from localctx.library.citations.support import AnswerSentence, checked_summary
from localctx.ui.answers.answer_card import answer_body
from localctx.ui.answers.evidence import TextOf
from localctx.ui.everyday import words
from localctx.ui.render import bar, duration, escape, note
from localctx.ui.running.batch_runs import FINISHED, BatchItem, BatchRuns

if TYPE_CHECKING:  # importing torch takes seconds
    from localctx.batch.run_batch import Outcome

MAX_ROWS = 300  # rows of the table; beyond that, only documents near those in progress are shown
_HEADS = ("Document", "State", "Read", "Seconds")
_COUNTED_STATES = ("done", "skipped", "failed", "running")


def progress(batches: BatchRuns) -> str:
    """Returns a progress bar of the batch with the number of finished documents and the time left.

    If an error stopped the batch, it is shown below.
    """
    items = batches.items
    if not items:
        return note("Choose documents and press Start. What was done before is not done again.")
    counts = {state: sum(item.state == state for item in items) for state in _COUNTED_STATES}
    finished = sum(counts[state] for state in FINISHED)
    parts = [f"{finished:,} of {len(items):,} documents"]
    parts += [f"{n:,} {state}" for state, n in counts.items() if n]
    parts += [f"about {duration(left)} left"] if (left := batches.seconds_left) is not None else []
    parts += ["paused"] if not batches.running and finished < len(items) else []
    failed = counts["failed"]
    shown = bar(finished - failed, len(items), "documents", "failing" if failed else "")
    stopped = note(batches.why, "error") if batches.why else ""
    return f'<div class="lc-status" role="status">{", ".join(parts)}{shown}</div>{stopped}'


# --- The table


def table(items: Sequence[BatchItem], text: str) -> str:
    """Returns a table of the documents with ``text`` in their name or state. A name is a button for the result."""
    word = text.strip().lower()
    matching = [(i, item) for i, item in enumerate(items) if word in item.name.lower() or word in item.state]
    if not matching:
        return note(f"No name or state has “{text.strip()}” in it.") if items else ""
    rows = _around_progress(matching)
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    body = "".join(_row(i, item) for i, item in rows)
    more = note(f"{len(matching) - len(rows):,} more; find them by name or state") if len(rows) < len(matching) else ""
    return f'<table class="lc-table"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}'


def _around_progress(matching: list[tuple[int, BatchItem]]) -> list[tuple[int, BatchItem]]:
    finished = sum(item.state in FINISHED for _, item in matching)
    start = max(0, min(finished - MAX_ROWS // 2, len(matching) - MAX_ROWS))
    return matching[start : start + MAX_ROWS]


def _row(index: int, item: BatchItem) -> str:
    figures = (words(item.tokens) if item.tokens else "", f"{item.seconds:.1f}" if item.seconds >= 0.05 else "")
    cells = "".join(f'<td data-of="{head}">{cell}</td>' for head, cell in zip(_HEADS[2:], figures, strict=True))
    state = f"<b>{item.state}</b> <span>{escape(item.detail)}</span>"
    name = f'<button type="button" class="lc-open" data-row="{index}">{escape(item.name)}</button>'
    kind = item.state.replace(" ", "-")
    return f'<tr class="lc-{kind}"><th scope="row">{name}</th><td class="lc-state">{state}</td>{cells}</tr>'


# --- The result of a document


def result(item: BatchItem, text_of: TextOf) -> str:
    """Returns the summary or the answers of a document with their sources, or its state if it has no result."""
    name, outcome = escape(item.name), item.outcome
    if not outcome or not outcome.entry:
        text = ", ".join(filter(None, (item.state, item.detail)))
        return f"<h3>{name}</h3>{note(text, 'error' if item.state == 'failed' else 'note')}"
    entry = outcome.entry
    blocks = [_answer(a, text_of) for a in entry["answers"]] or [_summary(entry, text_of)]
    return f'<article class="lc-result"><h3>{name}</h3>{"".join(blocks)}{_cost(outcome)}</article>'


def _summary(entry: Any, text_of: TextOf) -> str:
    summary, checked = entry["summary"], checked_summary(entry["summary"], entry["citations"])
    return answer_body(summary, checked, (), text_of) + _sections(entry["sections"])


def _sections(sections: Sequence[dict[str, Any]]) -> str:
    if len(sections) < 2:
        return ""
    lines = "".join(f"<li><b>{escape(_where(s))}</b> {escape(s['summary'])}</li>" for s in sections)
    return f'<details class="lc-hit"><summary>{len(sections):,} sections</summary><ol>{lines}</ol></details>'


def _where(section: dict[str, Any]) -> str:
    pages, heading = section["pages"], section["heading"]
    where = tell_part(pages) if pages else f"characters {section['start']:,} to {section['end']:,}"
    return ", ".join(filter(None, [heading and " ".join(heading.split()), where]))


def _answer(a: dict[str, Any], text_of: TextOf) -> str:
    checked = [AnswerSentence.from_json(sentence) for sentence in a.get("sentences", ())]
    said = answer_body(a["answer"], checked, a["citations"], text_of) if a["answer"] else f"<p>{escape(a['why'])}</p>"
    return f"<h4>{escape(a['question'])}</h4>{said}"


def _cost(outcome: "Outcome") -> str:
    t, model = outcome.entry["tokens"], outcome.entry["model"]
    share = f" ({100 * t['reused'] / t['prompt']:.0f} % already read)" if t["prompt"] else ""
    read = f"{words(t['prompt'])} read{share}"
    how = "done before" if outcome.status == "skipped" else f"{outcome.seconds:.1f} s"
    why = note(outcome.why, "error") if outcome.why else ""
    return f'{why}<small class="lc-cost">{escape(f"{read}, {how}, by {model}")}</small>'
