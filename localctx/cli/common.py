"""What several commands share: options, settings, JSON."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.errors import DocumentError, UsageError

CANCELLED = 130  # what a shell reports of a program ended by Ctrl-C

if TYPE_CHECKING:
    from localctx.settings import Settings
    from localctx.store.store import Store


cap_options = (
    click.option("--memory", metavar="SIZE", help="Most KV on the device that computes, as 4GiB (what is free)."),
    click.option("--ram", metavar="SIZE", help="Most KV in RAM beside a GPU (half of what is free)."),
    click.option(
        "--disk", metavar="SIZE", help="Most KV on disk: kept (a fifth of what is free), and spilled (what is free)."
    ),
)


def model_options(command: Callable) -> Callable:
    """The flags of a command that loads a model and keeps pages, as Settings names them."""
    for option in (
        click.option(
            "--kv",
            metavar="CODEC",
            help="How keys and values are stored: auto, f32, bf16, int8, fp8, k8v4, int4, int2.",
        ),
        click.option(
            "--keep", metavar="KEEPER", help="What is seen: full, sink-window, h2o, snapkv, keydiff, select:1/4."
        ),
    ):
        command = option(command)
    return machine_options(command)


MACHINE = ("model", "device", "dtype", "weights", "rope", "threads", "chunk", "memory", "ram", "disk")  # these flags


def machine_options(command: Callable) -> Callable:
    """The flags that say which model computes, and how."""
    for option in (
        click.option(
            "--model", metavar="NAME", help="A name of `localctx models list`, a folder, a GGUF file, a hub id."
        ),
        click.option("--device", metavar="NAME", help="auto, cpu, cuda."),
        click.option("--dtype", metavar="NAME", help="Precision of the model: auto, bf16, f16, f32."),
        click.option(
            "--weights", metavar="HOW", help="The model's: full, int8, nf4 (GPU). Fewer bits: faster, less exact."
        ),
        click.option(
            "--rope", metavar="HOW", help="Stretch the window: yarn:2, linear:2, llama3:8 (auto: as trained)."
        ),
        click.option("--threads", type=int, metavar="N", help="Processor threads to use."),
        click.option("--chunk", type=int, metavar="N", help="Tokens read in one step (512)."),
        *cap_options,
    ):
        command = option(command)
    return command


def answer_options(command: Callable) -> Callable:
    """The flags of a command that answers, as Settings names them."""
    for option in (
        click.option("--mode", metavar="MODE", help="full (whole documents), retrieve (passages), auto (by length)."),
        click.option(
            "--effective-context",
            type=int,
            metavar="N",
            help="Tokens of documents up to which auto reads them whole (as measured of the model).",
        ),
        click.option("--passages", type=int, metavar="N", help="Passages answered from (what the model bears best)."),
        click.option("--embedder", metavar="NAME", help="What makes vectors for search: all-minilm-l6-v2, none, ..."),
        click.option("--blend", metavar="HOW", help="Put passages together as each was read: off, on, auto (off)."),
        click.option("--max-tokens", type=int, metavar="N", help="Longest answer, in tokens (256)."),
        click.option("--temperature", type=float, metavar="T", help="0 takes the likeliest token each time (0)."),
        click.option("--top-p", type=float, metavar="P", help="Sample among the likeliest tokens of mass P."),
        click.option("--top-k", type=int, metavar="K", help="Sample among the K likeliest tokens."),
        click.option("--careful", metavar="HOW", help="auto: say when no passage answers; off: answer always (auto)."),
        click.option("--repeats", metavar="HOW", help="stop or allow an answer that goes in circles (stop)."),
        click.option("--n", type=int, metavar="N", help="Sample N answers, which share what was read (1)."),
        click.option("--beams", type=int, metavar="N", help="Search the likeliest answer with N beams (1)."),
        click.option(
            "--draft",
            type=int,
            metavar="N",
            help="Tokens guessed at once from what was read (8; 0: none). Not in a batch.",
        ),
        click.option("--seed", type=int, metavar="N", help="Make sampling repeatable."),
    ):
        command = option(command)
    return command


def ocr_option(command: Callable) -> Callable:
    """The flags that say which pages of PDFs are read optically."""
    every = click.option(
        "--ocr", "ocr", flag_value="on", help="Read every page of PDFs optically, even if it has text."
    )
    none = click.option("--no-ocr", "ocr", flag_value="off", help="Not even pages without text.")
    return every(none(command))


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")


def settings_of(flags: dict[str, Any]) -> "Settings":
    """Settings with ``flags`` (None: not given) over all else. Raises UsageError."""
    from localctx.settings import load_settings

    return load_settings(**flags)


def plain(text: str) -> str:
    """One line, in which nothing that stood in a document speaks to the terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def numbers(flag: str, given: str | None) -> list[int]:
    """The positive numbers of a flag that takes several, as ``2000,4000``. Raises UsageError."""
    try:
        found = [int(n) for n in given.split(",")] if given else []
        if any(n < 1 for n in found):
            raise ValueError
    except ValueError as e:
        raise UsageError(f"{flag} {given} is not a list of numbers", f"for example: {flag} 2000,4000") from e
    return found


def words(flag: str, given: str, known: Sequence[str]) -> list[str]:
    """The words of a flag that takes several, as ``decode,prefill``. Raises UsageError for one that is not known."""
    found = given.split(",")
    for word in found:
        if word not in known:
            raise UsageError(f"{flag} {word!r} cannot be meant", f"use some of: {','.join(known)}")
    return found


def text_of(file: str | None) -> str:
    """The user's text, or the one that every installed localctx has: its README and its pages. Raises DocumentError."""
    if file:
        from localctx.library.read_document import read_document

        return read_document(file).text
    from importlib.metadata import PackageNotFoundError, metadata

    from localctx.docs import page, topics

    with suppress(PackageNotFoundError):
        if isinstance(text := metadata("localctx").get_payload(), str) and text:  # type: ignore[attr-defined]
            return "\n\n".join([text, *map(page, topics())])
    raise DocumentError("there is no README here to measure on", "name a text file")


def as_typed(line: str) -> str:
    """``line``, with its commands as they are typed here: ``localctx`` is on no path where packaging/start runs it."""
    start = Path(sys.prefix).parent / "packaging" / "start"
    if shutil.which("localctx") or not start.is_file():
        return line
    return line.replace(": localctx ", f": sh {shlex.quote(os.path.relpath(start))} ")


@contextmanager
def open_store() -> "Iterator[Store]":
    """The data folder's store. Raises StoreError."""
    from localctx.store.store import Store, store_errors

    home = settings_of({}).home
    with closing(Store(home)) as store, store_errors(home):
        yield store
