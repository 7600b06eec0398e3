"""Defines options and helpers that several commands share."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.sections import option, setting_option, setting_options
from localctx.errors import DocumentError, UsageError, UserError
from localctx.settings.declaration import Commands
from localctx.settings.table import SETTINGS

if TYPE_CHECKING:
    from localctx.settings import Settings
    from localctx.store.store import Store


def flags_of(commands: Commands) -> tuple[str, ...]:
    """Returns the names of the settings that are flags of a kind of ``commands``, such as ``load`` (commands that load
    a model).
    """
    return tuple(name for name, setting in SETTINGS.items() if setting.commands == commands)


MACHINE_FLAGS = flags_of("load")
machine_options = setting_options(MACHINE_FLAGS)  # of a command that loads a model
model_options = setting_options((*flags_of("pages"), *MACHINE_FLAGS))  # and of one that stores pages, too
answer_options = setting_options(flags_of("answer"))  # of a command that answers questions


def ocr_option(command: Callable) -> Callable:
    """Decorate a command with the flags that choose which PDF pages are read by OCR."""
    every = setting_option("ocr", type=None, metavar=None, flag_value="on", help="Read all pages of PDFs by OCR.")
    none = option("--no-ocr", "ocr", flag_value="off", section="Reading", help="Read no page of PDFs by OCR.")
    return every(none(command))


until_option = click.option(
    "--until",
    default="",
    metavar="PLACE",
    help='Read only up to 40%, "page 12", or words of the text.',
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")


def settings_from(flags: dict[str, Any]) -> "Settings":
    """Returns the settings. Each of ``flags`` that is not None overrides the environment, the settings file and the
    default. Raises UsageError.
    """
    from localctx.models.choice.default_model import choose_model
    from localctx.settings import load_settings

    return choose_model(load_settings(**flags))


def parse_numbers(flag: str, given: str | None) -> list[int]:
    """Parse the positive numbers of a flag such as ``2000,4000``. Raises UsageError."""
    try:
        numbers = [int(n) for n in given.split(",")] if given else []
        if any(n < 1 for n in numbers):
            raise ValueError
    except ValueError as e:
        raise UsageError(f"{flag} {given} is not a list of numbers", f"for example: {flag} 2000,4000") from e
    return numbers


def parse_words(flag: str, given: str, known: Sequence[str]) -> list[str]:
    """Parse the words of a flag such as ``decode,prefill``. Raises UsageError for a word that is not in ``known``."""
    words = given.split(",")
    for word in words:
        if word not in known:
            raise UsageError(f"{flag} {word!r} is not known", f"use some of: {','.join(known)}")
    return words


def measuring_text(file: str | None) -> str:
    """Returns the text of ``file`` or, if ``file`` is None, of localctx's README and help pages. Raises
    DocumentError.
    """
    if file:
        from localctx.library.read_document import read_document

        return read_document(file).text
    from importlib.metadata import PackageNotFoundError, metadata

    from localctx.docs import page, topics

    with suppress(PackageNotFoundError):
        if isinstance(text := metadata("localctx").get_payload(), str) and text:  # type: ignore[attr-defined]
            return "\n\n".join([text, *map(page, topics())])
    raise DocumentError("there is no README here to measure on", "name a text file")


def with_launcher(line: str) -> str:
    """Returns ``line`` with ``localctx`` replaced by the path of packaging/start, if localctx is not on the PATH."""
    start = Path(sys.prefix).parent / "packaging" / ("start.ps1" if sys.platform == "win32" else "start")
    if shutil.which("localctx") or not start.is_file():
        return line
    if sys.platform == "win32":
        return line.replace(": localctx ", f': powershell -ExecutionPolicy Bypass -File "{start}" ')
    return line.replace(": localctx ", f": sh {shlex.quote(os.path.relpath(start))} ")


@contextmanager
def open_store() -> "Iterator[Store]":
    """Open the store of the data folder. Raises StoreError."""
    from localctx.store.store import Store, store_errors

    home = settings_from({}).home
    with closing(Store(home)) as store, store_errors(home):
        yield store


def find_damage_behind(error: Exception) -> str:
    """Returns a line that reports a damaged database, if that may have caused ``error``; else ""."""
    from localctx.store.store import damage_behind

    try:
        return str(damage_behind(settings_from({}).home, error) or "")
    except UserError:
        return ""
