"""Options and helpers that several commands share."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.errors import DocumentError, UsageError, UserError

CANCELLED = 130  # exit code that a shell reports after Ctrl-C

if TYPE_CHECKING:
    from localctx.settings import Settings
    from localctx.store.store import Store


cap_options = (
    click.option("--memory", metavar="SIZE", help="KV on the compute device, at most, as 4GiB (what is free)."),
    click.option("--ram", metavar="SIZE", help="KV in RAM beside a GPU, at most (half of what is free)."),
    click.option(
        "--disk",
        metavar="SIZE",
        help="KV on disk, at most: stored (a fifth of what is free), and spilled (what is free).",
    ),
)


def model_options(command: Callable) -> Callable:
    """Add the flags of a command that loads a model and stores pages, named as in Settings."""
    for option in (
        click.option(
            "--kv",
            metavar="CODEC",
            help="How keys and values are stored: auto, f32, bf16, int8, fp8, k8v4, int4, int2; f16 (llama.cpp).",
        ),
        click.option(
            "--keep", metavar="KEEPER", help="What attention sees: full, sink-window, h2o, snapkv, keydiff, select:1/4."
        ),
    ):
        command = option(command)
    return machine_options(command)


MACHINE_FLAGS = (
    "model",
    "engine",
    "adapter",
    "device",
    "dtype",
    "weights",
    "rope",
    "reading",
    "threads",
    "chunk",
    "memory",
    "ram",
    "disk",
)


def machine_options(command: Callable) -> Callable:
    """Add the flags for the model and its device: MACHINE_FLAGS."""
    for option in (
        click.option(
            "--model", metavar="NAME", help="A name of `localctx models list`, a folder, a GGUF file, a hub id."
        ),
        click.option("--engine", metavar="NAME", help="What computes the model: torch, llama.cpp (a GGUF file), auto."),
        click.option(
            "--adapter", metavar="NAME", help="What answers questions about documents: auto, none, a name, a folder."
        ),
        click.option("--device", metavar="NAME", help="auto, cpu, cuda."),
        click.option("--dtype", metavar="NAME", help="Precision of the model: auto, bf16, f16, f32."),
        click.option(
            "--weights",
            metavar="HOW",
            help="The model's weights: full, int8, int4 (processor), nf4 (GPU). Fewer bits: faster, less exact.",
        ),
        click.option(
            "--rope", metavar="HOW", help="Stretch the window: yarn:2, linear:2, llama3:8 (auto: as trained)."
        ),
        click.option(
            "--reading",
            metavar="HOW",
            help="full, or sparse: skips pages that hardly matter; long texts are read faster, less exactly.",
        ),
        click.option("--threads", type=int, metavar="N", help="Processor threads to use."),
        click.option("--chunk", type=int, metavar="N", help="Tokens read in one step (512)."),
        *cap_options,
    ):
        command = option(command)
    return command


def answer_options(command: Callable) -> Callable:
    """Add the flags of a command that generates answers, named as in Settings."""
    for option in (
        click.option(
            "--mode",
            metavar="MODE",
            help="full (whole documents), retrieve (passages), everywhere (each passage is asked), auto (by length).",
        ),
        click.option(
            "--effective-context",
            type=int,
            metavar="N",
            help="Tokens up to which auto reads documents whole (as measured for the model).",
        ),
        click.option(
            "--passages",
            type=int,
            metavar="N",
            help="Passages to answer from (the number measured best for the model).",
        ),
        click.option(
            "--embedder", metavar="NAME", help="The model of the vectors for search: all-minilm-l6-v2, none, ..."
        ),
        click.option(
            "--blend",
            metavar="HOW",
            help="Combine texts that were read separately: off, on, auto (where that was measured to be good).",
        ),
        click.option("--max-tokens", type=int, metavar="N", help="Longest answer, in tokens (256)."),
        click.option("--temperature", type=float, metavar="T", help="0 takes the likeliest token each time (0)."),
        click.option(
            "--top-p", type=float, metavar="P", help="Sample among the likeliest tokens with total probability P."
        ),
        click.option("--top-k", type=int, metavar="K", help="Sample among the K likeliest tokens."),
        click.option("--careful", metavar="HOW", help="auto: say when no passage answers; off: answer always (auto)."),
        click.option("--answers", metavar="HOW", help="quote (the documents' own words), free, auto (as measured)."),
        click.option("--repeats", metavar="HOW", help="stop or allow an answer that repeats itself (stop)."),
        click.option("--n", type=int, metavar="N", help="Sample N answers that share one prefill (1)."),
        click.option("--beams", type=int, metavar="N", help="Search the likeliest answer with N beams (1)."),
        click.option(
            "--draft",
            type=int,
            metavar="N",
            help="Tokens to draft from the text that was read (8; 0: none). Not in a batch.",
        ),
        click.option("--seed", type=int, metavar="N", help="Make sampling repeatable."),
    ):
        command = option(command)
    return command


def ocr_option(command: Callable) -> Callable:
    """Add the flags that choose which PDF pages are read by OCR."""
    every = click.option(
        "--ocr", "ocr", flag_value="on", help="Read every page of PDFs optically, even if it has text."
    )
    none = click.option(
        "--no-ocr", "ocr", flag_value="off", help="Read no page optically, not even those without text."
    )
    return every(none(command))


until_option = click.option(
    "--until",
    default="",
    metavar="PLACE",
    help='Read the document only so far: 40%, "page 12" (its end) or words in it. Nothing later is seen.',
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")


def settings_from(flags: dict[str, Any]) -> "Settings":
    """Return settings in which ``flags`` (None: not given) override everything else. Raises UsageError."""
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
    """Return the text of ``file``, or of localctx's README and help pages if it is None. Raises DocumentError."""
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
    """Return ``line`` with ``localctx`` replaced by the path of packaging/start, if that started it."""
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
    """Return a line about the database's damage if it may have caused ``error``, else ""."""
    from localctx.store.store import damage_behind

    try:
        return str(damage_behind(settings_from({}).home, error) or "")
    except UserError:
        return ""
