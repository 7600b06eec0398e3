"""A prepared document as one file: it travels with its pages, and nothing forged, cut or foreign is taken in."""

import dataclasses
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from ask_in_process import ask, session
from safetensors.numpy import load_file, save_file
from stored_caches import shelve, tokens_of
from stored_documents import (
    MODEL,
    OTHER_MODEL,
    SLOT,
    TOKENS,
    add,
    assert_whole,
    files,
    keep,
    kept,
    row,
    segments,
)

from localctx.errors import DocumentError, StoreError
from localctx.shape import PAGE
from localctx.store import bundle as bundles
from localctx.store.bundle import export_document, import_document, open_bundle
from localctx.store.store import Store

pytestmark = pytest.mark.slow

MUCH = 1 << 40


@pytest.fixture
def exported(store, tmp_path) -> Path:
    """A document of seven pages in two caches, one of them cut short, as a file."""
    document = shelve(store, "rivers.md", 1, 10)
    keep(store, [document], tokens_of(2, 2), OTHER_MODEL)
    store.db.execute("UPDATE caches SET used = 0 WHERE fingerprint = ?", [OTHER_MODEL])
    path = tmp_path / "rivers.lctx"
    assert export_document(store, store.documents.find("rivers.md"), path) == (path.stat().st_size, 7)
    return path


@pytest.fixture
def there(tmp_path) -> Iterator[Store]:
    """Another store, with a document of its own."""
    with closing(Store(tmp_path / "there")) as there:
        shelve(there, "other", 5, 10)
        yield there


def test_a_document_travels_with_its_pages(store, exported, there):
    bundle = open_bundle(exported)
    assert [(c.fingerprint, c.codec, len(c.pages)) for c in bundle.caches] == [
        (MODEL, "int8", 5),
        (OTHER_MODEL, "int8", 2),
    ]
    assert import_document(there, bundle, lambda cache: cache.fingerprint == MODEL, MUCH) == 5
    assert (kept(there, tokens_of(1)), kept(there, tokens_of(2), OTHER_MODEL)) == (5, 0)
    found, mine = there.documents.find("rivers.md"), store.documents.find("rivers.md")
    assert there.documents.text(found.id) == store.documents.text(mine.id)
    assert found.path == str(exported)
    (cache,) = there.caches.of_document(found.id)
    assert (cache.state, cache.pages) == ("ready", 5)
    assert import_document(there, bundle, lambda cache: True, MUCH) == 7, "what is there is not written again"
    assert there.verify().pages == 5 + 7
    assert_whole(there)
    assert exported.stat().st_mode & 0o077 == 0


def test_pages_of_several_documents_and_the_way_to_a_model_are_not_exported(store, tmp_path):
    a, b = add(store, "a", "b")
    keep(store, [a, b], TOKENS)
    store.db.execute("UPDATE caches SET model = '/home/ann/models/tiny'")
    path = tmp_path / "a.lctx"
    export_document(store, store.documents.find("a"), path)
    assert open_bundle(path).caches == ()
    keep(store, [a], TOKENS)
    store.db.execute("UPDATE caches SET model = '/home/ann/models/tiny'")
    export_document(store, store.documents.find("a"), tmp_path / "b.lctx")
    assert open_bundle(tmp_path / "b.lctx").caches[0].model == "tiny"
    assert b"/texts/a" not in (tmp_path / "b.lctx").read_bytes()
    assert b"/home" not in (tmp_path / "b.lctx").read_bytes()
    with pytest.raises(DocumentError, match="exists; choose another name"):
        export_document(store, store.documents.find("a"), path)
    with pytest.raises(DocumentError, match="cannot be written"):
        export_document(store, store.documents.find("a"), tmp_path / "no" / "b.lctx")


def test_a_name_in_use_here_stays(exported, there):
    there.documents.add(row("mine.txt", "rivers.md"), "rivers.md", [])
    import_document(there, open_bundle(exported), lambda cache: False, MUCH)
    assert {d.name for d in there.documents.all()} == {"mine.txt", "other"}


def test_an_import_without_room_is_refused_and_nothing_is_written(exported, there):
    there.documents.pin(there.documents.find("other").id)
    with pytest.raises(StoreError, match=r"its pages take 20\.0 KiB.*; raise --disk"):
        import_document(there, open_bundle(exported), lambda cache: cache.fingerprint == MODEL, 9 * SLOT)
    assert_untouched(there)
    assert import_document(there, open_bundle(exported), lambda cache: cache.fingerprint == MODEL, 10 * SLOT) == 5


def assert_untouched(there: Store) -> None:
    assert [d.name for d in there.documents.all()] == ["other"]
    assert kept(there, tokens_of(5)) == there.verify().pages == 5
    assert {f for f in files(there) if f.endswith(".kv")} == segments(there)
    assert_whole(there)


def forge(path: Path, change: Callable[[dict, dict], None]) -> None:
    """Change an exported file's manifest or pages, and make its own checks right again."""
    from safetensors import safe_open

    tensors = load_file(path)
    with safe_open(path, framework="numpy") as file:
        manifest = json.loads(file.metadata()["manifest"])
    change(manifest, tensors)
    said = json.dumps(manifest)
    bundles._save(path.with_suffix(".forged"), tensors, said)
    path.with_suffix(".forged").replace(path)


def first(manifest: dict) -> dict:
    return manifest["caches"][0]["pages"][0]


FORGED = {
    "another text": lambda m, t: t.update(text=t["text"][::-1].copy()),
    "no text": lambda m, t: t.pop("text"),
    "an id of another text": lambda m, t: m["document"].update(id="0" * 64),
    "a name with a line": lambda m, t: m["document"].update(name="a\nb"),
    "a name that moves the cursor": lambda m, t: m["document"].update(name="\x1b[2Ja"),
    "a name too long": lambda m, t: m["document"].update(name="a" * 256),
    "no name": lambda m, t: m["document"].pop("name"),
    "a name of half a character": lambda m, t: m["document"].update(name="\ud800"),
    "a span past the end": lambda m, t: m["spans"].append([0, 1 << 30, "heading", "a"]),
    "a span of half a character": lambda m, t: m["spans"].append([0, 1, "heading", "\ud800"]),
    "a span of three": lambda m, t: m["spans"].append([0, 1, "heading"]),
    "tokens of another page": lambda m, t: first(m).update(tokens="00" * 4 * PAGE),
    "too few tokens": lambda m, t: first(m).update(tokens="00"),
    "a name of another page": lambda m, t: first(m).update(name="00" * 32),
    "another fingerprint": lambda m, t: m["caches"][0].update(fingerprint=OTHER_MODEL.hex()),
    "a page lost": lambda m, t: t.pop("0/3"),
    "a page too many": lambda m, t: t.update({"0/9": np.zeros(9, np.uint8)}),
    "a page of other bytes": lambda m, t: t.update({"0/3": t["0/3"][::-1].copy()}),
    "a page too short": lambda m, t: t.update({"0/3": t["0/3"][1:].copy()}),
    "a page of floats": lambda m, t: t.update({"0/3": np.zeros(160, np.float32)}),
    "a page that is a table": lambda m, t: t.update({"0/3": t["0/3"].reshape(2, -1)}),
    "bytes that are no number": lambda m, t: first(m).update(bytes="160"),
    "bytes that are true": lambda m, t: first(m).update(bytes=True),
    "bytes below nothing": lambda m, t: first(m).update(bytes=-1),
    "a slot of nothing": lambda m, t: m["caches"][0].update(slot_bytes=0),
    "more pages than tokens": lambda m, t: m["caches"][0].update(tokens=PAGE),
    "a number beyond SQLite": lambda m, t: m["document"].update(bytes=1 << 70),
    "caches that are none": lambda m, t: m.update(caches=3),
    "a list": lambda m, t: m.update(document=[]),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_forged_file_is_refused_and_nothing_is_written(exported, there, what):
    forge(exported, FORGED[what])
    with pytest.raises(DocumentError, match="is damaged, or not an exported document"):
        import_document(there, open_bundle(exported), lambda cache: True, MUCH)
    assert_untouched(there)


def test_what_is_no_exported_document_is_refused(tmp_path, exported):
    deep = tmp_path / "deep.lctx"
    bundles._save(deep, {"text": np.zeros(1, np.uint8)}, "[" * 100_000)
    other, huge = tmp_path / "other.lctx", tmp_path / "huge.lctx"
    save_file({"weight": np.zeros(4, np.float32)}, other)
    huge.write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    os.mkfifo(tmp_path / "pipe")
    for path in (deep, other, huge, tmp_path / "pipe", tmp_path):
        with pytest.raises(DocumentError, match="is damaged, or not an exported document"):
            open_bundle(path)
    with pytest.raises(DocumentError, match="cannot be read"):
        open_bundle(tmp_path / "missing.lctx")


@pytest.mark.parametrize("seed", range(4))
def test_flips_and_cuts_of_an_exported_file_import_nothing_wrong(exported, there, seed):
    """A hundred each: refused, or the byte was none that means anything."""
    dice, whole, path = random.Random(seed), exported.read_bytes(), exported.with_name("broken.lctx")
    refused = 0
    for i in range(200):
        at = dice.randrange(len(whole) if i % 4 else 2000)
        broken = whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :]
        path.write_bytes(broken if i % 2 else whole[:at])
        try:
            import_document(there, open_bundle(path), lambda cache: True, MUCH)
        except DocumentError:
            refused += 1
            continue
        assert open_bundle(path) == dataclasses.replace(open_bundle(exported), path=path, row=open_bundle(path).row)
        assert (kept(there, tokens_of(1)), kept(there, tokens_of(2), OTHER_MODEL)) == (5, 2)
        there.remove_document(there.documents.find("rivers.md").id)
    assert refused > 190
    assert_untouched(there)


def test_an_import_that_dies_half_way_leaves_nothing(exported, there, monkeypatch):
    monkeypatch.setattr(type(there.caches), "mark_ready", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        import_document(there, open_bundle(exported), lambda cache: True, MUCH)
    assert_untouched(there)


def test_pages_for_other_tokens_or_sizes_are_refused_though_the_fingerprint_is_right(
    home, tiny_model, document, tmp_path
):
    ask(home, tiny_model, document, max_tokens=1)
    with closing(Store(home)) as store:
        export_document(store, store.documents.find("rivers.txt"), tmp_path / "r.lctx")
    bundle = open_bundle(tmp_path / "r.lctx")
    (cache,) = bundle.caches
    short = dataclasses.replace(cache.pages[3], nbytes=cache.pages[3].nbytes - 1)
    wrong = {
        "codec": "int9",
        "slot_bytes": cache.slot_bytes * 2,
        "tokens": cache.tokens + PAGE,
        "fingerprint": MODEL,
        "pages": (*cache.pages[:3], short, *cache.pages[4:]),
    }
    with session(home, tiny_model) as s, s.workflows.library() as shelving:
        assert shelving.usable_caches(bundle) == [cache]
        canals = dataclasses.replace(bundle, text=bundle.text.replace("River", "Canal"))
        assert not shelving.usable_caches(canals), "pages of one text under another"
        for name, value in wrong.items():
            other = dataclasses.replace(cache, **{name: value})
            assert not shelving.usable_caches(dataclasses.replace(bundle, caches=(other,))), name


# Pages that no checksum shows to be others


RENT = (
    "The tenancy of the harbour house. " * 12 + "The rent is {} euros a month. " + "It is due on the first day. " * 30
)


@pytest.fixture
def leases(home, tiny_model, tmp_path) -> list[Path]:
    """Two leases of the same words but for the rent, as exported files."""
    paths = list[Path]()
    for rent in ("600", "900"):
        (tmp_path / f"lease-{rent}.txt").write_text(RENT.format(rent))
        ask(home, tiny_model, tmp_path / f"lease-{rent}.txt", max_tokens=1)
        paths.append(tmp_path / f"lease-{rent}.lctx")
        with closing(Store(home)) as store:
            export_document(store, store.documents.find(f"lease-{rent}.txt"), paths[-1])
    return paths


def swap_pages(path: Path, other: Path) -> None:
    """Put the pages of another file in the places of those of this one, with checksums made anew."""
    from localctx.store.pages.page_checksum import page_checksum

    theirs = load_file(other)

    def swap(manifest: dict, tensors: dict) -> None:
        for i, page in enumerate(manifest["caches"][0]["pages"]):
            if len(theirs.get(f"0/{i}", ())) == page["bytes"]:
                tensors[f"0/{i}"] = theirs[f"0/{i}"]
                page["checksum"] = page_checksum(tensors[f"0/{i}"].data).hex()

    forge(path, swap)


def test_pages_of_another_lease_are_refused_and_the_text_is_not(leases, tmp_path, tiny_model, monkeypatch, run):
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "there"))
    whole = run("library", "import", leases[0], "--model", tiny_model, "--check", "all")
    assert whole.returncode == 0, whole.stderr
    assert "pages computed again: equal" in whole.stdout
    swap_pages(*leases)
    monkeypatch.setenv("LOCALCTX_HOME", str(tmp_path / "elsewhere"))
    refused = run("library", "import", leases[0], "--model", tiny_model, "--check", "all")
    assert refused.returncode == 1
    assert "was altered: page" in refused.stderr
    assert "--text-only" in refused.stderr
    with closing(Store(tmp_path / "elsewhere")) as store:
        assert store.documents.all() == []
        assert store.verify().pages == 0
    assert run("library", "import", leases[0], "--text-only", "--model", tiny_model).returncode == 0
    with closing(Store(tmp_path / "elsewhere")) as store:
        (only,) = store.documents.all()
        assert "600 euros" in store.documents.text(only.id)
        assert store.verify().pages == 0


def test_without_the_check_they_are_taken(leases, tmp_path, tiny_model):
    """What the test before relies on."""
    swap_pages(*leases)
    bundle = open_bundle(leases[0])
    with session(tmp_path / "there", tiny_model) as s, s.workflows.library() as shelving:
        usable = shelving.usable_caches(bundle)
        assert usable
        assert shelving.import_bundle(bundle, usable) == len(usable[0].pages)
        with pytest.raises(DocumentError, match="was altered"):
            shelving.check_bundle(bundle, usable, None)


def test_pages_that_others_computed_with_other_digits_are_equal(leases, tmp_path, tiny_model):
    """As another processor would: each chunk of another length."""
    bundle = open_bundle(leases[0])
    with session(tmp_path / "there", tiny_model, chunk=96, threads=2) as s, s.workflows.library() as shelving:
        assert shelving.check_bundle(bundle, bundle.caches, None).checked == len(bundle.caches[0].pages)
