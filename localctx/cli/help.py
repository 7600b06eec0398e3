"""``help``: prints the help pages shipped with localctx, and the help of its commands."""

import shutil
import sys

import click

from localctx.cli.printing import print_text
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
        print_text(_listed(titles))
    elif len(topic) == 1 and topic[0] in titles:
        flags = f"\nFor its flags see: {command.command_path} --help\n" if command else ""
        _show(page(topic[0]) + flags)
    elif command:
        _show(f"{command.get_help()}\n")
    else:
        wanted = " ".join(topic)
        raise UsageError(f"there is no help on {wanted!r}", f"the topics are {', '.join(titles)}; or name a command")


def _command(ctx: click.Context, names: tuple[str, ...]) -> click.Context | None:
    """Returns the context of the command with these names, such as ``library search``, or None."""
    context = ctx.find_root()
    for name in names:
        group = context.command
        command = group.get_command(context, name) if isinstance(group, click.Group) else None
        if not command:
            return None
        context = click.Context(command, parent=context, info_name=name)
    return context


def _listed(titles: dict[str, str]) -> str:
    width = max(map(len, titles))
    rows = [f"{name:{width}}  {title}" for name, title in titles.items()]
    return "\n".join(["Print a page with: localctx help TOPIC", "", *rows])


def _show(text: str) -> None:
    """Print text, through a pager if the terminal is too small for it."""
    if sys.stdout.isatty() and text.count("\n") >= shutil.get_terminal_size().lines:
        click.echo_via_pager(text)
    else:
        print_text(text, end="")
