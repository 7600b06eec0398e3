"""Power cuts: a process is recorded as it writes its store, and the disk is made again as a cut may leave it: what came
before the last fsync of a file or folder is there, and of what came after it some is, in any combination.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from stored_documents import add, keep, kept

from localctx.errors import StoreError
from localctx.shape import PAGE
from localctx.store.store import Store, store_errors

HERE = Path(__file__).parent
_SYNCHRONOUS = {"synchronous": "OFF", "folder": "FULL"}  # FULL does not sync the folder after a journal is deleted
_SECTOR = 512  # bytes that a disk writes whole or not at all


@dataclass
class File:
    """A file's changes in order: (offset, data), or (length, None) for a truncation; the first ``synced`` are safe."""

    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    synced: int = 0


@dataclass
class Folder:
    """Changes of a folder's names, in order: (name, file, or None where it was unlinked)."""

    changes: list[tuple[str, File | None]] = field(default_factory=list)
    synced: int = 0


def tokens_of(number: int) -> list[int]:
    """Tokens of three pages."""
    return [number, *range(1, 3 * PAGE)]


def work(home: Path, rounds: int, broken: str) -> None:
    """What is recorded: documents, pages, chats, deletions; each is acknowledged by a line in the file ``acks``."""
    if broken == "fsync":
        from localctx.store.pages.slot_file import SlotWriter

        SlotWriter.sync = lambda self: None
    with closing(Store(home)) as store, store_errors(home), (home / "acks").open("ab", buffering=0) as acks:
        if broken in _SYNCHRONOUS:
            store.db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[broken]}")
        for i in range(rounds):
            (document,) = add(store, f"text {i}")
            acks.write(json.dumps(["document", document]).encode() + b"\n")
            keep(store, [document], tokens_of(i))
            acks.write(json.dumps(["pages", i]).encode() + b"\n")
            chat = store.chats.create(f"chat {i}", [document]).id
            said = store.chats.append(chat, None, "user", f"question {i}")
            acks.write(json.dumps(["message", said.id]).encode() + b"\n")
            if i % 3 == 2:
                deletion = store.delete("document", document)
                acks.write(json.dumps(["deleted", i, document]).encode() + b"\n")
                if i % 2:
                    store.deletions.restore(deletion.id)
                    acks.write(json.dumps(["document", document]).encode() + b"\n")


def record(folder: Path, rounds: int, broken: str = "") -> list[tuple[str, int, int, bytes]]:
    """Run ``work`` in a process whose writes are recorded; return them."""
    shim, log, home = folder / "shim.so", folder / "log", folder / "home"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, HERE / "power_shim.c", "-ldl"], check=True)
    there = {"POWER_ROOT": str(home), "POWER_LOG": str(log), "LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE)}
    code = f"from pathlib import Path; from power_cuts import work; work(Path({str(home)!r}), {rounds}, {broken!r})"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **there}, check=True)
    return list(_records(log.read_bytes()))


def _records(data: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    at = 0
    while at < len(data):
        kind, fd, offset, length = struct.unpack_from("<ciqq", data, at)
        yield kind.decode(), fd, offset, data[at + 21 : at + 21 + length]
        at += 21 + length


def cut(records: list[tuple[str, int, int, bytes]], home: Path, target: Path, dice: random.Random) -> list[list]:
    """Make the disk as a power cut at a random moment may leave it, in ``target``; return what was acknowledged."""
    folders, opened, names = dict[str, Folder](), dict[int, str](), dict[str, File]()
    acks = b""
    for kind, fd, offset, data in records[: dice.randrange(len(records) // 20, len(records) + 1)]:
        path = opened.get(fd, "")
        if kind == "o":
            path = opened[fd] = data.decode()
            if Path(path).suffix not in (".kv", ".db", ".db-journal") and not path.endswith("-journal"):
                continue
            if path not in names:
                names[path] = File()
                _folder(folders, path).changes.append((path, names[path]))
            elif offset:
                names[path].changes.append((0, None))
        elif path.endswith("acks") and kind == "w":
            acks += data
        elif path in names and kind in "wt":
            names[path].changes.append((offset, data if kind == "w" else None))
        elif path in names and kind == "s":
            names[path].synced = len(names[path].changes)
        elif kind == "s":
            folder = folders.setdefault(path.rstrip("/"), Folder())
            folder.synced = len(folder.changes)
        elif kind == "u" and (gone := data.decode()) in names:
            del names[gone]
            _folder(folders, gone).changes.append((gone, None))
    shutil.rmtree(target, ignore_errors=True)
    for folder in folders.values():
        _write_folder(folder, home, target, dice)
    return [json.loads(line) for line in acks.splitlines()]


def _folder(folders: dict[str, Folder], path: str) -> Folder:
    return folders.setdefault(str(Path(path).parent), Folder())


def _write_folder(folder: Folder, home: Path, target: Path, dice: random.Random) -> None:
    there = dict[str, File]()
    for name, file in folder.changes[: dice.randint(folder.synced, len(folder.changes))]:
        if file:
            there[name] = file
        else:
            there.pop(name, None)
    for name, file in there.items():
        path = target / Path(name).relative_to(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_content(file, dice))


def _content(file: File, dice: random.Random) -> bytes:
    data = bytearray()
    for i, (offset, new) in enumerate(file.changes):
        if i >= file.synced and dice.random() < 0.5:
            continue
        if new is None:
            data = data[:offset].ljust(offset, b"\0")
            continue
        if i >= file.synced and dice.random() < 0.3:
            new = new[: dice.randrange(0, len(new) + 1, _SECTOR)] if len(new) > _SECTOR else new  # torn
        data = data.ljust(offset, b"\0")
        data[offset : offset + len(new)] = new
    return bytes(data)


def lost(home: Path, acks: list[list]) -> list[str]:
    """What is wrong with a store after a cut: damage, and what was acknowledged and is not there."""
    wrong = list[str]()
    with closing(Store(home)) as store, store_errors(home):
        verified = store.verify()
        if not verified.intact:
            return [f"damaged: {verified.to_json()}"]
        trash = {d.item for d in store.deletions.all()}
        for what, value, *_ in acks:
            if what == "document" and not store.documents.has(value) and value not in trash:
                wrong.append(f"document {value[:8]} lost")
            if what == "pages" and value % 3 != 2 and kept(store, tokens_of(value)) < 3:  # others go with a deletion
                wrong.append(f"pages {value} lost")
            if what == "message" and not list(store.db.query("SELECT id FROM messages WHERE id = ?", [value])):
                wrong.append(f"message {value} lost")
    return wrong


def failures(folder: Path, records: list[tuple[str, int, int, bytes]], seeds: Iterable[int]) -> list[str]:
    """What was wrong after a cut for each seed, of the process that was recorded in ``folder``."""
    wrong = list[str]()
    for seed in seeds:
        acks = cut(records, folder / "home", folder / "after", random.Random(seed))
        try:
            wrong += lost(folder / "after", acks)
        except StoreError as e:
            wrong.append(str(e))
    return wrong
