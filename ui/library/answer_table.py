"""Renders the table of answers about library documents as HTML: a row for each document, a column for each question."""

from collections.abc import Mapping, Sequence

from localctx.batch.table.cells import AnswerCell, AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.batch.table.kept_table import news_line
from localctx.batch.table.row_changes import RowChange
from localctx.document_parts import tell_part
from localctx.ui.render import escape, opener
from localctx.ui.running.batch_item import STATES, BatchItem
from localctx.ui.viewer.document_viewer import open_link

MAX_NEWS = 10  # changes that are told; of more, only the number
MAX_ROWS = 300  # documents that are drawn; a table is drawn anew each second while it grows
_TABLE = """<div class="lc-answers" tabindex="0" role="region" aria-label="Table"><table class="lc-table">
<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>
<p class="lc-quiet">Click a value to see its sentence. Yellow: check this. Empty: not found.</p>"""


def table_html(columns: Sequence[TableColumn], items: Sequence[BatchItem], rows: Mapping[str, AnswerRow]) -> str:
    """Returns the table with these ``rows`` (by path). Documents that have not ended have a row with their state."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("Document", *(c.name for c in columns)))
    body = "".join(_row(columns, item, rows.get(item.job.path)) for item in items[:MAX_ROWS])
    more = (
        f'<p class="lc-quiet">And {left:,} more: “Export all” has them.</p>'
        if (left := len(items) - MAX_ROWS) > 0
        else ""
    )
    return _TABLE.format(heads=heads, body=body) + more


def news_html(changes: Sequence[RowChange], items: Sequence[BatchItem]) -> str:
    """Returns the changes of a table as a list, of which the first MAX_NEWS are shown; "" without changes."""
    names = {item.job.path: item.name for item in items}
    lines = [news_line(change, names) for change in changes[:MAX_NEWS]]
    lines += [f"and {more:,} more"] if (more := len(changes) - MAX_NEWS) > 0 else []
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines).replace(
        " -&gt; ", " → "
    )  # "->" would be broken in two on a phone
    return f'<div role="status"><ul class="lc-news" aria-label="New in the table">{listed}</ul></div>' if lines else ""


def _row(columns: Sequence[TableColumn], item: BatchItem, row: AnswerRow | None) -> str:
    head = f'<th scope="row">{open_link(item.job.source, item.name)}</th>'
    if not row or row.why:
        why = row.why if row else item.detail or STATES.get(item.state, "")  # "": it has just ended
        return f'<tr>{head}<td class="lc-quiet" colspan="{len(columns)}">{escape(why)}</td></tr>'
    kinds = {column.name: column.kind for column in columns}
    return f"<tr>{head}{''.join(_cell(row, cell, kinds[cell.column]) for cell in row.cells)}</tr>"


def _cell(row: AnswerRow, cell: AnswerCell, kind: str) -> str:
    css = " lc-figure" * (kind in ("number", "money")) + " lc-doubtful" * (cell.state == "unsure")
    return f'<td class="lc-value{css}" data-of="{escape(cell.column)}">{_value(row, cell)}</td>'


def _value(row: AnswerRow, cell: AnswerCell) -> str:
    if cell.state == "unsure":
        return f'<span title="No sentence of the document holds this">{escape(cell.printed)}?</span>'
    if not cell.quote:
        return escape(cell.shown)
    where = f"{tell_part(cell.page)}: " if cell.page else ""
    title = escape(where + " ".join(cell.quote.split()))
    opens = opener(row.document, row.name, cell.start, cell.end)
    return f'<button type="button" {opens} title="{title}">{escape(cell.shown)}</button>'
