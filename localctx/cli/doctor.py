"""``doctor``: checks the installation, the model and the store."""

import sys
from typing import Any

import click

from localctx.cli.common import as_json_option, settings_from, with_launcher
from localctx.cli.printing import print_line


@click.command()
@as_json_option
def doctor(as_json: bool) -> None:
    """Show versions, memory and settings, check model and store for damage, and recommend a model.

    \b
    localctx doctor --json
    """
    from localctx.cli.terminal import print_json
    from localctx.doctor import examine

    report = examine(settings_from({}))
    if as_json:
        print_json(report)
    else:
        _print_tree({**report, "advice": with_launcher(report["advice"].get("line", "none"))})
    if report["problems"]:
        sys.exit(1)


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
