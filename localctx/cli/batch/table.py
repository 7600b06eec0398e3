"""``table``: asks every document the same questions, and makes a table of the answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.batch.batch_command import BatchEnd, BatchOptions, batch_options, open_batch, run_batch
from localctx.cli.batch.watch_table import check_watched, watch_table
from localctx.cli.common import (
    answer_options,
    as_json_option,
    model_options,
    ocr_option,
    open_store,
    quiet_option,
    settings_from,
)
from localctx.cli.printing import print_text
from localctx.cli.sections import SectionedCommand, option

if TYPE_CHECKING:
    from localctx.batch.table.columns import TableColumn
    from localctx.batch.table.table_file import AnswerRow, AnswerTable
    from localctx.cli.terminal import Terminal


@click.command(cls=SectionedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--ask", "asked", multiple=True, metavar="COLUMN", help="A column, as below; may be repeated.")
@click.option("--fields", type=click.Path(path_type=Path), metavar="FILE", help="Columns in TOML, or a JSON schema.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="A .csv, .xlsx, .html or .jsonl file."
)
@option("--set", "corrected", multiple=True, metavar="FILE:COLUMN=VALUE", help="Correct a cell; it stays so.")
@click.option("--watch", is_flag=True, help="Follow the folders, and keep the table current until Ctrl-C.")
@batch_options
@answer_options
@model_options
@ocr_option
@as_json_option
@quiet_option
def table(
    paths: tuple[str, ...],
    asked: tuple[str, ...],
    fields: Path | None,
    out: Path | None,
    corrected: tuple[str, ...],
    watch: bool,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Ask the documents in PATHs the same questions; a row for each document, a column for each question.

    A COLUMN is NAME, NAME (KIND) or NAME (KIND): QUESTION. The kinds are text, number, date, money, yes/no, list, and
    choice with its values. A cell is empty if no sentence of the document holds its value. Answers are stored, so
    another run asks only new documents and new columns.

    \b
    localctx table invoices/ --ask supplier --ask "total (money): What is the total amount?" -o invoices.xlsx
    localctx table leases/ --ask "pets (yes/no): May the tenant keep pets?" -o leases.html
    localctx table contracts/ --fields fields.toml --json
    localctx table leases/ --ask "rent (money)" --set "hart.pdf:rent=1,105" -o leases.csv
    localctx table leases/ --ask "rent (money)" -o leases.csv --watch
    """
    from localctx.batch.table.columns import load_columns, parse_column
    from localctx.batch.table.corrections import find_corrected, parse_correction, store_corrections
    from localctx.batch.table.fill import questions_of
    from localctx.cli.terminal import Terminal

    columns = [*(load_columns(fields) if fields else ()), *map(parse_column, asked)]
    task = questions_of(columns)
    options, settings = BatchOptions.take(flags), task.adapted(settings_from(flags))
    terminal = Terminal(as_json, quiet)
    corrections = [parse_correction(one, columns) for one in corrected]
    rows, outputs = _rows(columns, out), lambda session: [rows]
    if watch:
        file, opened = check_watched(paths, rows, options), open_batch(task, settings, outputs, options, terminal)
        watch_table(paths, file, corrections, opened, settings.home, as_json)
        return
    check_jobs = lambda jobs: find_corrected(corrections, paths, jobs)  # noqa: E731
    end = run_batch(paths, task, settings, outputs, options, terminal, check_jobs)
    rows.note_failures(end.report.outcomes)
    if corrections:
        with open_store() as store:
            store_corrections(store, check_jobs(end.jobs), rows.all())
    _finish(rows, end, out, as_json, terminal)
    end.exit()


def _rows(columns: "Sequence[TableColumn]", out: Path | None) -> "AnswerTable":
    """Returns an empty table with the stored corrections. Raises UsageError for a file that cannot be written."""
    from localctx.batch.table.corrections import all_corrections
    from localctx.batch.table.table_file import AnswerTable, TableFile

    def corrections() -> dict[str, dict[str, str]]:
        with open_store() as store:
            return all_corrections(store)

    return TableFile(out, columns, corrections) if out else AnswerTable(columns, corrections)


def _finish(rows: "AnswerTable", end: BatchEnd, out: Path | None, as_json: bool, terminal: "Terminal") -> None:
    """Write or print the table, and say how many cells it has."""
    from localctx.batch.table.table_file import TableFile, csv_text
    from localctx.cli.terminal import print_json

    made = rows.in_order(job.path for job in end.jobs)
    if isinstance(rows, TableFile):
        rows.save(made, complete=not (end.report.stopped or end.error))
    if as_json:
        columns = [column.to_json() for column in rows.columns]
        print_json({"columns": columns, "rows": [row.to_json() for row in made], "report": end.report.to_json()})
    elif not out:
        print_text(csv_text(rows.columns, made), end="")
    terminal.say(_counts(made, out))


def _counts(rows: "Sequence[AnswerRow]", out: Path | None) -> str:
    cells = [cell.state for row in rows for cell in row.cells]
    found, unsure = len(cells) - cells.count("missing") - cells.count("unsure"), cells.count("unsure")
    where = f" in {out}" if out else ""
    return f"{found:,} of {len(cells):,} cells filled, {unsure:,} unsure, {cells.count('missing'):,} not said{where}"
