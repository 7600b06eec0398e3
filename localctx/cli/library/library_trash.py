"""``library trash``: lists, restores and erases deleted documents and chats."""

from typing import TYPE_CHECKING

import click

from localctx.cli.common import as_json_option, open_store
from localctx.cli.printing import print_line, print_text
from localctx.errors import format_bytes

if TYPE_CHECKING:
    from localctx.store.deletions import Kind
    from localctx.store.store import Store


@click.group(invoke_without_command=True)
@click.pass_context
def trash(context: click.Context) -> None:
    """List, restore or erase deleted documents and chats. They stay there for 7 days. Without a command: list."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@trash.command("list")
@as_json_option
def list_(as_json: bool = False) -> None:
    """List deleted documents and chats, the last deleted first.

    \b
    localctx library trash list --json
    """
    from localctx.cli.terminal import print_json, table
    from localctx.store.deletions import left_in_trash

    with open_store() as store:
        deletions = store.deletions.all()
    if as_json:
        print_json([vars(d) for d in deletions])
    elif not deletions:
        print_line("The trash is empty.")
    else:
        print_text(table([{"ID": d.id, "KIND": d.kind, "NAME": d.name, "LEFT": left_in_trash(d)} for d in deletions]))


@trash.command("restore")
@click.argument("items", nargs=-1, required=True, metavar="ITEM...")
def restore_items(items: tuple[str, ...]) -> None:
    """Bring ITEMs back: an id of the list, or a name. Their pages are computed again when you ask about them.

    \b
    localctx library trash restore README.md
    """
    for item in items:
        with open_store() as store:
            deletion = store.deletions.restore(store.deletions.find(item).id)
        print_line(f"{deletion.name} is back")


@trash.command()
def empty() -> None:
    """Erase everything in the trash, and overwrite it.

    \b
    localctx library trash empty
    """
    with open_store() as store:
        count = len(store.deletions.all())
        freed = store.forget_deleted()
        store.erase()
    print_line(f"{count:,} erased, {format_bytes(freed)} of files freed")


def removed_line(store: "Store", kind: "Kind", item: str, name: str, now: bool) -> str:
    """Delete the document or chat (``kind``) with the id ``item``: move it to the trash or, with ``now``, erase it.

    Returns the line that reports the deletion of ``name`` to the user.
    """
    from localctx.store.deletions import TRASH_DAYS

    if now:
        freed = store.remove_document(item) if kind == "document" else store.remove_chat(item)
        store.forget_deleted(only=[d.id for d in store.deletions.all() if d.item == item])
        store.erase()
        return f"{name} erased, {format_bytes(freed)} freed"
    before = store.disk_bytes()
    store.delete(kind, item)
    freed = max(0, before - store.disk_bytes())
    return f"{name} moved to the trash for {TRASH_DAYS} days, {format_bytes(freed)} freed; rm --now erases at once"
