"""``chat``: answers questions that build on each other, typed at a terminal or line by line from a pipe."""

import io
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localctx.cli.advice import advise_once
from localctx.cli.ask import open_session, print_notes, show_events
from localctx.cli.common import answer_options, model_options, open_store, quiet_option, until_option
from localctx.cli.printing import print_error
from localctx.cli.sections import SectionedCommand
from localctx.errors import INTERRUPTED, Cancelled, ChatFull, UsageError, UserError
from localctx.file_names import shown_name

if TYPE_CHECKING:
    from localctx.cli.terminal import Terminal
    from localctx.engine.events import Event
    from localctx.session import Session
    from localctx.store.chats import Chat, Chats, Message
    from localctx.workflows.chat.chat import ChatWorkflow, FullChatAction

FULL_CHAT_ACTIONS: "tuple[FullChatAction, ...]" = ("sink-window", "summarize", "new")


@click.command(cls=SectionedCommand)
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option("-r", "--resume", metavar="CHAT", help="Continue this chat: an id, its beginning, or a title.")
@click.option("-c", "--continue", "last", is_flag=True, help="Continue the chat that was used last.")
@click.option(
    "--when-full",
    type=click.Choice(FULL_CHAT_ACTIONS),
    help="When a chat is longer than the window: see only its end, summarize it, or begin a new chat.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each answer, a line each.")
@until_option
@answer_options
@model_options
@quiet_option
def chat(
    files: tuple[str, ...],
    resume: str | None,
    last: bool,
    when_full: "FullChatAction | None",
    as_json: bool,
    quiet: bool,
    until: str,
    **flags: Any,
) -> None:
    """Talk about FILEs: each answer takes the whole conversation into account. From a pipe, one question per line.

    Messages and their pages are stored, so that a chat can be continued at any time, also after a restart. /help lists
    further commands. Ctrl-C stops an answer and keeps its beginning, Ctrl-D leaves.

    \b
    localctx chat report.pdf
    localctx chat -c
    printf "Who wrote it?\\nWhen?\\n" | localctx chat report.pdf --json
    """
    if "-" in files:
        raise UsageError("standard input (-) is used for the questions", "name a file")
    if resume and last:
        raise UsageError("--resume and --continue cannot be combined", "give one of them")
    resumed = _find(resume) if resume or last else None
    if resumed:
        flags["model"] = flags["model"] or resumed.settings.get("model")
    with open_session(flags, as_json, quiet) as (session, terminal):
        if session.settings.n > 1:
            raise UsageError("a chat gives one answer at a time", "leave out --n; /regenerate 0.8 gives another")
        command = ChatCommand(session, terminal, when_full, as_json, until)
        command.begin(resumed, files)
        try:
            command.run()
        finally:
            command.forget_empty()
    if command.answered and not (as_json or quiet):
        advise_once(session.settings, terminal)
    if command.stopped and not command.interactive:
        sys.exit(INTERRUPTED)


def _find(name: str | None) -> "Chat":
    with open_store() as store:
        return store.chats.find(name) if name else store.chats.last()


class ChatCommand:
    """One run of the command ``chat``: reads lines and prints answers."""

    def __init__(
        self, session: "Session", terminal: "Terminal", when_full: "FullChatAction | None", as_json: bool, until: str
    ) -> None:
        self._session, self._terminal, self._when_full, self._json = session, terminal, when_full, as_json
        self._until = until  # the place up to which the document is read; empty means all
        self.interactive, self.stopped, self._quitting = sys.stdin.isatty(), False, False
        self.answered = False
        self._id = ""

    def begin(self, chat: "Chat | None", files: Sequence[str]) -> None:
        """Continue ``chat`` and add ``files`` to it, or start a new chat about them. Raises UserError."""
        if chat is None:
            self._id = self._workflow.start(files).id
            return
        self._id = chat.id
        self._workflow.add_documents(chat.id, files)
        self._terminal.hint(f"{chat.title} ({chat.id}), {len(self._chats.messages(chat.id)):,} messages")

    def forget_empty(self) -> None:
        """Delete the chat if it has no messages."""
        if not self._chats.tree(self._id):
            self._session.store.remove_chat(self._id)

    def run(self) -> None:
        """Handle each line, which is a question or a command.

        At a terminal an error is printed; from a pipe it ends the run.
        """
        for line in filter(None, map(str.strip, map(shown_name, self._lines()))):
            try:
                self._run_line(line)
            except (UserError, Cancelled) as e:
                self._terminal.end_answer()
                if not self.interactive:
                    raise
                print_error(f"localctx: {str(e) or 'stopped'}")
            if self._quitting or (self.stopped and not self.interactive):
                break

    def _lines(self) -> Iterator[str]:
        if not self.interactive:
            if isinstance(sys.stdin, io.TextIOWrapper):
                sys.stdin.reconfigure(errors="replace")
            yield from sys.stdin
            return
        with suppress(ImportError):
            import readline  # noqa: F401 (input then edits lines and remembers them)
        while True:
            try:
                yield input("> ")
            except EOFError:
                print_error("")
                return
            except KeyboardInterrupt:
                print_error("")

    def _run_line(self, line: str) -> None:
        if not line.startswith("/"):
            self._answer(self._session.run(self._workflow.ask(self._id, line, self._until)))
            return
        name, _, rest = line[1:].partition(" ")
        if name not in COMMANDS:
            raise UsageError(f"there is no command /{name}", "see /help")
        COMMANDS[name][1](self, rest.strip())

    def _answer(self, events: "Generator[Event, None, None]") -> None:
        try:
            self._show(events)
        except ChatFull as full:
            action = self._when_full or (self.interactive and self._choose(full))
            if not action:
                raise
            self._show(self._session.run(self._workflow.make_room(self._id, action, self._until)))

    def _show(self, events: "Generator[Event, None, None]") -> None:
        from localctx.cli.terminal import print_json

        done = show_events(events, self._terminal)
        report = done.report.to_json()
        self._id = report["chat"]
        self._terminal.end_answer()
        if self._json:
            print_json(report, indent=None)
        print_notes(report, self._session.settings.max_tokens, self._terminal)
        if done.failed:
            print_error(f"localctx: {done.failed}")
        self.stopped = report["stopped"] == "cancelled"
        self.answered = self.answered or not (self.stopped or done.failed)

    def _choose(self, full: ChatFull) -> "FullChatAction":
        print_error(f"localctx: {full.problem}")
        return click.prompt("How to continue", type=click.Choice(FULL_CHAT_ACTIONS), err=True)

    @property
    def _workflow(self) -> "ChatWorkflow":
        return self._session.workflows.chats

    @property
    def _chats(self) -> "Chats":
        return self._session.store.chats

    # The commands in the table below

    def _help(self, rest: str) -> None:
        for name, (usage, _, what) in COMMANDS.items():
            print_error(f"{f'/{name} {usage}'.strip():27}{what}")

    def _quit(self, rest: str) -> None:
        self._quitting = True

    def _new(self, rest: str) -> None:
        new = self._workflow.restart(self._id)
        self.forget_empty()
        self._id = new.id

    def _rename(self, rest: str) -> None:
        self._chats.rename(self._id, rest)

    def _regenerate(self, rest: str) -> None:
        try:
            temperature = float(rest) if rest else None
        except ValueError:
            raise UsageError(f"{rest!r} is not a temperature", "for example: /regenerate 0.8") from None
        self._answer(self._session.run(self._workflow.regenerate(self._id, temperature, self._until)))

    def _continue(self, rest: str) -> None:
        self._answer(self._session.run(self._workflow.continue_answer(self._id)))

    def _edit(self, rest: str) -> None:
        if not rest:
            raise UsageError("/edit takes the question in other words", "for example: /edit Who was it?")
        self._answer(self._session.run(self._workflow.edit(self._id, rest, until=self._until)))

    def _read_until(self, rest: str) -> None:
        self._until = rest
        print_error(f"read up to {rest}" if rest else "the whole document is read")

    def _branches(self, rest: str) -> None:
        current = self._chats.get(self._id).leaf
        for i, leaf in enumerate(self._leaves(), 1):
            print_error(f"{'*' if leaf.id == current else ' '} {i}: {_short(leaf.text)}")

    def _branch(self, rest: str) -> None:
        leaves = self._leaves()
        if not rest.isdecimal() or not 0 < int(rest) <= len(leaves):
            raise UsageError(f"there is no branch {rest!r}", "see /branches")
        self._chats.select(leaves[int(rest) - 1])

    def _export(self, rest: str) -> None:
        from localctx.cli.chats import export_chat

        if not rest:
            raise UsageError("/export takes a file", "for example: /export chat.md")
        export_chat(self._chats, self._chats.get(self._id), Path(rest))

    def _docs(self, rest: str) -> None:
        for d in self._chats.get(self._id).documents:
            print_error(f"{d.name}{' (removed)' * d.removed}")

    def _add(self, rest: str) -> None:
        if not rest:
            raise UsageError("/add takes a file", "for example: /add notes.md")
        self._workflow.add_documents(self._id, [rest])

    def _leaves(self) -> "list[Message]":
        return self._chats.branches(self._id)[::-1]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:69]}…"


COMMANDS: dict[str, tuple[str, Callable[[ChatCommand, str], None], str]] = {
    "help": ("", ChatCommand._help, "this list"),
    "quit": ("", ChatCommand._quit, "leave; Ctrl-D too"),
    "new": ("", ChatCommand._new, "start a new chat about the same documents"),
    "rename": ("TITLE", ChatCommand._rename, "give this chat another title"),
    "regenerate": ("[TEMPERATURE]", ChatCommand._regenerate, "answer the last question again"),
    "continue": ("", ChatCommand._continue, "go on with an answer that was cut or stopped"),
    "edit": ("TEXT", ChatCommand._edit, "ask the last question in other words"),
    "until": ("[PLACE]", ChatCommand._read_until, "read the document only so far from now on, or all of it"),
    "branches": ("", ChatCommand._branches, "list the versions of this chat; * marks the current one"),
    "branch": ("N", ChatCommand._branch, "switch to version N"),
    "export": ("FILE", ChatCommand._export, "write this branch to FILE.md, or the whole chat to FILE.json"),
    "docs": ("", ChatCommand._docs, "list the documents of this chat"),
    "add": ("FILE", ChatCommand._add, "add another document"),
}
