"""``uninstall``: removes localctx from this machine, with or without its data."""

from typing import TYPE_CHECKING

import click

from localctx.cli.common import as_json_option, settings_from
from localctx.cli.printing import print_error, print_line
from localctx.errors import UserError, format_bytes

if TYPE_CHECKING:
    from localctx.settings import Settings
    from localctx.uninstall import KeptData


@click.command()
@click.option("--data", is_flag=True, help="Delete documents, chats, pages, settings and models, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option
def uninstall(data: bool, yes: bool, as_json: bool) -> None:
    """Remove the menu entry and, with --data, all data; say how to remove the program.

    The sizes are shown before anything is deleted. Without --data all documents, chats and models stay, for a later
    installation.

    \b
    localctx uninstall
    localctx uninstall --data --yes
    """
    from localctx.cli.terminal import print_json
    from localctx.uninstall import delete_data, kept_data, removing_command

    settings = settings_from({})
    kept = kept_data(settings)
    _show(kept, data)
    if data:
        _refuse_while_used(settings)
    if not yes:
        click.confirm("Delete these, for good?" if data else "Remove the menu entry?", abort=True, err=True)
    removed = [str(file) for file in _remove_entry()]
    if data:
        delete_data(kept)
    report = {"home": str(kept.home), "bytes": kept.nbytes, "data": "deleted" if data else "kept", "entry": removed}
    if as_json:
        print_json({**report, "program": removing_command()})
    else:
        print_line(
            f"{format_bytes(kept.nbytes)} of data {report['data']} ({kept.home}). The program: {removing_command()}"
        )


def _show(kept: "KeptData", data: bool) -> None:
    print_error(f"localctx: {kept.home} holds {format_bytes(kept.nbytes)}" + ("" if data else ", which stay"))
    for path, size in kept.own.items():
        print_error(f"  {format_bytes(size):>10}  {path.name}")
    if kept.others:
        names = ", ".join(path.name for path in kept.others[:5])
        print_error(f"localctx: {len(kept.others)} other files are not localctx's and stay: {names}")


def _refuse_while_used(settings: "Settings") -> None:
    """Raise UserError while a server or window is open, because it would write into deleted data."""
    from localctx.serving.open_servers import open_servers

    if open_servers(settings.home):
        raise UserError("a server or window of localctx is open", "close it, then uninstall")


def _remove_entry() -> list[object]:
    from localctx.ui.desktop_entry import remove_entry

    try:
        return list(remove_entry())
    except UserError:  # this system has no desktop menu
        return []
