"""``table``: asks every document the same questions, and makes a table of the answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.batch.batch_command import BatchEnd, BatchOptions, batch_options, run_batch
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
from localctx.errors import UsageError

if TYPE_CHECKING:
    from localctx.batch.table.columns import TableColumn
    from localctx.batch.table.table_file import AnswerRow, AnswerTable
    from localctx.cli.terminal import Terminal

    Corrected = Mapping[str, Mapping[TableColumn, str]]  # values that a person set, by file name and column


@click.command(cls=SectionedCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--ask", "asked", multiple=True, metavar="COLUMN", help="A column, as below; may be repeated.")
@click.option("--fields", type=click.Path(path_type=Path), metavar="FILE", help="Columns in TOML, or a JSON schema.")
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="A .csv, .xlsx, .html or .jsonl file."
)
@option("--set", "corrected", multiple=True, metavar="FILE:COLUMN=VALUE", help="Correct a cell; it stays so.")
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
    """
    from localctx.batch.table.columns import load_columns, parse_column
    from localctx.batch.table.fill import questions_of
    from localctx.cli.terminal import Terminal

    columns = [*(load_columns(fields) if fields else ()), *map(parse_column, asked)]
    task = questions_of(columns)
    options, settings = BatchOptions.take(flags), task.adapted(settings_from(flags))
    terminal = Terminal(as_json, quiet)
    corrections = _parse_corrections(corrected, columns)
    rows = _rows(columns, out, corrections)
    end = run_batch(paths, task, settings, lambda session: [rows], options, terminal)
    for outcome in end.report.outcomes:
        if outcome.status == "failed":
            rows.fail(outcome.job, outcome.why)
    _finish(rows, end, out, as_json, terminal)
    end.exit()
    _refuse_unused(corrections, end)


def _rows(columns: "Sequence[TableColumn]", out: Path | None, given: "Corrected") -> "AnswerTable":
    """Returns the rows to fill, with the corrections ``given`` now, which are stored, and those of earlier runs."""
    from localctx.batch.table.corrections import correct, corrections_of
    from localctx.batch.table.table_file import AnswerTable, TableFile

    def corrections(document: str, name: str) -> Mapping[str, str]:
        with open_store() as store:
            for column, value in given.get(name, {}).items():
                correct(store, document, column, value)
            return corrections_of(store, document)

    return TableFile(out, columns, corrections) if out else AnswerTable(columns, corrections)


def _parse_corrections(corrected: Sequence[str], columns: "Sequence[TableColumn]") -> "Corrected":
    """Returns the corrected values by the name of the file and the column. Raises UsageError."""
    found = dict[str, dict["TableColumn", str]]()
    for one in corrected:
        file, named, rest = one.rpartition(":")
        column, is_value, value = rest.partition("=")
        named_column = next((c for c in columns if c.name.casefold() == column.strip().casefold()), None)
        if not (named and is_value and named_column):
            raise UsageError(f"{one!r} corrects no cell", "say FILE:COLUMN=VALUE, with a column of the table")
        found.setdefault(Path(file.strip()).name, {})[named_column] = value.strip()
    return found


def _refuse_unused(corrections: "Corrected", end: BatchEnd) -> None:
    """Raise UsageError for a correction of a file that is none of the documents."""
    names = {Path(job.path).name for job in end.jobs}
    if unknown := next((name for name in corrections if name not in names), None):
        raise UsageError(f"--set names {unknown}, which is not one of the documents", "name the file as the table does")


def _finish(rows: "AnswerTable", end: BatchEnd, out: Path | None, as_json: bool, terminal: "Terminal") -> None:
    """Write or print the table, and say how many cells it has."""
    from localctx.batch.table.table_file import TableFile, csv_text
    from localctx.cli.terminal import print_json

    made = rows.in_order(end.jobs)
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
