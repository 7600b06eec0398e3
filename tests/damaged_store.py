"""A small store with something of everything, damage at random places of it, and the commands that then must not fail
with more than a line.
"""

import contextlib
import gc
import io
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from stored_caches import shelve
from stored_documents import MODEL, row

from localctx.errors import UserError
from localctx.store.documents import Span
from localctx.store.store import Store, store_errors

TEXTS = {f"letter {i}": f"Dear reader {i}, the rent is {600 + i} euros. " * 20 for i in range(4)}
COMMANDS = [
    *(["library", "list"], ["library", "list", "--json"], ["library", "show", "letter 1"]),
    *(["library", "search", "rent"], ["library", "watch", "--list"], ["library", "pin", "letter 2"]),
    *(["chats", "list"], ["chats", "show", "The rent"], ["chats", "rename", "The rent", "Rent"]),
    *(["chats", "rm", "Two"], ["library", "rm", "letter 3"], ["library", "list"], ["library", "verify", "--json"]),
]
PATIENCE = 60  # seconds for one command


def fill(home: Path) -> None:
    """Documents with chunks, pages and results, two chats with branches, and a deletion."""
    with closing(Store(home)) as store:
        for i, (name, text) in enumerate(TEXTS.items()):
            document = row(name, text)
            store.documents.add(document, text, [Span(0, 20, "heading", "To the reader"), Span(20, 90, "page", "1")])
            store.index.add(document.id, text, [(at, at + 200, name) for at in range(0, 800, 200)])
            store.results.put(document.id, "recipe", {"summary": f"Rent {i}"})
            store.collections.add("Letters", [document.id])
        first = shelve(store, "short", 1, 10)
        store.quality_results.note(MODEL, "m", "int8", True, {"agreement": 1.0})
        store.caches.note_rate(MODEL, 100.0)
        for title in ("The rent", "Two"):
            chat = store.chats.create(title, [first]).id
            parent = None
            for i in range(6):
                said = store.chats.append(chat, parent, "user" if i % 2 == 0 else "assistant", f"{title} {i} " * 30)
                parent = said.id if i < 4 else None
        store.watch_list.add("/letters")
        store.delete("document", row("letter 0", TEXTS["letter 0"]).id)


def damage(home: Path, dice: random.Random) -> str:
    """Flip a bit of the database, or cut it, or fill a part of it; return what was done."""
    file = home / "library.db"
    data = bytearray(file.read_bytes())
    what = dice.choice(["bit"] * 6 + ["bits", "cut", "page"])
    at = dice.randrange(100 if dice.random() < 0.1 else len(data))
    if what in ("bit", "bits"):
        for _ in range(1 if what == "bit" else 8):
            data[at] ^= 1 << dice.randrange(8)
            at = dice.randrange(len(data))
    elif what == "cut":
        del data[at:]
    else:
        at -= at % 4096
        data[at : at + 4096] = bytes(dice.randrange(256) for _ in range(min(4096, len(data) - at)))
    file.write_bytes(data)
    return f"{what} at {at}"


class Unfinished(Exception):
    """A command did not end in time."""


def run_command(home: Path, arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code and what it printed. Raises what escapes from it."""
    from localctx import cli

    os.environ |= {"LOCALCTX_HOME": str(home), "LOCALCTX_EMBEDDER": "none"}
    sys.argv = ["localctx", *arguments]
    with alarm(), contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = cli.run()
    gc.collect()  # which the command leaves to the end of its process
    return code, out.getvalue(), err.getvalue()


def examine(home: Path) -> None:
    """What doctor says of the store; the rest of doctor measures the machine for seconds."""
    from localctx.doctor import _store
    from localctx.settings import load_settings

    with alarm():
        _store(load_settings(home=home), [])


def open_all(home: Path) -> None:
    """What the window reads: everything through the store. Raises what is no UserError."""
    with contextlib.suppress(UserError), alarm(), closing(Store(home)) as store, store_errors(home):
        for document in store.documents.all():
            store.documents.stored(document.id)
            store.caches.of_document(document.id)
        for chat in store.chats.all():
            store.chats.messages(chat.id)
            store.chats.branches(chat.id)
        store.collections.names()
        for deletion in store.deletions.all():
            store.deletions.restore(deletion.id)


def repair(home: Path) -> None:
    """Repair the store, after which nothing is damaged."""
    for command in (["library", "verify", "--repair"], ["library", "verify"], ["library", "list"], ["chats", "list"]):
        code, _, said = run_command(home, command)
        assert code == 0, f"{' '.join(command)}: {said}"


def trial(whole: Path, home: Path, seed: int, ask: Callable[[Path], None] | None = None) -> list[str]:
    """Damage a copy of the store ``whole`` and run every command on it; return a line for each that failed."""
    dice, failures = random.Random(seed), list[str]()
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(whole, home)
    done = damage(home, dice)
    steps: list[tuple[str, Callable[[], object]]] = [("open", lambda: open_all(home))]
    steps.append(("doctor", lambda: examine(home)))
    steps += [(" ".join(c), lambda c=c: run_command(home, c)) for c in dice.sample(COMMANDS, 4)]
    steps.append(("repair", lambda: repair(home)))
    if ask:
        steps.insert(0, ("ask", lambda: ask(home)))
    for name, step in steps:
        try:
            step()
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            failures.append(f"seed {seed}, {done}: {name}: {type(e).__name__}: {e}")
    return failures


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Raises Unfinished in the block after PATIENCE seconds."""

    def stop(*_: object) -> None:
        raise Unfinished

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
