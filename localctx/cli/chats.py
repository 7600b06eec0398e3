"""``chats``: lists, shows, renames, exports and deletes stored chats."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.common import as_json_option, open_store
from localctx.cli.library.library_trash import removed_line
from localctx.cli.printing import print_error, print_json_text, print_line, print_text
from localctx.errors import UserError

if TYPE_CHECKING:
    from localctx.store.chats import Chat, Chats


@click.group()
def chats() -> None:
    """Manage stored chats. CHAT is an id, its beginning, or a title."""


@chats.command("list")
@as_json_option
def list_(as_json: bool) -> None:
    """List chats, the last used first.

    \b
    localctx chats list --json
    """
    from localctx.cli.terminal import print_json, table

    with open_store() as store:
        listed = [(c, len(store.chats.tree(c.id))) for c in store.chats.all()]
    if as_json:
        print_json([vars(c) | {"documents": [vars(d) for d in c.documents], "messages": n} for c, n in listed])
    elif not listed:
        print_line("There are no chats. Begin one with: localctx chat FILE...")
    else:
        print_text(table([_row(c, n) for c, n in listed]))


@chats.command()
@click.argument("chat")
@as_json_option
def show(chat: str, as_json: bool) -> None:
    """Show one branch of CHAT, the one used last; with --json all of them.

    \b
    localctx chats show "Who wrote it?"
    """
    from localctx.store.transcript import transcript

    with open_store() as store:
        _print_transcript(transcript(store.chats, store.chats.find(chat), as_json), as_json)


@chats.command()
@click.argument("chat")
@click.argument("title")
def rename(chat: str, title: str) -> None:
    """Give CHAT another TITLE.

    \b
    localctx chats rename 3f9a1c "The lease"
    """
    with open_store() as store:
        found = store.chats.find(chat)
        store.chats.rename(found.id, title)
        print_line(f"{found.title} is now {store.chats.get(found.id).title}")


@chats.command()
@click.argument("chats", nargs=-1, required=True, metavar="CHAT...")
@click.option("--now", is_flag=True, help="Erase them at once, and overwrite the messages.")
def rm(chats: tuple[str, ...], now: bool) -> None:
    """Delete CHATs. Their pages are deleted at once; their messages stay in the trash for 7 days. Their documents stay.

    \b
    localctx chats rm "The lease" 3f9a1c
    """
    for chat in chats:
        with open_store() as store:
            found = store.chats.find(chat)
            print_line(removed_line(store, "chat", found.id, found.title, now))


@chats.command()
@click.argument("chat")
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="The file: JSON for *.json, else Markdown."
)
@as_json_option
def export(chat: str, output: Path | None, as_json: bool) -> None:
    """Write CHAT as Markdown (the branch used last) or JSON (all of it) to FILE, or to stdout.

    \b
    localctx chats export "The lease" -o lease.md
    """
    from localctx.store.transcript import transcript

    with open_store() as store:
        found = store.chats.find(chat)
        if output:
            export_chat(store.chats, found, output, as_json)
        else:
            _print_transcript(transcript(store.chats, found, as_json), as_json)


def export_chat(chats: "Chats", chat: "Chat", output: Path, as_json: bool = False) -> None:
    """Write a chat to a file: as JSON with ``as_json`` or if the name ends in .json, else as Markdown. Raises
    UserError.
    """
    from localctx.store.transcript import transcript

    try:
        output.write_text(transcript(chats, chat, as_json or output.suffix == ".json"), encoding="utf-8")
    except OSError as e:
        raise UserError(f"{output} cannot be written ({e.strerror})", "choose another place") from e
    print_error(f"{chat.title} exported to {output}")


def _print_transcript(text: str, as_json: bool) -> None:
    if as_json:
        print_json_text(text)
    else:
        print_text(text, end="")


def _row(chat: "Chat", messages: int) -> dict[str, Any]:
    return {
        "ID": chat.id,
        "TITLE": chat.title[:40],
        "DOCUMENTS": ", ".join(d.name for d in chat.documents)[:40],
        "MESSAGES": messages,
        "LAST USED": datetime.fromtimestamp(chat.used).strftime("%Y-%m-%d %H:%M"),
    }
