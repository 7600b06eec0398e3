"""A way back: backups that are restored on an empty machine, copies before changes of the schema, and the trash, out of
which nothing can be read once it is emptied.
"""

import json
import random
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from damaged_store import fill
from stored_caches import tokens_of
from stored_documents import add, kept, row

from localctx.errors import DocumentError, StoreError
from localctx.store.maintenance.backup import restore_backup, write_backup
from localctx.store.pages.stored_pages import CACHE_TAG
from localctx.store.schema import migrate
from localctx.store.store import Store

pytestmark = pytest.mark.slow

SECRET = "the password of the harbour master is heron seventeen"


def contents(home: Path) -> dict[str, object]:
    """What a user has in a data folder."""
    with closing(Store(home)) as store:
        return {
            "documents": {d.id: store.documents.stored(d.id) for d in store.documents.all()},
            "chats": [(c, store.chats.tree(c.id)) for c in store.chats.all()],
            "collections": store.collections.names(),
            "folders": store.watch_list.folders(),
            "results": [store.results.get(d.id, "recipe") for d in store.documents.all()],
            "quality": store.quality_results.of_model("m"),
            "trash": store.deletions.all(),
            "settings": (home / "settings.toml").read_text() if (home / "settings.toml").exists() else "",
        }


@pytest.fixture
def filled(home) -> Path:
    fill(home)
    (home / "settings.toml").write_text('kv = "int8"\n')
    return home


@pytest.mark.parametrize("pages", [False, True])
def test_a_backup_restores_everything_on_an_empty_machine(filled, tmp_path, run, monkeypatch, pages):
    before = contents(filled)
    done = run("backup", tmp_path / "all.lcbackup", *["--pages"] * pages)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "all.lcbackup").stat().st_mode & 0o077 == 0
    shutil.rmtree(filled)
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "new" / "home"))
    done = run("restore", tmp_path / "all.lcbackup")
    assert (done.returncode, done.stderr) == (0, "")
    assert contents(tmp_path / "new" / "home") == before
    with closing(Store(tmp_path / "new" / "home")) as store:
        assert store.verify().intact
        assert kept(store, tokens_of(1)) == (5 if pages else 0)
        assert store.index.by_words("rent", 3)


def test_a_folder_that_is_not_empty_is_replaced_only_when_asked_and_can_be_had_back(filled, tmp_path):
    with closing(Store(filled)) as store:
        write_backup(store, tmp_path / "first.lcbackup")
        first = contents(filled)
        add(store, "written later")
    second = contents(filled)
    with pytest.raises(StoreError, match=r"not empty.*--replace"):
        restore_backup(tmp_path / "first.lcbackup", filled)
    assert contents(filled) == second
    beside = restore_backup(tmp_path / "first.lcbackup", filled, replace=True)
    assert contents(filled) == first
    assert beside.parent == filled.parent
    restore_backup(beside, filled, replace=True)
    assert contents(filled) == second


def test_no_byte_of_a_backup_can_change_what_is_restored(filled, tmp_path):
    with closing(Store(filled)) as store:
        write_backup(store, tmp_path / "a.lcbackup")
    whole, before, dice = (tmp_path / "a.lcbackup").read_bytes(), contents(filled), random.Random(1)
    refused = 0
    for i in range(600):
        broken = bytearray(whole)
        broken[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        (tmp_path / "b.lcbackup").write_bytes(broken if i % 3 else broken[: dice.randrange(len(whole))])
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        try:
            restore_backup(tmp_path / "b.lcbackup", tmp_path / "new")
        except DocumentError:
            refused += 1
            assert not (tmp_path / "new").exists()
        else:
            assert contents(tmp_path / "new") == before
    assert refused > 300


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "pages/../../evil", "models/evil"])
def test_a_backup_writes_nowhere_else(filled, tmp_path, name):
    with closing(Store(filled)) as store:
        write_backup(store, tmp_path / "a.lcbackup")
    with zipfile.ZipFile(tmp_path / "a.lcbackup") as whole, zipfile.ZipFile(tmp_path / "b.lcbackup", "w") as evil:
        manifest = json.loads(whole.read("manifest.json"))
        manifest["files"][name] = manifest["files"]["library.db"]
        evil.writestr("manifest.json", json.dumps(manifest))
        for part in ("library.db", "settings.toml"):
            evil.writestr(part, whole.read(part))
        evil.writestr(name, whole.read("library.db"))
    with pytest.raises(DocumentError, match="damaged, or not a backup"):
        restore_backup(tmp_path / "b.lcbackup", tmp_path / "new")
    assert not list(tmp_path.rglob("evil"))


def test_the_database_is_copied_before_its_schema_changes_and_two_copies_stay(home, monkeypatch):
    fill(home)
    before = contents(home)
    steps = list(migrate._migrations)
    for i in range(4):
        step = type(steps[0])(f"later_{i}", lambda db, i=i: db.execute(f"CREATE TABLE later_{i} (x)"))
        steps.append(step)
        monkeypatch.setattr(migrate, "_migrations", list(steps))
        Store(home).close()
    copies = sorted((home / "backups").iterdir())
    assert len(copies) == 2
    with closing(sqlite3.connect(copies[-1])) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'later%'").fetchone() == (3,)
        assert db.execute("SELECT count(*) FROM documents").fetchone() == (len(before["documents"]),)


# The trash


def written_secret(home: Path) -> tuple[str, str]:
    """A document and a chat that say the secret."""
    with closing(Store(home)) as store:
        text = f"Waters. {SECRET}. " * 40
        document = row("secret.txt", text)
        store.documents.add(document, text, [])
        store.index.add(document.id, text, [(0, 200, "Waters"), (200, 400, "Waters")], False)
        chat = store.chats.create("Secrets", [document.id]).id
        question = store.chats.append(chat, None, "user", "What is it?")
        store.chats.append(chat, question.id, "assistant", SECRET, [{"document": document.id}])
    return document.id, chat


def readable(home: Path) -> bool:
    """Whether the secret, or a rare word of it, can be read in any file of the data folder."""
    words = (SECRET.encode(), b"seventeen")
    return any(word in file.read_bytes() for file in home.rglob("*") if file.is_file() for word in words)


def assert_deleted_things_come_back(home: Path, run) -> None:
    _, chat = written_secret(home)
    removed = run("library", "rm", "secret.txt")
    assert "trash for 7 days" in removed.stdout
    assert f"chats that still quote it: 1; delete them with: localctx chats rm {chat}" in removed.stdout
    assert "trash for 7 days" in run("chats", "rm", chat).stdout
    listed = run("library", "trash").stdout
    assert "secret.txt" in listed
    assert "Secrets" in listed
    assert run("library", "list").stdout.startswith("The library is empty")
    assert run("library", "trash", "restore", "secret.txt", "Secrets").returncode == 0
    with closing(Store(home)) as store:
        assert SECRET in store.documents.text(store.documents.find("secret.txt").id)
        assert store.chats.messages(chat)[-1].text == SECRET


def test_what_is_deleted_rests_in_the_trash_and_comes_back_by_a_command(home, run):
    assert_deleted_things_come_back(home, run)


def test_without_the_trash_it_does_not_come_back(home, run, monkeypatch):
    """What the test before relies on."""
    monkeypatch.setattr("localctx.store.store.TRASH_SECONDS", -60)  # nothing rests
    with pytest.raises(AssertionError):
        assert_deleted_things_come_back(home, run)


@pytest.mark.parametrize("how", ["now", "empty"])
def test_what_is_erased_can_be_read_in_no_file(home, run, how):
    _, chat = written_secret(home)
    Store(home).close()
    assert readable(home)
    for command in (["library", "rm", "secret.txt"], ["chats", "rm", chat]):
        assert run(*command, *["--now"] * (how == "now")).returncode == 0
    if how == "empty":
        assert run("library", "trash", "empty").returncode == 0
    assert not readable(home)
    assert "empty" in run("library", "trash", "list").stdout


def test_without_erasing_it_can_be_read(home, run, monkeypatch):
    """What the test before relies on."""
    written_secret(home)
    monkeypatch.setattr(Store, "erase", lambda self: None)
    assert run("library", "rm", "secret.txt", "--now").returncode == 0
    assert readable(home)


def test_the_pages_of_what_is_deleted_go_at_once(filled, run):
    with closing(Store(filled)) as store:
        assert kept(store, tokens_of(1)) == 5
        assert run("library", "rm", "short").returncode == 0
        assert kept(store, tokens_of(1)) == 0
        assert len(list(store.folder.glob("*.kv"))) == 1
        assert run("library", "rm", "long").returncode == 0
        assert not list(store.folder.glob("*.kv"))


def test_the_folder_of_pages_is_marked_as_a_cache(filled):
    assert (filled / "pages" / CACHE_TAG).read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")


def test_json_says_what_was_written_and_put_back(run, home, tmp_path, monkeypatch):
    fill(home)
    file = tmp_path / "all.lcbackup"
    made = json.loads(run("backup", file, "--json").stdout)
    assert made == {
        "file": str(file),
        "documents": made["documents"],
        "chats": made["chats"],
        "bytes": file.stat().st_size,
    }
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "other"))
    put = json.loads(run("restore", file, "--json").stdout)
    assert put == {**{k: made[k] for k in ("documents", "chats")}, "home": str(tmp_path / "other"), "before": None}
    assert made["documents"] > 0
