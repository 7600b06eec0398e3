"""Processes that write one store and are killed: what they were told is stored must be there."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ask_in_process import said, start
from stored_documents import add, files, keep, kept, segments

from localctx.shape import PAGE
from localctx.store.store import Store, store_errors


@dataclass
class Expected:
    """What was acknowledged: where each document is (``there``, ``trash``, ``gone``), by name, messages by chat, and
    numbers of kept sequences. What was begun and not acknowledged may be either way.
    """

    documents: dict[str, str] = field(default_factory=dict)
    messages: dict[str, list[int]] = field(default_factory=dict)
    pages: dict[str, int] = field(default_factory=dict)


def tokens_of(number: int) -> list[int]:
    return [number, *range(1, 2 * PAGE)]


def write(say: Callable, home: Path, name: str, seed: int, seconds: float) -> None:
    """Write until killed, or so many seconds long; say what begins and what is done."""
    dice, mine, trash, until = random.Random(seed), list[str](), dict[str, int](), time.monotonic() + seconds
    with closing(Store(home)) as store, store_errors(home):
        say(("ready",))
        count = 0
        while time.monotonic() < until:
            count += 1
            what = dice.choice(["add", "add", "chat", "delete", "restore", "forget"])
            if what == "add":
                text, number = f"{name} {seed} {count}", dice.randrange(1 << 31)
                say(("begin", text))
                (document,) = add(store, text)
                say(("document", text, "there"))
                keep(store, [document], tokens_of(number))
                say(("pages", text, number))
                mine.append(text)
            elif what == "chat":
                chat = store.chats.create(name).id
                for i in range(3):
                    say(("message", chat, store.chats.append(chat, None, "user", f"question {i}").id))
            elif what == "delete" and mine:
                text = mine.pop(dice.randrange(len(mine)))
                say(("begin", text))
                trash[text] = store.delete("document", store.documents.find(text).id).id
                say(("document", text, "trash"))
            elif trash:
                text, deletion = trash.popitem()
                say(("begin", text))
                if what == "restore":
                    store.deletions.restore(deletion)
                    mine.append(text)
                else:
                    store.forget_deleted(only=[deletion])
                say(("document", text, "there" if what == "restore" else "gone"))


def kill(home: Path, seed: int, processes: int = 1, seconds: float = 0.3) -> Expected:
    """Run so many writers, kill all at a random moment, and return what they were told."""
    dice, expected = random.Random(seed), Expected()
    running = [start(write, home, f"writer{i}", seed, 60.0) for i in range(processes)]
    for _, connection in running:
        assert connection.recv() == ("ready",)
    time.sleep(dice.uniform(0, seconds))
    for process, _ in running:
        process.kill()
    for process, connection in running:
        for event in said(connection):
            note(expected, event)
        process.join()
    return expected


def note(expected: Expected, event: tuple) -> None:
    """Take down what a writer said."""
    if event[0] == "begin":
        expected.documents[event[1]] = "?"
        expected.pages.pop(event[1], None)
    elif event[0] == "document":
        expected.documents[event[1]] = event[2]
    elif event[0] == "message":
        expected.messages.setdefault(event[1], []).append(event[2])
    elif event[0] == "pages":
        expected.pages[event[1]] = event[2]


def wrong(home: Path, expected: Expected) -> list[str]:
    """What is not as it was acknowledged, or is damaged or left over."""
    found = list[str]()
    with closing(Store(home)) as store, store_errors(home):
        store.pages.sweep()
        store.caches.note_rate(b"", 1.0)  # a write takes over the journal of a transaction that had not begun
        if not store.verify().intact:
            return [f"damaged: {store.verify().to_json()}"]
        there, trash = {d.name for d in store.documents.all()}, {d.name for d in store.deletions.all()}
        for name, where in expected.documents.items():
            is_now = "there" if name in there else "trash" if name in trash else "gone"
            found += [f"{name} is {is_now}, not {where}"] if where not in ("?", is_now) else []
        for chat, messages in expected.messages.items():
            found += [f"message of {chat} lost"] if {m.id for m in store.chats.tree(chat)} < set(messages) else []
        found += [f"pages of {name} lost" for name, n in expected.pages.items() if kept(store, tokens_of(n)) < 2]
        found += [f"left over: {name}" for name in files(store) ^ segments(store)]
        found += [f"left over: {f.name}" for f in home.iterdir() if f.suffix == ".part" or "-journal" in f.name]
    return found
