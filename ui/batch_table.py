"""Results: a batch as HTML: how far it is, a table of its documents, and what was made of one of them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from localctx.ui.batch_runs import OVER, BatchItem, BatchRuns
from localctx.ui.render import escape, note, sources

if TYPE_CHECKING:  # torch, and seconds
    from localctx.batch.run_batch import Outcome

MOST = 300  # rows of the table; of more documents those with a word of the filter, and those near the work
_HEADS = ("Document", "State", "Tokens", "Seconds")
_COUNTED = ("done", "skipped", "failed", "in work")

TextOf = Callable[[str], str | None]
"""A document's text by id; None where it is gone."""


def progress(batches: BatchRuns) -> str:
    """How many documents are done, of all, and what stopped it."""
    items = batches.items
    if not items:
        return note("Choose documents and begin. What was done before is not done again.")
    counts = {state: sum(item.state == state for item in items) for state in _COUNTED}
    over = sum(counts[state] for state in OVER)
    said = [f"{over:,} of {len(items):,} documents"]
    said += [f"{n:,} {state}" for state, n in counts.items() if n]
    said += [f"about {_time(left)} left"] if (left := batches.seconds_left) is not None else []
    said += ["paused"] if not batches.running and over < len(items) else []
    bar = f'<progress max="{len(items)}" value="{over}" aria-label="documents"></progress>'
    stopped = note(batches.why, "error") if batches.why else ""
    return f'<div class="lc-status" role="status">{", ".join(said)}{bar}</div>{stopped}'


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# --- The documents


def table(items: Sequence[BatchItem], filtered: str) -> str:
    """A row for each document whose name or state has ``filtered`` in it; its name is a button that opens it."""
    word = filtered.strip().lower()
    found = [(i, item) for i, item in enumerate(items) if word in item.name.lower() or word in item.state]
    if not found:
        return note(f"No name or state has {filtered.strip()!r} in it.") if items else ""
    rows = _near_the_work(found)
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    body = "".join(_row(i, item) for i, item in rows)
    more = note(f"{len(found) - len(rows):,} more; find them by name or state") if len(rows) < len(found) else ""
    return f'<table class="lc-table"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}'


def _near_the_work(found: list[tuple[int, BatchItem]]) -> list[tuple[int, BatchItem]]:
    over = sum(item.state in OVER for _, item in found)
    start = max(0, min(over - MOST // 2, len(found) - MOST))
    return found[start : start + MOST]


def _row(place: int, item: BatchItem) -> str:
    figures = (f"{item.tokens:,}" if item.tokens else "", f"{item.seconds:.1f}" if item.seconds >= 0.05 else "")
    cells = "".join(f'<td data-of="{head}">{cell}</td>' for head, cell in zip(_HEADS[2:], figures, strict=True))
    state = f"<b>{item.state}</b> <span>{escape(item.told)}</span>"
    name = f'<button type="button" class="lc-open" data-row="{place}">{escape(item.name)}</button>'
    kind = item.state.replace(" ", "-")
    return f'<tr class="lc-{kind}"><th scope="row">{name}</th><td class="lc-state">{state}</td>{cells}</tr>'


# --- What was made of one


def result(item: BatchItem, text_of: TextOf) -> str:
    """The summary or the answers of a document, with what they stand on; how far it is where there is none."""
    name, outcome = escape(item.name), item.outcome
    if not outcome or not outcome.entry:
        said = ", ".join(filter(None, (item.state, item.told)))
        return f"<h3>{name}</h3>{note(said, 'error' if item.state == 'failed' else 'note')}"
    entry = outcome.entry
    blocks = [_answer(a, text_of) for a in entry["answers"]] or [_summary(entry, text_of)]
    return f'<article class="lc-result"><h3>{name}</h3>{"".join(blocks)}{_cost(outcome)}</article>'


def _summary(entry: Any, text_of: TextOf) -> str:
    said, start = "", 0
    for number, citation in enumerate(entry["citations"], 1):
        said += f"{escape(entry['summary'][start : citation['at']])}<sup>{number}</sup>"
        start = citation["at"]
    said += escape(entry["summary"][start:])
    return f'<p class="lc-said">{said}</p>{sources(entry["citations"], text_of)}{_sections(entry["sections"])}'


def _sections(sections: Sequence[dict[str, Any]]) -> str:
    if len(sections) < 2:
        return ""
    lines = "".join(f"<li><b>{escape(_where(s))}</b> {escape(s['summary'])}</li>" for s in sections)
    return f'<details class="lc-hit"><summary>{len(sections):,} sections</summary><ol>{lines}</ol></details>'


def _where(section: dict[str, Any]) -> str:
    pages, heading = section["pages"], section["heading"]
    where = f"page {pages}" if pages else f"characters {section['start']:,} to {section['end']:,}"
    return ", ".join(filter(None, [heading and " ".join(heading.split()), where]))


def _answer(a: dict[str, Any], text_of: TextOf) -> str:
    said = escape(a["answer"] or a["why"])
    return f'<h4>{escape(a["question"])}</h4><p class="lc-said">{said}</p>{sources(a["citations"], text_of)}'


def _cost(outcome: "Outcome") -> str:
    t, model = outcome.entry["tokens"], outcome.entry["model"]
    read = f"{t['prompt']:,} tokens read ({t['reused']:,} reused), {t['generated']:,} written"
    how = "done before" if outcome.status == "skipped" else f"{outcome.seconds:.1f} s"
    why = note(outcome.why, "error") if outcome.why else ""
    return f'{why}<small class="lc-cost">{escape(f"{read}, {how}, by {model}")}</small>'
