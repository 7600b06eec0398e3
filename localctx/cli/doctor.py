"""``doctor``: checks the installation, the model and the store."""

import sys
from pathlib import Path
from typing import Any

import click

from localctx.cli.common import as_json_option, settings_from, with_launcher
from localctx.cli.printing import print_line, print_text


@click.command()
@click.option("--report", "file", metavar="FILE", help="Write a text for a bug report: no document's text or name.")
@click.option("--licences", is_flag=True, help="List all that is installed with its licence; --json: a CycloneDX SBOM.")
@as_json_option
def doctor(file: str | None, licences: bool, as_json: bool) -> None:
    """Show versions, memory and settings, check model and store for damage, and recommend a model.

    \b
    localctx doctor --json
    localctx doctor --report bug.txt
    localctx doctor --licences
    """
    from localctx.cli.terminal import print_json
    from localctx.doctor import bug_report, examine

    if licences:
        _print_licences(as_json)
        return
    if file:
        Path(file).write_text(bug_report(settings_from({})) + "\n", encoding="utf-8")
        print_line(f"wrote {file}: read it before you send it")
        return
    report = examine(settings_from({}))
    if as_json:
        print_json(report)
    else:
        _print_tree({**report, "advice": with_launcher(report["advice"].get("line", "none"))})
    if report["problems"]:
        sys.exit(1)


def _print_licences(as_json: bool) -> None:
    from localctx.cli.terminal import print_json, table
    from localctx.licences import NOT_TOLD, bill_of_materials, list_components

    parts = list_components(settings_from({}))
    if as_json:
        print_json(bill_of_materials(parts))
        return
    rows = [{"NAME": p.name, "VERSION": p.version, "LICENCE": p.licence, "HOME": p.home or p.kind} for p in parts]
    print_text(table(rows), end="\n")
    print_line(f"{len(parts):,} parts; of {sum(p.licence == NOT_TOLD for p in parts):,} the licence is {NOT_TOLD}")


def _print_tree(value: dict[str, Any], indent: str = "") -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            print_line(f"{indent}{key}:")
            _print_tree(item, indent + "  ")
        elif isinstance(item, list):
            print_line(f"{indent}{key}: {'none' if not item else ''}")
            for line in item:
                print_line(f"{indent}  {line if not isinstance(line, dict) else ', '.join(map(str, line.values()))}")
        else:
            print_line(f"{indent}{key}: {item:,}" if isinstance(item, int) else f"{indent}{key}: {item}")
