"""Backs up the database, the settings, the kept original files and, on request, the KV pages to one ZIP file.

The backup's manifest has the SHA-256 of each file. If any hash differs, nothing is restored.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from localctx.errors import DocumentError, StoreError
from localctx.store.database import copy_database, file_time, open_database
from localctx.store.integrity import damaged_rows, examine_database
from localctx.store.store import Store, store_errors
from localctx.system import sync
from localctx.version import __version__

FORMAT = "localctx backup 1"
DATABASE, SETTINGS = "library.db", "settings.toml"
_NAMES = re.compile(r"library\.db|settings\.toml|originals/[0-9a-f]{64}|pages/[0-9a-z-]+\.kv")
_OF_PAGES = ("cache_pages", "pages", "segments", "cache_documents", "caches")
_BLOCK = 1 << 20  # bytes read at once
_DAMAGE = (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, LookupError, TypeError, ValueError, EOFError)


@dataclass(frozen=True)
class BackedUp:
    """What a backup contains: the numbers of ``documents``, ``chats`` and ``files``. ``nbytes`` is the size of the
    backup in bytes.
    """

    documents: int
    chats: int
    files: int
    nbytes: int


def write_backup(store: Store, path: Path, pages: bool = False) -> BackedUp:
    """Back up the store and the settings to the new file ``path``, which is written atomically. If ``pages``, the
    stored KV pages are included.

    Raises DocumentError if ``path`` exists or cannot be written, and StoreError if the store cannot be read.
    """
    if path.exists():
        raise DocumentError(f"{path} exists", "choose another name, or remove it first")
    part = path.with_name(f".{path.name}.part")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".localctx-") as folder:
            result = _pack(store, Path(folder), part, pages)
        sync(part)
        part.replace(path)
    except OSError as e:
        raise DocumentError(f"{path} cannot be written ({e})", "choose another place, or free some space") from e
    finally:
        part.unlink(missing_ok=True)
    return BackedUp(*result, path.stat().st_size)


def restore_backup(path: Path, home: Path, replace: bool = False) -> Path | None:
    """Restore a backup into the data folder ``home``, after verifying all checksums.

    If the folder has a database or settings, ``replace`` must be True. The old data is then first backed up to a file
    beside the folder, and the path of that file is returned. The old database stays in use until all other files are in
    place. Raises DocumentError if the backup is damaged or cannot be read, and StoreError if the folder is not empty or
    cannot be written.
    """
    if (occupied := is_occupied(home)) and not replace:
        raise StoreError(f"{home} is not empty", "restore into another LOCALCTX_HOME, or replace it with --replace")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".localctx-") as folder:
        _unpack(path, Path(folder))
        _check_database(path, Path(folder) / DATABASE)
        before = _back_up_old(home) if occupied else None
        with store_errors(home):
            _put_in_place(Path(folder), home)
    return before


def is_occupied(home: Path) -> bool:
    """Returns True if the data folder has a database or settings. A folder with only models is not occupied."""
    return any((home / name).exists() for name in (DATABASE, SETTINGS))


def _pack(store: Store, folder: Path, part: Path, pages: bool) -> tuple[int, int, int]:
    copy = folder / DATABASE
    with store_errors(store.home):
        copy_database(store.db, copy)
    files = {DATABASE: copy, SETTINGS: store.home / SETTINGS}
    files |= {f"originals/{file.name}": file for file in (store.home / "originals").glob("*")}
    if pages:
        files |= {f"pages/{file.name}": file for file in store.folder.glob("*.kv")}
    else:
        _leave_out_pages(copy)
    part.touch(0o600)
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        sums = dict[str, dict[str, Any]]()
        for name, file in files.items():
            with suppress(FileNotFoundError):  # the file was evicted meanwhile, or there are no settings
                sums[name] = _add(archive, name, file)
        manifest = {"format": FORMAT, "localctx": __version__, "made": time.time(), "files": sums}
        archive.writestr("manifest.json", json.dumps(manifest))
    with closing(sqlite3.connect(copy)) as db:
        counts = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("documents", "chats")]
    return counts[0], counts[1], len(sums)


def _leave_out_pages(copy: Path) -> None:
    with closing(open_database(copy)) as db:
        with db.atomic():
            for table in _OF_PAGES:
                db.execute(f"DELETE FROM [{table}]")
        db.execute("VACUUM")


def _add(archive: zipfile.ZipFile, name: str, file: Path) -> dict[str, Any]:
    """Add a file to the archive; returns the length and hash of the bytes added."""
    digest, length = hashlib.sha256(), 0
    compressed = zipfile.ZIP_STORED if name.startswith("pages/") else zipfile.ZIP_DEFLATED  # pages hardly compress
    info = zipfile.ZipInfo(name, time.localtime()[:6])
    info.compress_type, info.external_attr = compressed, 0o600 << 16
    with file.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
        while block := source.read(_BLOCK):
            digest.update(block)
            length += len(block)
            target.write(block)
    return {"bytes": length, "sha256": digest.hexdigest()}


def _unpack(path: Path, folder: Path) -> None:
    """Write the files of a backup into ``folder``. Raises DocumentError if one does not match the manifest."""
    with _damage_of(path), zipfile.ZipFile(path) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        if manifest["format"] != FORMAT:
            raise ValueError("it is of another format")
        files = manifest["files"]
        if DATABASE not in files or not all(_NAMES.fullmatch(name) for name in files):
            raise ValueError("its files are not those of a data folder")
        for name, wanted in files.items():
            target = folder / name
            target.parent.mkdir(exist_ok=True, mode=0o700)
            with archive.open(name) as source, target.open("xb") as written:
                target.chmod(0o600)
                if _copy_checked(source, written, wanted["bytes"]) != wanted["sha256"]:
                    raise ValueError(f"{name} fails its checksum")


def _copy_checked(source: Any, target: Any, length: int) -> str:
    """Copy at most ``length`` bytes and sync them; returns their hash, or "" if ``source`` has more bytes."""
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        length -= len(block)
        if length < 0:
            return ""
        target.write(block)
    target.flush()
    os.fsync(target.fileno())
    return digest.hexdigest()


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise DocumentError(
            f"{path} cannot be restored ({e})", "check that you may read it, and that there is room"
        ) from e
    except _DAMAGE as e:
        reason = str(e) if type(e) is ValueError else type(e).__name__
        raise DocumentError(
            f"{path} is damaged, or not a backup ({reason})", "use another backup; nothing changed"
        ) from e
    except (RuntimeError, NotImplementedError) as e:  # zipfile: encrypted, or an unknown compression
        raise DocumentError(f"{path} is not a backup of localctx ({type(e).__name__})", "use another one") from e


def _check_database(path: Path, database: Path) -> None:
    """Migrate an older database of a backup. Raises DocumentError if the database is damaged."""
    with closing(_open(path, database)) as db:
        if (fault := examine_database(db)) != "ok" or damaged_rows(db):
            raise DocumentError(f"the database in {path} is damaged ({fault})", "use another backup; nothing changed")
    shutil.rmtree(database.parent / "backups", ignore_errors=True)


def _open(path: Path, database: Path) -> Database:
    try:
        return open_database(database)
    except sqlite3.Error as e:
        raise DocumentError(f"the database in {path} is damaged ({e})", "use another backup; nothing changed") from e


def _back_up_old(home: Path) -> Path:
    path = home.with_name(f"{home.name}-before-restore-{file_time()}.lcbackup")
    with closing(Store(home)) as store:
        write_backup(store, path)
    return path


def _put_in_place(folder: Path, home: Path) -> None:
    """Move the files into the data folder. The database is moved last, so that it never names a missing file; page
    files and original files overwrite nothing, because their names are unique.
    """
    for name in ("originals", "pages"):
        (home / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in (folder / name).glob("*"):
            file.replace(home / name / file.name)
    if (folder / SETTINGS).exists():
        (folder / SETTINGS).replace(home / SETTINGS)
    else:
        (home / SETTINGS).unlink(missing_ok=True)
    (home / f"{DATABASE}-journal").unlink(missing_ok=True)
    (folder / DATABASE).replace(home / DATABASE)
    for changed in (home / "originals", home / "pages", home):
        with suppress(OSError):
            sync(changed)
    with closing(Store(home)) as store:
        store.pages.sweep()
        store.originals.sweep()
