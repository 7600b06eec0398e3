"""Renders a batch of summaries as HTML: the progress of the batch, and a card for each document."""

from collections.abc import Sequence
from typing import Any

from localctx.document_parts import tell_part
from localctx.ui.answers.answer_card import summary_body
from localctx.ui.answers.evidence import TextOf
from localctx.ui.render import bar, duration, escape, note
from localctx.ui.running.batch_item import FINISHED, STATES, BatchItem
from localctx.ui.running.batch_runs import BatchRuns
from localctx.ui.viewer.document_viewer import open_link

MAX_CARDS = 40  # of more cards, only those near the documents in progress are shown


def progress(batches: BatchRuns, news: int = 0) -> str:
    """Returns a progress bar with the number of finished documents and the time left; "" if there is nothing to show.

    ``news`` is the number of changes that the user has not seen. If an error stopped the work, it is shown below.
    """
    items = batches.items
    if not items and not batches.kept:
        return ""
    finished, failed = (sum(item.state in states for item in items) for states in (FINISHED, ("failed",)))
    parts = [f"{finished:,} of {len(items):,} documents done"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [f"about {duration(left)} left"] if (left := batches.seconds_left) is not None else []
    parts += ["paused"] if batches.paused else []
    parts += [f"kept current with {escape(batches.kept)}"] if batches.kept else []
    shown = (
        bar(finished - failed, len(items), "documents", "failing" if failed else "") if finished < len(items) else ""
    )
    new = f' <b class="lc-sign">{news:,} new</b>' if news else ""
    stopped = note(batches.why, "error") if batches.why else ""
    return f'<div class="lc-status" role="status">{", ".join(parts)}{new}{shown}</div>{stopped}'


def cards(items: Sequence[BatchItem], text_of: TextOf) -> str:
    """Returns a card for each document: the summary with its sources, or the state of the document."""
    finished = sum(item.state in FINISHED for item in items)
    first = max(0, min(finished - MAX_CARDS // 2, len(items) - MAX_CARDS))
    shown = items[first : first + MAX_CARDS]
    more = f"{len(items) - len(shown):,} more documents are not shown here; “Export all” has their summaries."
    return "".join(_card(item, text_of) for item in shown) + (note(more) if len(shown) < len(items) else "")


def _card(item: BatchItem, text_of: TextOf) -> str:
    entry, why = item.entry, item.detail or STATES.get(item.state, "")
    if item.state not in FINISHED or not entry:
        body = note(why, "error" if item.state == "failed" else "note")
    else:
        body = _summary(entry, text_of)
        body += note(item.detail, "error") if item.detail and item.state == "failed" else ""
    return f'<article class="lc-card"><h3>{open_link(item.job.source, item.name)}</h3>{body}</article>'


def _summary(entry: Any, text_of: TextOf) -> str:
    said = summary_body(entry["summary"], entry["citations"], text_of)
    return f'<div class="lc-answer">{said}</div>{_sections(entry["sections"])}'


def _sections(sections: Sequence[dict[str, Any]]) -> str:
    if len(sections) < 2:
        return ""
    lines = "".join(f"<li><b>{escape(_where(s))}</b> {escape(s['summary'])}</li>" for s in sections)
    return f"<details><summary>{len(sections):,} sections</summary><ol>{lines}</ol></details>"


def _where(section: dict[str, Any]) -> str:
    pages, heading = section["pages"], section["heading"]
    where = tell_part(pages) if pages else f"characters {section['start']:,} to {section['end']:,}"
    return ", ".join(filter(None, [heading and " ".join(heading.split()), where]))
