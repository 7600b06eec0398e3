"""A data folder with something of everything, damage at random places of its files, and the commands that then must not
fail with more than a line. Of pages, files and exported documents only what was kept is ever given out.
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

import numpy as np
from stored_caches import shelve, tokens_of
from stored_documents import MODEL, SLOT, add, open_cache, row

from localctx.errors import UserError
from localctx.store.bundle import export_document, import_document, open_bundle
from localctx.store.documents import Span
from localctx.store.originals import content_id
from localctx.store.store import Store, store_errors

TEXTS = {f"letter {i}": f"Dear reader {i}, the rent is {600 + i} euros. " * 20 for i in range(4)}
COMMANDS = [
    *(["library", "list"], ["library", "list", "--json"], ["library", "show", "letter 1"]),
    *(["library", "search", "rent"], ["library", "watch", "--list"], ["library", "pin", "letter 2"]),
    *(["chats", "list"], ["chats", "show", "The rent"], ["chats", "rename", "The rent", "Rent"]),
    *(["chats", "rm", "Two"], ["library", "rm", "letter 3"], ["library", "list"], ["library", "verify", "--json"]),
]
PATIENCE = 60  # seconds for one command
SETTINGS, BUNDLE = "settings.toml", "long.lctx"
SET = """# how answers are made
max_tokens = 128
temperature = 0.0  # the likeliest
mode = "auto"
disk = "2GiB"
"""
CACHES = ((1, 5), (2, 8))  # of the documents "short" and "long", as ``tokens_of`` takes them


def fill(home: Path) -> None:
    """Documents with chunks, pages, results and a file, two chats with branches, a deletion, settings, and an exported
    document.
    """
    with closing(Store(home)) as store:
        for i, (name, text) in enumerate(TEXTS.items()):
            document = row(name, text)
            store.documents.add(document, text, [Span(0, 20, "heading", "To the reader"), Span(20, 90, "page", "1")])
            store.index.add(document.id, text, [(at, at + 200, name) for at in range(0, 800, 200)], False)
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
        _keep_file(store, row("letter 2", TEXTS["letter 2"]).id)
        _keep_dense_pages(store)
        export_document(store, store.documents.find("long"), home / BUNDLE)
    (home / SETTINGS).write_text(SET)


def _keep_file(store: Store, document: str) -> None:
    """Keep the file of a document, as of an upload."""
    data, file = random.Random(1).randbytes(3000), store.home / "uploads" / "letter.pdf"
    file.parent.mkdir()
    file.write_bytes(data)
    store.originals.keep(document, file, content_id(data), 1 << 30)


def _keep_dense_pages(store: Store) -> None:
    """A document whose pages fill their slots with noise, so that most bytes of the file mean something."""
    (document,), (n, pages) = add(store, "long"), CACHES[1]
    tokens, noise = tokens_of(n, pages), random.Random(2)
    cache = open_cache(store, [document], tokens)
    with closing(store.pages.writer(MODEL, tokens, SLOT, cache)) as writer:
        for i in range(pages):
            writer.write(i, np.frombuffer(noise.randbytes(SLOT - 9 * i), np.uint8))
        writer.commit(pages)
    store.caches.mark_ready(cache)


def pick_file(home: Path, dice: random.Random) -> Path:
    """The database half the time, else a page file, a kept original, the settings or the exported document."""
    if dice.random() < 0.5:
        return home / "library.db"
    kept = [*sorted((home / "pages").glob("*.kv")), *sorted((home / "originals").iterdir())]
    return dice.choice([*kept, home / SETTINGS, home / BUNDLE])


def damage(file: Path, dice: random.Random) -> str:
    """Flip a bit of a file, or several, or cut it, or fill a part of it with noise; return what was done."""
    data = bytearray(file.read_bytes())
    what = dice.choice(["bit"] * 6 + ["bits", "cut", "page"])
    at = dice.randrange(min(100, len(data)) if dice.random() < 0.1 else len(data))
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
    return f"{file.name}, {what} at {at}"


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
    assert "something in localctx failed" not in err.getvalue(), err.getvalue()  # what nobody foresaw
    return code, out.getvalue(), err.getvalue()


def answer_in_a_line(home: Path, arguments: list[str]) -> None:
    """Run a command, which may fail with one line, or succeed with a line about what it could not do."""
    code, _, said = run_command(home, arguments)
    assert code in (0, 1, 2), code
    assert said.count("\n") <= 1 + (code == 0), said


def examine(home: Path) -> None:
    """What doctor says of the store; the rest of doctor measures the machine for seconds."""
    from localctx.doctor import _store
    from localctx.settings import load_settings

    with contextlib.suppress(UserError), alarm():
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


def pages_of(store: Store) -> list[list[bytes]]:
    """The pages that questions about the documents of CACHES find."""
    found = [store.pages.longest_prefix(MODEL, tokens_of(n, pages)).payloads for n, pages in CACHES]
    return [[payload.tobytes() for payload in payloads] for payloads in found]


def compare_kept(whole: Path, home: Path) -> None:
    """Each page and file that is given out is what was kept; what is missing is a miss."""
    document = row("letter 2", TEXTS["letter 2"]).id
    with closing(Store(whole)) as store:
        pages, file = pages_of(store), store.originals.read(document)
    assert [len(each) for each in pages] == [n for _, n in CACHES]
    assert file
    with contextlib.suppress(UserError), alarm(), closing(Store(home)) as store, store_errors(home):
        assert store.originals.read(document) in (None, file), "another file"
        for kept, found in zip(pages, pages_of(store), strict=True):
            assert found == kept[: len(found)], "another page"


def import_again(whole: Path, home: Path) -> None:
    """The exported document is refused in a sentence, or its name, text, spans and pages are those of the original."""
    with contextlib.suppress(UserError), alarm():
        bundle = open_bundle(home / BUNDLE)
        with closing(Store(home / "there")) as store, closing(Store(whole)) as kept:
            import_document(store, bundle, lambda cache: True, 1 << 40)
            (imported,) = store.documents.all()
            original = kept.documents.find("long")
            assert (imported.id, imported.name) == (original.id, "long")
            assert store.documents.stored(imported.id)[1:] == kept.documents.stored(original.id)[1:]
            assert pages_of(store)[1] == pages_of(kept)[1], "another page"


def repair(home: Path) -> None:
    """Repair the store, after which nothing is damaged."""
    for command in (["library", "verify", "--repair"], ["library", "verify"], ["library", "list"], ["chats", "list"]):
        code, _, said = run_command(home, command)
        assert code == 0, f"{' '.join(command)}: {said}"


Step = tuple[str, Callable[[], object]]


def steps_after(whole: Path, home: Path, file: Path, dice: random.Random) -> list[Step]:
    """What is done after damage to ``file``: what could notice it, in random order, and last the remedy."""
    if file.name == BUNDLE:
        return [("import", lambda: import_again(whole, home))]
    commands = [(" ".join(c), lambda c=c: answer_in_a_line(home, c)) for c in dice.sample(COMMANDS, 4)]
    steps: list[Step] = [("doctor", lambda: examine(home)), *commands]
    if file.name == SETTINGS:
        return [*steps, ("without settings", lambda: (file.unlink(), repair(home)))]
    steps += [("open", lambda: open_all(home)), ("compare", lambda: compare_kept(whole, home))]
    dice.shuffle(steps)
    return [*steps, ("repair", lambda: repair(home)), ("compare again", lambda: compare_kept(whole, home))]


def trial(whole: Path, home: Path, seed: int) -> list[str]:
    """Damage a file in a copy of the data folder ``whole`` and run commands on it; return a line for each failure."""
    dice, failures = random.Random(seed), list[str]()
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(whole, home)
    file = pick_file(home, dice)
    done = damage(file, dice)
    gc.freeze()  # what was there before costs no collection any time
    for name, step in steps_after(whole, home, file, dice):
        try:
            step()
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            failures.append(f"seed {seed}, {done}: {name}: {type(e).__name__}: {e}")
    gc.unfreeze()
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
