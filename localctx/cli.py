"""The ``localctx`` command. Everything heavy is imported inside a command, so that ``--help`` is instant."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from localctx import __version__
from localctx.errors import UsageError, UserError

if TYPE_CHECKING:
    from localctx.engine.events import Event
    from localctx.session import Session
    from localctx.settings import Settings
    from localctx.store.store import Store
    from localctx.terminal import Terminal

CANCELLED = 130  # what a shell reports of a program ended by Ctrl-C


def main() -> None:
    """Run the command and end the process at once: taking torch apart first would keep Ctrl-C waiting for a second."""
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def run() -> int:
    """Run the command; its exit code: 0, 2 for what cannot be meant, 1 for what went wrong, 130 for Ctrl-C."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn programmers; the person here gets one clear line
    try:
        try:
            cli(prog_name="localctx", standalone_mode=False)
        finally:
            sys.stdout.flush()
    except SystemExit as e:
        return int(e.code or 0)
    except click.exceptions.NoArgsIsHelpError as e:
        e.show()
        return e.exit_code
    except click.UsageError as e:
        command = e.ctx.command_path if e.ctx else "localctx"
        return _told(f"{e.format_message().rstrip('.')}; see: {command} --help", e.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _told("stopped", CANCELLED)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        return 1
    except OSError as e:  # of stdout, when it names no file
        remedy = "check that you may read and write it" if e.filename else "free some space where the output goes"
        return _told(f"{e}; {remedy}", 1)
    except UserError as e:
        return _told(str(e), e.exit_code)
    return 0


def _told(line: str, code: int) -> int:
    print(f"localctx: {line}", file=sys.stderr)
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="localctx")
def cli() -> None:
    """Ask long documents on your own machine.

    A document is read once; its KV cache is kept; every later question, even after a restart, starts where reading
    ended.

    \b
    localctx ask report.txt "What was decided in May?"
    localctx prepare book.md        # read now, ask later
    localctx library list
    """


def _model_options(command: Callable) -> Callable:
    for option in (
        click.option(
            "--model", metavar="NAME", help="A name of `localctx models list`, a folder, a GGUF file, a hub id."
        ),
        click.option("--kv", metavar="CODEC", help="How kept keys and values are stored: auto, int8, bf16, f32."),
        click.option("--device", metavar="NAME", help="auto, cpu, cuda."),
        click.option("--dtype", metavar="NAME", help="Precision of the model: auto, bf16, f16, f32."),
        click.option("--threads", type=int, metavar="N", help="Processor threads to use."),
        click.option("--chunk", type=int, metavar="N", help="Tokens read in one step (512)."),
    ):
        command = option(command)
    return command


def _answer_options(command: Callable) -> Callable:
    for option in (
        click.option("--max-tokens", type=int, metavar="N", help="Longest answer, in tokens (512)."),
        click.option("--temperature", type=float, metavar="T", help="0 takes the likeliest token each time (0)."),
        click.option("--top-p", type=float, metavar="P", help="Sample among the likeliest tokens of mass P."),
        click.option("--top-k", type=int, metavar="K", help="Sample among the K likeliest tokens."),
        click.option("--seed", type=int, metavar="N", help="Make sampling repeatable."),
    ):
        command = option(command)
    return command


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_quiet = click.option("-q", "--quiet", is_flag=True, help="Nothing on stderr but errors.")


@cli.command()
@click.argument("words", nargs=-1, metavar="FILE... QUESTION")
@_json
@_quiet
@click.option("--no-keep", is_flag=True, help="Leave nothing of these documents on the disk.")
@_answer_options
@_model_options
def ask(words: tuple[str, ...], as_json: bool, quiet: bool, no_keep: bool, **flags: Any) -> None:
    """Answer QUESTION from FILEs (text or Markdown; - is standard input).

    \b
    localctx ask README.md "How do I run the tests?"
    git log | localctx ask - "What changed most?"
    """
    if len(words) < 2:
        raise UsageError("ask takes files and a question", 'for example: localctx ask README.md "What is this?"')
    *files, question = words
    if not question.strip():
        raise UsageError("the question is empty", "put it last, in quotes")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read only once", "name it once")
    from localctx.terminal import print_json

    with _session(flags, as_json, quiet) as (session, terminal):
        done = _follow(session.ask(files, question, keep=not no_keep), terminal)
        terminal.end_answer()
        report = done.report
        if as_json:
            print_json(report)
        if report["stopped"] == "length":
            terminal.say(f"the answer was cut at {report['tokens']['generated']:,} tokens; see --max-tokens")
        terminal.aside(_summary(report))
    _leave(report["stopped"], done.failed)


@cli.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_json
@_quiet
@_model_options
def prepare(files: tuple[str, ...], as_json: bool, quiet: bool, **flags: Any) -> None:
    """Read FILEs now and keep their pages, so that later questions start at once.

    \b
    localctx prepare book.txt notes/*.md
    """
    from localctx.terminal import print_json, size

    reports, failures, stopped = [], list[UserError | str](), "eos"
    with _session(flags, as_json, quiet) as (session, terminal):
        for file in files:
            try:
                done = _follow(session.prepare(file), terminal)
            except UserError as e:
                terminal.clear()
                print(f"localctx: {e}", file=sys.stderr)
                failures.append(e)
                if not _about_document(e):
                    break
                continue
            r, stopped = done.report, done.report["stopped"]
            reports.append(r)
            if not as_json:
                t = r["tokens"]
                print(
                    f"{r['name']}: {t['reused'] + t['prefilled']:,} of {t['prompt']:,} tokens kept "
                    f"({t['reused']:,} were already), {size(r['kept']['bytes'])}, {r['seconds']['prefill']:.1f} s",
                    flush=True,
                )
            if done.failed or stopped == "cancelled":
                failures += [done.failed] if done.failed else []
                break
    if as_json:
        print_json({"documents": reports, "failed": [str(f) for f in failures]})
    if failures and isinstance(failures[-1], UserError):
        sys.exit(failures[-1].exit_code)
    _leave(stopped, failures[-1] if failures else None)


@cli.group()
def library() -> None:
    """The documents that were read, and what is kept of them."""


@library.command("list")
@_json
def library_list(as_json: bool) -> None:
    """List documents, the last used first.

    \b
    localctx library list --json
    """
    from localctx.terminal import print_json, size, table

    with _store() as store:
        listed = [(d, store.caches.of(d.id)) for d in store.documents.all()]
    if as_json:
        print_json([_document_json(d, caches) for d, caches in listed])
    elif not listed:
        print("The library is empty. Read a document with: localctx ask FILE QUESTION")
    else:
        print(
            table(
                [
                    {
                        "ID": d.id[:12],
                        "NAME": d.name,
                        "CHARACTERS": d.chars,
                        "KEPT TOKENS": max((c.pages * 64 for c in caches), default=0),
                        "ON DISK": size(sum(c.bytes for c in caches)),
                        "LAST USED": _when(d.used),
                    }
                    for d, caches in listed
                ]
            )
        )


@library.command("show")
@click.argument("document")
@_json
def library_show(document: str, as_json: bool) -> None:
    """Show one DOCUMENT (an id, its beginning, a name or a path) and the caches kept of it.

    \b
    localctx library show README.md
    """
    from localctx.terminal import print_json, size, table

    with _store() as store:
        row = store.documents.find(document)
        caches, spans = store.caches.of(row.id), store.documents.spans(row.id)
    if as_json:
        print_json(_document_json(row, caches) | {"spans": [vars(s) for s in spans]})
        return
    print(f"{row.name}  {row.chars:,} characters, {row.encoding}, {row.path}\nid {row.id}")
    print(f"added {_when(row.added)}, last used {_when(row.used)}, {len(spans)} headings")
    rows = [
        {
            "MODEL": c.model,
            "KV": c.codec,
            "KEPT TOKENS": c.pages * 64,
            "STATE": "ready" if c.state == "ready" else "partly read",
            "ON DISK": size(c.bytes),
            "LAST USED": _when(c.used),
        }
        for c in caches
    ]
    print(table(rows) or "nothing is kept of it")


@library.command("rm")
@click.argument("documents", nargs=-1, required=True, metavar="DOCUMENT...")
def library_rm(documents: tuple[str, ...]) -> None:
    """Forget DOCUMENTs: their text, their caches, and pages nothing else uses.

    \b
    localctx library rm README.md 3f9a1c
    """
    from localctx.terminal import size

    for document in documents:
        with _store() as store:
            row = store.documents.find(document)
            freed = store.remove_document(row.id)
        print(f"{row.name} removed, {size(freed)} freed")


@cli.group()
def models() -> None:
    """The models localctx knows, and those on this machine."""


@models.command("list")
@_json
def models_list(as_json: bool) -> None:
    """List known models and those on this machine.

    \b
    localctx models list
    """
    from localctx.models.catalog import load_catalog
    from localctx.models.fetch import installed
    from localctx.terminal import print_json, size, table

    here = {m.name: m for m in installed(_settings({}).models)}
    known = load_catalog()
    rows: list[dict[str, Any]] = [
        {
            "name": e.name,
            "licence": e.licence,
            "context": e.context,
            "bytes": here[e.name].bytes if e.name in here else e.bytes,
            "gpu_gib": e.fits,
            "here": e.name in here,
        }
        for e in known.values()
    ] + [
        {"name": m.name, "licence": "", "context": 0, "bytes": m.bytes, "gpu_gib": 0, "here": True}
        for m in here.values()
        if m.name not in known
    ]
    if as_json:
        print_json(rows)
        return
    print(
        table(
            [
                {
                    "NAME": r["name"],
                    "HERE": "yes" if r["here"] else "",
                    "SIZE": size(r["bytes"]),
                    "WINDOW": f"{r['context']:,}" if r["context"] else "",
                    "GPU": f"{r['gpu_gib']} GiB" if r["gpu_gib"] else "",
                    "LICENCE": r["licence"],
                }
                for r in rows
            ]
        )
    )


@models.command("pull")
@click.argument("name")
@_quiet
def models_pull(name: str, quiet: bool) -> None:
    """Fetch model NAME (of the list, or owner/name on the Hugging Face hub) and make it ready to load.

    \b
    localctx models pull smollm2-135m-instruct
    """
    from localctx.engine.events import Progress
    from localctx.models.fetch import pull
    from localctx.terminal import Terminal

    terminal = Terminal(quiet=quiet)
    try:
        path = pull(name, _settings({}).models, lambda *p: terminal.show(Progress(*p)))
    finally:
        terminal.clear()
    print(path)


@models.command("rm")
@click.argument("name")
def models_rm(name: str) -> None:
    """Delete model NAME from this machine.

    \b
    localctx models rm smollm2-135m-instruct
    """
    from localctx.models.fetch import remove
    from localctx.terminal import size

    print(f"{name} removed, {size(remove(name, _settings({}).models))} freed")


@cli.command()
@_json
def doctor(as_json: bool) -> None:
    """Say what is installed, what there is room for, and whether model and store are whole.

    \b
    localctx doctor --json
    """
    from localctx.doctor import examine
    from localctx.terminal import print_json

    report = examine(_settings({}))
    if as_json:
        print_json(report)
    else:
        _print_tree(report)
    if report["problems"]:
        sys.exit(1)


class _session:
    """A session and the terminal that shows it, closed at the end; Ctrl-C stops what runs."""

    def __init__(self, flags: dict[str, Any], as_json: bool, quiet: bool) -> None:
        from localctx.session import Session
        from localctx.terminal import Terminal, stopping

        self.terminal = Terminal(as_json, quiet)
        self.session = Session(_settings(flags), self.terminal.show)
        self._stopping = stopping(self.session.cancel)

    def __enter__(self) -> "tuple[Session, Terminal]":
        self._stopping.__enter__()
        return self.session, self.terminal

    def __exit__(self, *exc: Any) -> None:
        self._stopping.__exit__(*exc)
        self.terminal.clear()
        self.session.close()


def _settings(flags: dict[str, Any]) -> "Settings":
    from localctx.settings import load_settings

    return load_settings(**flags)


@contextmanager
def _store() -> "Iterator[Store]":
    from localctx.store.store import Store, told

    home = _settings({}).home
    with closing(Store(home)) as store, told(home):
        yield store


def _follow(events: "Iterator[Event]", terminal: "Terminal") -> Any:
    """Show events to the end; the last one, Done. Whatever stops it, what was read is kept before the store closes."""
    event: Any = None
    with closing(events):  # type: ignore[type-var]
        for event in events:
            terminal.show(event)
    return event


def _about_document(e: UserError) -> bool:
    from localctx.errors import DocumentError, TooLong

    return isinstance(e, DocumentError | TooLong)


def _leave(stopped: str, failed: object) -> None:
    if failed:
        print(f"localctx: {failed}", file=sys.stderr)
        sys.exit(1)
    if stopped == "cancelled":
        sys.exit(CANCELLED)


def _summary(r: dict[str, Any]) -> str:
    t, s = r["tokens"], r["seconds"]
    speed = f", {(t['generated'] - 1) / s['decode']:.1f} tokens/s" if t["generated"] > 1 and s["decode"] else ""
    return f"reused {t['reused']:,} / {t['prompt']:,} tokens, first token after {s['first_token']:.2f} s{speed}"


def _document_json(row: Any, caches: list[Any]) -> dict[str, Any]:
    kept = [
        {k: v for k, v in vars(c).items() if k != "fingerprint"} | {"fingerprint": c.fingerprint.hex()} for c in caches
    ]
    return {**vars(row), "caches": kept}


def _when(seconds: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _print_tree(value: dict[str, Any], indent: str = "") -> None:
    for key, item in value.items():
        if isinstance(item, dict):
            print(f"{indent}{key}:")
            _print_tree(item, indent + "  ")
        elif isinstance(item, list):
            print(f"{indent}{key}: {'none' if not item else ''}")
            for line in item:
                print(f"{indent}  {line if not isinstance(line, dict) else ', '.join(map(str, line.values()))}")
        else:
            print(f"{indent}{key}: {item:,}" if isinstance(item, int) else f"{indent}{key}: {item}")
