"""``help``: the pages that are shipped with localctx, and the help of its commands."""

import shutil
import sys

import click

from localctx.errors import UsageError


@click.command("help")
@click.argument("topic", nargs=-1, metavar="[TOPIC]")
@click.pass_context
def help_(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """Print the page about TOPIC, or the help of a command. Without TOPIC, list the pages.

    \b
    localctx help
    localctx help memory
    localctx help library search
    """
    from localctx.docs import page, topics

    titles, command = topics(), _command(ctx, topic)
    if not topic:
        print(_listed(titles))
    elif len(topic) == 1 and topic[0] in titles:
        flags = f"\nFor its flags see: {command.command_path} --help\n" if command else ""
        _show(page(topic[0]) + flags)
    elif command:
        _show(f"{command.get_help()}\n")
    else:
        wanted = " ".join(topic)
        raise UsageError(f"there is no help on {wanted!r}", f"the topics are {', '.join(titles)}; or name a command")


def _command(ctx: click.Context, names: tuple[str, ...]) -> click.Context | None:
    """The context of the command that is called so, such as ``library search``; None where there is none."""
    found = ctx.find_root()
    for name in names:
        group = found.command
        command = group.get_command(found, name) if isinstance(group, click.Group) else None
        if not command:
            return None
        found = click.Context(command, parent=found, info_name=name)
    return found


def _listed(titles: dict[str, str]) -> str:
    width = max(map(len, titles))
    rows = [f"{name:{width}}  {title}" for name, title in titles.items()]
    return "\n".join(["Print a page with: localctx help TOPIC", "", *rows])


def _show(text: str) -> None:
    """Print it; on a terminal that it does not fit, page by page."""
    if sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines:
        click.echo_via_pager(text)
    else:
        print(text, end="")
