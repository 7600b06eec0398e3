"""Writes a table as a self-contained web page, where a click on a cell shows the sentence with its value."""

from collections.abc import Sequence
from html import escape

from localctx.batch.table.cells import AnswerCell, AnswerRow
from localctx.batch.table.columns import TableColumn
from localctx.document_parts import tell_part

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Table of {count} documents</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0 0 9rem; color: #1c1c1e; background: #fff }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ border-bottom: 1px solid #e3e3e6; padding: .35rem .6rem; text-align: left; vertical-align: top }}
thead th {{ position: sticky; top: 0; background: #f6f6f8 }}
button {{ all: unset; cursor: pointer }}
button:hover, button[aria-pressed=true] {{ text-decoration: underline }}
button:focus-visible {{ outline: 2px solid #2563eb }}
.unsure {{ background: #fff4cc; color: #6b5900 }}
.number, .money {{ text-align: right; font-variant-numeric: tabular-nums }}
.number, .money, .date {{ white-space: nowrap }}
aside {{ position: fixed; inset: auto 0 0 0; padding: .8rem 1.2rem; background: #f6f6f8; border-top: 1px solid #d5d5da;
  max-height: 8rem; overflow: auto }}
q {{ border-left: 3px solid #2563eb; padding-left: .6rem; display: block; quotes: none }}
@media (prefers-color-scheme: dark) {{
  body {{ color: #e8e8ea; background: #18181b }} thead th, aside {{ background: #232327 }}
  th, td, aside {{ border-color: #3a3a40 }} .unsure {{ background: #4a3f14; color: #f5e6a8 }} }}
</style>
<table><thead><tr>{heads}</tr></thead><tbody>
{rows}
</tbody></table>
<aside aria-live="polite">Choose a cell to see the sentence that it comes from.</aside>
<script>
const panel = document.querySelector("aside")
document.addEventListener("click", event => {{
  const cell = event.target.closest("button[data-quote]")
  if (!cell) return
  for (const other of document.querySelectorAll("[aria-pressed=true]")) other.setAttribute("aria-pressed", "false")
  cell.setAttribute("aria-pressed", "true")
  const quote = document.createElement("q")
  quote.textContent = cell.dataset.quote
  panel.replaceChildren(cell.dataset.where, quote)
}})
</script>
</html>
"""


def table_page(columns: Sequence[TableColumn], rows: Sequence[AnswerRow]) -> str:
    """Returns the table as one HTML page."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("document", *(c.name for c in columns)))
    return _PAGE.format(count=len(rows), heads=heads, rows="\n".join(_row(columns, row) for row in rows))


def _row(columns: Sequence[TableColumn], row: AnswerRow) -> str:
    kinds = {column.name: column.kind for column in columns}
    if row.why:
        cells = f'<td class="unsure" colspan="{len(columns)}">{escape(row.why)}</td>'
    else:
        cells = "".join(_cell(row, cell, kinds[cell.column]) for cell in row.cells)
    return f'<tr><th scope="row" title="{escape(row.path)}">{escape(row.name)}</th>{cells}</tr>'


def _cell(row: AnswerRow, cell: AnswerCell, kind: str) -> str:
    if cell.state == "unsure":
        return f'<td class="unsure"><span title="No quotation has it">unsure: {escape(cell.printed)}</span></td>'
    if not cell.quote:
        return f'<td class="{kind}">{escape(cell.shown)}</td>'
    where = ", ".join(filter(None, (row.name, tell_part(cell.page) if cell.page else "")))
    button = f'<button data-where="{escape(where)}" data-quote="{escape(cell.quote)}">{escape(cell.shown)}</button>'
    return f'<td class="{kind}">{button}</td>'
