"""A remote store: pages are downloaded and uploaded encrypted, and whatever fails costs a note, never an answer."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import fsspec
import pytest
from ask_in_process import Answer, ask
from stored_documents import MODEL, OTHER_MODEL, payload
from tiny_models import KEPT, save_sharp_model

from localctx.errors import UsageError
from localctx.kv.pages import page_names
from localctx.settings import load_settings
from localctx.shape import PAGE
from localctx.store.pages.page_store import OpenedPage, PageKey, PageStore, longest_prefix
from localctx.store.remote import remote_sync
from localctx.store.remote.page_cipher import PageCipher, parse_key
from localctx.store.remote.remote_pages import RemotePages
from localctx.store.remote.remote_sync import RemoteSync
from localctx.store.store import Store

pytestmark = pytest.mark.process

SECRET, OTHER_SECRET = bytes(range(32)), bytes(32)
TOKENS = list(range(5 * PAGE))
KEYS = list(page_names(MODEL, TOKENS))


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path) -> Iterator[str]:
    yield f"file://{tmp_path}/remote" if request.param == "file" else f"memory://{tmp_path.name}"
    fsspec.filesystem("memory").store.clear()


def remote(url: str, secret: bytes = SECRET, timeout: float = 20.0) -> RemotePages:
    return RemotePages(url, PageCipher(secret), timeout)


def local(url: str, home: Path) -> PageStore:
    return Store(home).pages


def bytes_of(page: OpenedPage) -> bytes | None:
    return None if page.payload is None else page.payload.tobytes()


def objects(url: str) -> list[str]:
    fs, root = fsspec.core.url_to_fs(url)
    return sorted(p for p in fs.ls(root, detail=False) if not p.endswith("0" * 64))


def change(url: str, object_path: str, how: Callable[[bytes], bytes]) -> None:
    fs, _ = fsspec.core.url_to_fs(url)
    fs.pipe_file(object_path, how(fs.cat_file(object_path)))


# --- One protocol, two places


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda url, home: remote(url), local], ids=["remote", "local"])
def test_every_page_store_keeps_the_protocol(make, url, home):
    pages = make(url, home)
    assert list(pages.open(KEYS)) == [OpenedPage()] * 5
    pages.append([(KEYS[i], payload(i)) for i in (0, 1, 2, 4)])
    pages.append([(KEYS[1], payload(9))])  # a name that is there stays
    assert [bytes_of(p) for p in pages.open(KEYS)] == [None if i == 3 else payload(i).tobytes() for i in range(5)]
    assert len(longest_prefix(pages, MODEL, TOKENS).payloads) == 3
    assert len(longest_prefix(pages, OTHER_MODEL, TOKENS).payloads) == 0
    (other,) = pages.open([(KEYS[0][0], KEYS[1][1])])
    assert other == OpenedPage(fault="is of other text")
    read = list[tuple[int, int]]()
    assert pages.verify(lambda done, total: read.append((done, total))) == []
    assert read[-1][0] == read[-1][1] >= 4 * len(payload(0))
    assert read == sorted(read)
    pages.unlink([KEYS[1][0]])
    assert len(longest_prefix(pages, MODEL, TOKENS).payloads) == 1


def test_the_place_learns_neither_name_nor_text_nor_payload(url):
    remote(url).append([(KEYS[0], payload(0))])
    (path,) = objects(url)
    fs, _ = fsspec.core.url_to_fs(url)
    content = fs.cat_file(path)
    for secret in (KEYS[0][0], KEYS[0][1][:64], payload(0)[100:].tobytes()):
        assert secret not in content
        assert secret.hex() not in path


# --- Faults: each is a miss with a reason


FAULTS = {
    "flipped bit in the page": lambda data: data[:-40] + bytes([data[-40] ^ 1]) + data[-39:],
    "flipped bit in the nonce": lambda data: data[:18] + bytes([data[18] ^ 1]) + data[19:],
    "truncated": lambda data: data[: len(data) // 2],
    "truncated to its head": lambda data: data[:20],
    "empty": lambda data: b"",
    "longer": lambda data: data + b"x",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_object_is_a_miss(url, fault):
    pages = remote(url)
    pages.append([(key, payload(i)) for i, key in enumerate(KEYS)])
    path = next(p for p in objects(url) if p.endswith(PageCipher(SECRET).object_id(KEYS[2][0])))
    change(url, path, FAULTS[fault])
    match = longest_prefix(pages, MODEL, TOKENS)
    assert (len(match.payloads), match.fault, match.damaged) == (2, "kept page 3 cannot be decrypted", [KEYS[2][0]])
    assert [d.hex() for d in pages.verify()] == [Path(path).name]
    fetched = list(RemoteSync(pages, writable=True).fetch(KEYS))
    assert [p.tobytes() for p in fetched] == [payload(i).tobytes() for i in range(2)]
    assert not pages.has(KEYS[2][0]), "a damaged object blocks the upload of a good one"


def test_swapped_objects_are_misses(url):
    pages = remote(url)
    pages.append([(key, payload(i)) for i, key in enumerate(KEYS)])
    fs, _ = fsspec.core.url_to_fs(url)
    a, b = objects(url)[:2]
    content = fs.cat_file(a), fs.cat_file(b)
    fs.pipe_file(a, content[1])
    fs.pipe_file(b, content[0])
    assert sum(p.payload is None for p in pages.open(KEYS)) == 2
    assert {p.fault for p in pages.open(KEYS)} == {"", "cannot be decrypted"}


def test_pages_of_another_fingerprint_with_the_same_tokens_do_not_mix(url):
    pages = remote(url)
    pages.append([(KEYS[0], payload(0))])
    (other,) = page_names(OTHER_MODEL, TOKENS[:PAGE])
    assert other[1] == KEYS[0][1]
    assert list(pages.open([other])) == [OpenedPage()]
    fs, root = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{root}/{PageCipher(SECRET).object_id(other[0])}", fs.cat_file(objects(url)[0]))
    assert list(pages.open([other])) == [OpenedPage(fault="cannot be decrypted")]


def test_another_key_finds_nothing_and_says_why(url):
    writer = RemoteSync(remote(url), writable=True)
    upload(writer)
    for writable in (False, True):
        reader = RemoteSync(remote(url, OTHER_SECRET), writable)
        assert list(reader.fetch(KEYS)) == []
        assert list(reader.fetch(KEYS)) == []
        (note,) = reader.take_notes()
        assert "another LOCALCTX_REMOTE_KEY" in note
    before = objects(url)
    upload(RemoteSync(remote(url, OTHER_SECRET), writable=True))
    assert objects(url) == before


def upload(sync: RemoteSync, keys: list[PageKey] = KEYS) -> None:
    sync.upload([(key, lambda i=i: payload(i)) for i, key in enumerate(keys)])
    sync.finish(20)


def test_what_is_only_read_is_not_written(url):
    upload(RemoteSync(remote(url), writable=True), KEYS[:2])
    before = objects(url)
    assert len(before) == 2
    reader = RemoteSync(remote(url), writable=False)
    upload(reader)
    assert len(list(reader.fetch(KEYS))) == 2
    assert objects(url) == before


def test_a_page_that_is_damaged_here_is_not_uploaded(url):
    sync = RemoteSync(remote(url), writable=True)
    sync.upload([(KEYS[0], lambda: None), (KEYS[1], lambda: payload(1))])
    sync.finish(20)
    assert len(objects(url)) == 1


@pytest.mark.parametrize("writable", [False, True])
def test_an_unreachable_place_costs_one_note(tmp_path, writable):
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    sync = RemoteSync(remote("smb://127.0.0.1:9/share"), writable)  # its library is absent, or nobody answers
    assert list(sync.fetch(KEYS)) == list(sync.fetch(KEYS)) == []
    upload(sync)
    (note,) = sync.take_notes()
    assert note.startswith("the remote store cannot be used")
    assert sync.take_notes() == []


def test_a_place_that_refuses_writing_is_still_read(url, monkeypatch):
    upload(RemoteSync(remote(url), writable=True), KEYS[:2])
    fs, _ = fsspec.core.url_to_fs(url)

    def refused(*args, **kwargs):
        raise PermissionError("read-only")

    monkeypatch.setattr(type(fs), "pipe_file", refused)
    sync = RemoteSync(remote(url), writable=True)
    assert len(list(sync.fetch(KEYS))) == 2
    upload(sync)
    (note,) = sync.take_notes()
    assert note == "the remote store cannot be written (read-only): it is only read"
    assert len(list(sync.fetch(KEYS))) == 2


def test_a_place_that_hangs_costs_a_timeout_and_does_not_keep_the_process(url, monkeypatch):
    upload(RemoteSync(remote(url), writable=True))
    fs, _ = fsspec.core.url_to_fs(url)
    release = threading.Event()
    monkeypatch.setattr(type(fs), "cat_file", lambda *args, **kwargs: release.wait(60) and b"")
    sync, started = RemoteSync(remote(url, timeout=0.3), writable=True), time.monotonic()
    assert list(sync.fetch(KEYS)) == list(sync.fetch(KEYS)) == []
    upload(sync)
    assert time.monotonic() - started < 2, "it is asked again and again"
    (note,) = sync.take_notes()
    assert "no answer in 0.3 seconds" in note
    assert all(t.daemon for t in threading.enumerate() if t.name == "localctx remote")
    release.set()


def test_waiting_for_uploads_ends(url, monkeypatch):
    fs, _ = fsspec.core.url_to_fs(url)
    release = threading.Event()
    monkeypatch.setattr(type(fs), "pipe_file", lambda *args, **kwargs: release.wait(60))
    sync, started = RemoteSync(remote(url), writable=True), time.monotonic()
    sync.upload([(key, lambda: payload(0)) for key in KEYS])
    sync.finish(0.3)
    assert time.monotonic() - started < 2
    release.set()


# --- Keys and settings


@pytest.mark.parametrize("text", ["", "my pass phrase", "g" * 64, "0" * 63])
def test_a_key_is_64_hexadecimal_digits(text):
    with pytest.raises(UsageError, match="LOCALCTX_REMOTE_KEY") as told:
        parse_key(text)
    assert text == "" or text not in str(told.value), "a key must not be shown"
    assert "token_hex" in told.value.remedy


@pytest.mark.slow
def test_a_remote_mode_that_is_none_is_refused(home):
    with pytest.raises(UsageError, match="remote_mode"):
        load_settings(home=home, remote_mode="both")


# --- Whole questions


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> tuple[Path, Path, Answer]:
    """(model, document, the answer without a remote store)."""
    folder = tmp_path_factory.mktemp("library")
    model, document = save_sharp_model(folder / "model", seed=0), folder / "rivers.txt"
    document.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(26)))
    return model, document, ask(folder / "home", model, document)


@pytest.fixture
def question(library, url, monkeypatch) -> Iterator[Callable]:
    """Asks with a data folder of its own, a mode and a key."""
    model, document, _ = library

    def asked(home: Path, mode: str = "read", key: bytes = SECRET, **settings) -> Answer:
        monkeypatch.setenv("LOCALCTX_REMOTE_KEY", key.hex())
        return ask(home, model, document, remote=url, remote_mode=mode, **settings)

    yield asked
    remote_sync._remotes.clear()


@pytest.mark.slow
def test_a_document_that_one_machine_read_another_does_not_read(question, library, url, tmp_path):
    cold = library[2]
    first = question(tmp_path / "one", "write")
    assert (first.ids, first.notes, first.reused) == (cold.ids, [], 0)
    stored = len(objects(url))
    assert stored >= KEPT // PAGE
    second = question(tmp_path / "two")
    assert (second.ids, second.notes, second.reused) == (cold.ids, [], stored * PAGE)
    shutil.rmtree(tmp_path / "remote", ignore_errors=True)
    fsspec.filesystem("memory").store.clear()
    third = question(tmp_path / "two")
    assert third.ids == cold.ids
    assert third.reused >= stored * PAGE, "what was downloaded is not in the local store"
    with closing(Store(tmp_path / "two")) as store:
        assert store.health()["damaged_pages"] == 0


def test_pages_of_before_are_uploaded_when_they_are_used(question, library, url, tmp_path):
    ask(tmp_path / "one", *library[:2])
    question(tmp_path / "one", "write")
    assert question(tmp_path / "two").reused == len(objects(url)) * PAGE > 0


def test_the_remote_store_continues_what_is_stored_here(question, library, url, tmp_path):
    question(tmp_path / "one", "write")
    ask(tmp_path / "two", *library[:2])
    with closing(Store(tmp_path / "two")) as store:
        names = [r["page"] for r in store.db.query("SELECT page FROM cache_pages ORDER BY position")]
        store.pages.unlink(names[4:])
    answer = question(tmp_path / "two")
    assert (answer.ids, answer.reused) == (library[2].ids, len(objects(url)) * PAGE)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["flipped bit in the page", "truncated"])
def test_a_damaged_object_costs_a_note_and_is_mended(question, library, url, tmp_path, fault):
    question(tmp_path / "one", "write")
    sizes = len(objects(url))
    change(url, objects(url)[3], FAULTS[fault])
    answer = question(tmp_path / "two", "write")
    assert answer.ids == library[2].ids
    assert answer.reused < sizes * PAGE
    assert answer.notes == ["a page of the remote store cannot be decrypted: going on without it"]
    mended = question(tmp_path / "three")
    assert (mended.ids, mended.notes, mended.reused) == (library[2].ids, [], sizes * PAGE)


def test_another_key_costs_a_note(question, library, tmp_path):
    question(tmp_path / "one", "write")
    answer = question(tmp_path / "two", key=OTHER_SECRET)
    assert (answer.ids, answer.reused) == (library[2].ids, 0)
    assert len(answer.notes) == 1
    assert "another LOCALCTX_REMOTE_KEY" in answer.notes[0]


def test_another_codec_finds_nothing(question, library, tmp_path):
    question(tmp_path / "one", "write")
    assert question(tmp_path / "two", kv="f32").reused == 0


def test_without_room_here_nothing_is_downloaded(question, library, tmp_path):
    question(tmp_path / "one", "write")
    answer = question(tmp_path / "two", disk="8KiB", memory="64MiB")
    assert (answer.ids, answer.reused) == (library[2].ids, 0)


def test_a_question_with_a_place_that_hangs_is_answered(question, library, url, tmp_path, monkeypatch):
    question(tmp_path / "one", "write")
    fs, _ = fsspec.core.url_to_fs(url)
    release = threading.Event()
    monkeypatch.setattr(type(fs), "cat_file", lambda *args, **kwargs: release.wait(60) and b"")
    remote_sync._remotes.clear()
    monkeypatch.setattr(remote_sync, "_pages_at", lambda url, cipher: RemotePages(url, cipher, 0.3))
    answer = question(tmp_path / "two", "write")
    assert (answer.ids, answer.reused, len(answer.notes)) == (library[2].ids, 0, 1)
    assert "no answer in 0.3 seconds" in answer.notes[0]
    release.set()


def test_a_key_that_is_missing_is_told_before_reading(library, url, tmp_path, monkeypatch):
    monkeypatch.delenv("LOCALCTX_REMOTE_KEY", raising=False)
    with pytest.raises(UsageError, match="LOCALCTX_REMOTE_KEY is not set"):
        ask(tmp_path / "one", *library[:2], remote=url)
