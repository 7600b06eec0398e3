"""``backup`` and ``restore``: everything that cannot be made again, in one file."""

from pathlib import Path

import click

from localctx.cli.common import open_store, settings_from
from localctx.cli.printing import print_line
from localctx.errors import format_bytes


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--pages", is_flag=True, help="Also the stored pages, so that nothing is read again. They are large.")
def backup(file: Path, pages: bool) -> None:
    """Write documents, chats, collections, results, watch list and settings to FILE. Only you can read it.

    \b
    localctx backup ~/localctx.lcbackup
    """
    from localctx.store.backup import write_backup

    with open_store() as store:
        made = write_backup(store, file, pages)
    print_line(f"{made.documents:,} documents and {made.chats:,} chats in {file}, {format_bytes(made.nbytes)}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace what the data folder has; a backup of that is made first.")
def restore(file: Path, replace: bool) -> None:
    """Put the backup FILE into an empty data folder, after checking all of it.

    \b
    localctx restore ~/localctx.lcbackup
    """
    from localctx.store.backup import restore_backup

    home = settings_from({}).home
    before = restore_backup(file, home, replace)
    with open_store() as store:
        documents, chats = len(store.documents.all()), len(store.chats.all())
    print_line(f"{documents:,} documents and {chats:,} chats restored to {home}")
    if before:
        print_line(f"what was there is in {before}")
