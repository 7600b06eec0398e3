"""The ``localctx`` command. Commands import heavy modules themselves, so that ``--help`` is instant."""

import gc
import io
import os
import sys
import warnings
from contextlib import suppress

import click

from localctx.cli.advice import said_after_update
from localctx.cli.ask import ask, prepare
from localctx.cli.backup import backup, restore
from localctx.cli.batch.census import census
from localctx.cli.batch.summarize import summarize
from localctx.cli.batch.table import table
from localctx.cli.bench import bench
from localctx.cli.chat import chat
from localctx.cli.chats import chats
from localctx.cli.common import find_damage_behind
from localctx.cli.compare import compare
from localctx.cli.desktop import desktop
from localctx.cli.doctor import doctor
from localctx.cli.help import help_
from localctx.cli.library.library import library
from localctx.cli.library.library_outdated import library_outdated
from localctx.cli.library.library_search import library_search
from localctx.cli.mcp import mcp
from localctx.cli.models import models
from localctx.cli.plan import plan
from localctx.cli.printing import SIMILAR, print_error
from localctx.cli.quality.quality import quality
from localctx.cli.serve import serve
from localctx.cli.ui import ui
from localctx.cli.uninstall import uninstall
from localctx.errors import INTERRUPTED, Cancelled, UserError
from localctx.version import __version__


def main() -> None:
    """Run the command and end the process at once, because torch's own shutdown would delay Ctrl-C by a second."""
    from localctx.error_log import start_error_log

    start_error_log()
    _write_all_letters()
    code = run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _write_all_letters() -> None:
    """Print a similar letter in place of each letter that the encoding of an output lacks. On Windows, use UTF-8 for
    pipes and files too, because a code page has few letters.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if sys.platform == "win32":
                stream.reconfigure(encoding="utf-8", errors="replace")
            elif stream is not sys.stdin:
                stream.reconfigure(errors=SIMILAR)


def run() -> int:
    """Run the command. Returns its exit code: 0, 1 for an error, 2 for a usage error, 130 for Ctrl-C.

    Some commands exit with a code of their own: 3 if some files failed, 4 if a clause changed.
    """
    gc.disable()  # until the model is loaded, see Session.model
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # warnings of libraries are for programmers
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
        return _fail(f"{e.format_message().rstrip('.')}; see: {command} --help", e.exit_code)
    except (KeyboardInterrupt, click.Abort, Cancelled):
        return _fail("stopped", INTERRUPTED)
    except BrokenPipeError:  # stdout was closed, as by `head`
        return 1
    except OSError as e:  # an error without a file name comes from stdout
        _log(e)
        remedy = "check that you may read and write it" if e.filename else "free some space where the output goes"
        return _fail(f"{e}; {remedy}", 1)
    except Exception as e:
        if not isinstance(e, UserError) and (damage := find_damage_behind(e)):  # a damaged database can cause any error
            _log(e)
            return _fail(damage, 1)
        from localctx.error_log import explain

        error = explain(e)
        return _fail(str(error), error.exit_code)
    return 0


def _log(error: Exception) -> None:
    from localctx.error_log import log_error

    log_error(error)


def _fail(line: str, code: int) -> int:
    print_error(f"localctx: {line}")
    return code


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="localctx")
def cli() -> None:
    """Ask long documents on your own machine.

    A document is read once and its KV cache is stored: every later question, even after a restart, starts where the
    reading ended.

    \b
    localctx ask report.txt "What was decided in May?"
    localctx chat report.txt        # questions that build on each other
    localctx prepare book.md        # read now, ask later
    localctx summarize reports/ -o summaries/
    localctx table invoices/ --ask supplier --ask "total (money)" -o invoices.xlsx
    localctx census letters/ "Who asks for a refund?"
    localctx compare old.docx new.pdf
    localctx serve                  # an OpenAI-compatible API
    localctx library list
    localctx help                   # pages about asking, chats, memory, ...
    """


_COMMANDS: tuple[click.Command, ...] = (
    *(
        ask,
        chat,
        chats,
        summarize,
        table,
        census,
        compare,
        ui,
        serve,
        mcp,
        prepare,
        plan,
        quality,
        bench,
        library,
        models,
    ),
    *(backup, restore, doctor, desktop, uninstall, help_),
)
for _command in _COMMANDS:
    cli.add_command(_command)
library.add_command(library_outdated)
library.add_command(library_search)


def _add_offline(command: click.Command) -> None:
    """Add --offline to a command and its subcommands. It sets the environment, which child processes inherit."""
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _add_offline(below)
    if command is not help_ and not isinstance(command, click.Group):
        what = "Let nothing leave this machine."
        flag = click.Option(["--offline"], is_flag=True, expose_value=False, callback=_go_offline, help=what)
        command.params.append(flag)


def _tell_of_updates(command: click.Command) -> None:
    """Make a command and its subcommands report what an update changed before they run. Each update is reported
    once.
    """
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        _tell_of_updates(below)
    if command not in (help_, uninstall) and not isinstance(command, click.Group):
        command.callback = said_after_update(command.callback)


def _go_offline(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        from localctx.network import go_offline

        go_offline()


_add_offline(cli)
_tell_of_updates(cli)
