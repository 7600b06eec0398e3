"""``backup`` and ``restore``: save all data that cannot be computed again in one file, and restore the data from it."""

from pathlib import Path

import click

from localctx.cli.common import as_json_option, open_store, settings_from
from localctx.cli.printing import print_line
from localctx.errors import format_bytes


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--pages", is_flag=True, help="Also the stored pages, so that nothing is read again. They are large.")
@as_json_option
def backup(file: Path, pages: bool, as_json: bool) -> None:
    """Write documents, chats, collections, results, watch list and settings to FILE. Only you can read it.

    \b
    localctx backup ~/localctx.lcbackup
    """
    from localctx.cli.terminal import print_json
    from localctx.store.maintenance.backup import write_backup

    with open_store() as store:
        made = write_backup(store, file, pages)
    if as_json:
        print_json({"file": str(file), "documents": made.documents, "chats": made.chats, "bytes": made.nbytes})
    else:
        print_line(f"{made.documents:,} documents and {made.chats:,} chats in {file}, {format_bytes(made.nbytes)}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace what the data folder has; a backup of that is made first.")
@as_json_option
def restore(file: Path, replace: bool, as_json: bool) -> None:
    """Put the backup FILE into an empty data folder, after checking all of it.

    \b
    localctx restore ~/localctx.lcbackup
    """
    from localctx.cli.terminal import print_json
    from localctx.store.maintenance.backup import restore_backup

    home = settings_from({}).home
    before = restore_backup(file, home, replace)
    with open_store() as store:
        documents, chats = len(store.documents.all()), len(store.chats.all())
    if as_json:
        print_json({"home": str(home), "documents": documents, "chats": chats, "before": before and str(before)})
        return
    print_line(f"{documents:,} documents and {chats:,} chats restored to {home}")
    if before:
        print_line(f"the former content is in {before}")
