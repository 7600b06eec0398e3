"""``desktop``: adds the window to the desktop's menu."""

import click

from localctx.cli.common import as_json_option
from localctx.cli.printing import print_text


@click.group()
def desktop() -> None:
    """Put the window into the desktop's menu, or take it out.

    \b
    localctx desktop install
    """


@desktop.command("install")
@as_json_option
def install(as_json: bool) -> None:
    """Write a menu entry and its icon into your own folders (Linux; the folders of XDG_DATA_HOME).

    \b
    localctx desktop install
    localctx desktop install --json
    """
    from localctx.cli.terminal import print_json
    from localctx.ui.desktop_entry import install_entry

    files = [str(file) for file in install_entry()]
    if as_json:
        print_json({"installed": files})
    else:
        print_text("\n".join(f"wrote {file}" for file in files))


@desktop.command("remove")
@as_json_option
def remove(as_json: bool) -> None:
    """Delete the menu entry and its icon.

    \b
    localctx desktop remove
    """
    from localctx.cli.terminal import print_json
    from localctx.ui.desktop_entry import remove_entry

    files = [str(file) for file in remove_entry()]
    if as_json:
        print_json({"removed": files})
    else:
        print_text("\n".join(f"deleted {file}" for file in files) or "there was none")
