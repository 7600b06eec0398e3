"""Whatever happens to what is kept, the answer is the one a fresh home gives, a line says why, and it mends itself."""

import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from ask_in_process import Answer, ask, session
from tiny_models import save_sharp_model

from localctx.kv.pages import page_names
from localctx.shape import PAGE, record_layout
from localctx.store.pages import page_checksum, page_store, stored_pages
from localctx.store.store import Store

pytestmark = pytest.mark.process

LAST = 9  # the document has sealed pages 0 to 9, and an open one after them
CODEC = "int8"


@dataclass(frozen=True)
class Kept:
    """A home in which one document was asked, and what a fresh home answers."""

    home: Path
    model: Path
    document: Path
    cold: Answer
    slot: int
    sinks: int  # slots that the first page, in full precision, takes
    starts: dict[str, int]  # where the parts of a page begin
    whole: int  # tokens that are kept

    @property
    def file(self) -> Path:
        (file,) = (self.home / "pages").glob("*.kv")
        return file

    def slot_of(self, page: int) -> int:
        """The first slot of a page."""
        return page + self.sinks - 1 if page else 0

    def ask(self, **settings) -> Answer:
        return ask(self.home, self.model, self.document, **settings)

    def flip(self, page: int, part: str) -> None:
        """Flip the second highest bit of the second byte of a part: the exponent's highest, in a scale."""
        with self.file.open("r+b") as f:
            f.seek(self.slot_of(page) * self.slot + self.starts[part] + 1)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 0x40]))

    def sql(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.home / "library.db")) as db, db:
            assert db.execute(statement, values).rowcount == 1


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Kept:
    """Made once; each test has a copy."""
    folder = tmp_path_factory.mktemp("asked")
    model = save_sharp_model(folder / "model", seed=0)
    document = folder / "rivers.txt"
    document.write_text("".join(f"River {i} is {i * 37} km long.\n" for i in range(26)))
    cold = ask(folder / "home", model, document)
    with session(folder / "home", model) as s:
        shape = s.model.shape
    layout, second = record_layout(shape.layers[1], CODEC), shape.record_bytes(CODEC)[0]
    starts = {"K codes": 0, "K scale": layout.k_scale, "V codes": second + layout.v_codes, "V scale": layout.v_scale}
    slot, sink = shape.slot_bytes(CODEC), shape.page_bytes(CODEC, sinks=True)
    with closing(Store(folder / "home")) as store:
        whole = store.caches.of_document(store.documents.all()[0].id)[0].kept
    assert whole > (LAST + 1) * PAGE
    return Kept(folder / "home", model, document, cold, slot, -(-sink // slot), starts, whole)


@pytest.fixture
def kept(asked, home) -> Kept:
    shutil.copytree(asked.home, home)
    return replace(asked, home=home)


def assert_noticed_and_mended(kept: Kept, good_pages: int, reason: str) -> None:
    """The next answer is the cold one, from ``good_pages`` kept pages, saying ``reason``; the one after reuses all."""
    answer = kept.ask()
    assert answer.reused == good_pages * PAGE
    assert len(answer.notes) == 1
    assert reason in answer.notes[0]
    assert "\n" not in answer.notes[0]
    assert answer.ids == kept.cold.ids
    again = kept.ask()
    assert (again.reused, again.notes) == (kept.whole, []), "it did not mend itself"
    assert again.ids == kept.cold.ids
    with closing(Store(kept.home)) as store:
        assert store.health()["damaged_pages"] == 0


def test_without_a_fault_all_pages_are_reused_and_the_answer_is_the_same(kept):
    assert (kept.cold.reused, kept.cold.notes, len(kept.cold.ids)) == (0, [], 32)
    assert len(set(kept.cold.ids)) > 8, "a model that says one thing proves nothing"
    warm = kept.ask()
    assert (warm.reused, warm.notes, warm.ids) == (kept.whole, [], kept.cold.ids)


# Page files

PLACES = [(page, part) for page in (0, 5, LAST) for part in ("K codes", "K scale", "V codes", "V scale")]


@pytest.mark.parametrize(("page", "part"), PLACES)
def test_a_flipped_bit(kept, page, part):
    kept.flip(page, part)
    assert_noticed_and_mended(kept, page, f"kept page {page + 1} fails its checksum")


def test_a_flipped_bit_of_the_open_page(kept):
    kept.flip(LAST + 1, "K codes")
    assert_noticed_and_mended(kept, LAST + 1, f"kept page {LAST + 2} fails its checksum")


@pytest.mark.parametrize(
    ("good", "extra", "reason"),
    [
        (0, 0, "has lost its file"),
        (0, 1, "is cut short"),
        (5, 0, "is cut short"),
        (LAST, 100, "is cut short"),
        (LAST + 1, 100, "is cut short"),
    ],
)
def test_a_truncated_file(kept, good, extra, reason):
    os.truncate(kept.file, kept.slot_of(good) * kept.slot + extra)
    assert_noticed_and_mended(kept, good, f"kept page {good + 1} {reason}")


def test_a_missing_file(kept):
    kept.file.unlink()
    assert_noticed_and_mended(kept, 0, "kept page 1 has lost its file")


def test_another_documents_file_of_the_same_size(kept, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(kept.document.read_text().replace("River", "Canal")[::-1])
    mine = kept.file
    ask(kept.home, kept.model, other, max_tokens=1)
    (its,) = set((kept.home / "pages").glob("*.kv")) - {mine}
    assert its.stat().st_size == mine.stat().st_size
    shutil.copyfile(its, mine)
    assert_noticed_and_mended(kept, 0, "kept page 1 fails its checksum")


def test_two_damages_at_once_are_mended_at_once(kept):
    kept.flip(2, "K codes")
    kept.flip(7, "V codes")
    assert_noticed_and_mended(kept, 2, "kept page 3 fails its checksum")


@pytest.mark.parametrize("seed", range(4))
def test_every_flip_and_cut_of_a_page_file_is_found_or_lies_outside_of_all_pages(kept, seed):
    """A hundred each: what is damaged is exactly the page the byte belongs to."""
    dice, whole = random.Random(seed), kept.file.read_bytes()
    with closing(Store(kept.home)) as store:
        rows = store.db.query("SELECT name, slot, bytes FROM pages")
        places = {r["name"]: range(r["slot"] * kept.slot, r["slot"] * kept.slot + r["bytes"]) for r in rows}
        for _ in range(100):
            at = dice.randrange(len(whole))
            kept.file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << dice.randrange(8)]) + whole[at + 1 :])
            assert store.pages.verify() == [name for name, place in places.items() if at in place]
            kept.file.write_bytes(whole[:at])
            cut = {name for name, place in places.items() if place.stop > at}
            assert set(store.pages.verify()) == cut


# The database


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("tokens", b"\1\0\0\0" * PAGE, "is of other text"),
        ("checksum", b"\0" * 16, "fails its checksum"),
        ("slot", 4, "fails its checksum"),
        ("slot", 1 << 40, "is cut short"),
        ("slot", -1, "fails its checksum"),
        ("bytes", 64, "fails its checksum"),
        ("bytes", 0, "fails its checksum"),
        ("bytes", 1 << 40, "is cut short"),
    ],
)
def test_a_changed_row(kept, column, value, reason):
    kept.sql(f"UPDATE pages SET {column} = ? WHERE slot = ?", value, kept.slot_of(5))
    assert_noticed_and_mended(kept, 5, f"kept page 6 {reason}")


def test_a_page_under_a_name_nobody_asks_for_is_simply_not_there(kept):
    kept.sql("UPDATE pages SET name = ? WHERE slot = ?", b"\0" * 32, kept.slot_of(5))
    answer = kept.ask()
    assert (answer.reused, answer.ids) == (5 * PAGE, kept.cold.ids)
    assert kept.ask().reused == kept.whole


@pytest.mark.parametrize("seed", range(8))
def test_a_damaged_database_never_changes_the_answer(kept, seed):
    dice, file = random.Random(seed), kept.home / "library.db"
    data = bytearray(file.read_bytes())
    for _ in range(20):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
    answer = kept.ask()
    assert answer.ids == kept.cold.ids


def test_a_database_that_is_none_costs_the_keeping_not_the_answer(kept):
    (kept.home / "library.db").write_bytes(b"not a database at all" * 500)
    answer = kept.ask()
    assert (answer.reused, answer.ids) == (0, kept.cold.ids)
    assert "library.db is damaged" in answer.failed
    assert "verify --repair" in answer.failed


# The model


def swap_weights(model: Path, seed: int) -> None:
    """Other weights in the same place, of the same size and age."""
    file = model / "model.safetensors"
    before = file.stat()
    shutil.copyfile(save_sharp_model(model.parent / "swapped", seed) / file.name, file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def change_rope(model: Path, _: int) -> None:
    config = json.loads((model / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] *= 2
    (model / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("change", [swap_weights, change_rope])
def test_another_model_under_the_same_name(kept, tmp_path, change: Callable):
    model = tmp_path / "model"
    shutil.copytree(kept.model, model)
    first = ask(kept.home, model, kept.document)
    assert first.reused == kept.whole, "the same model in another folder has the same pages"

    def ask_it(home: Path) -> Answer:
        return ask(home, model, kept.document)

    kept.sql("UPDATE caches SET model = ?", str(model))
    change(model, 1)
    cold = ask_it(tmp_path / "fresh")
    assert cold.ids != kept.cold.ids, "the change changes no answer, so this proves nothing"
    answer = ask_it(kept.home)
    assert (answer.reused, answer.ids) == (0, cold.ids)
    assert len(answer.notes) == 1
    assert f"the files or settings of model {model} changed" in answer.notes[0]
    again = ask_it(kept.home)
    assert (again.reused, again.notes, again.ids) == (kept.whole, [], cold.ids)
    assert kept.ask().reused == kept.whole, "the first model's pages are gone"


def test_pages_of_another_codec_are_not_used_and_a_line_says_so(kept):
    answer = kept.ask(kv="f32")
    assert answer.reused == 0
    assert "its pages were kept for" in answer.notes[0]
    assert "with int8 KV, not" in answer.notes[0]
    assert kept.ask(kv="f32").reused == kept.ask().reused == kept.whole


# Broken twins: with the proof taken away, the tests above must fail


@pytest.mark.parametrize(("page", "part"), PLACES[4:8])
def test_without_checksums_the_flipped_bit_would_be_noticed_here(kept, page, part, monkeypatch):
    monkeypatch.setattr(page_checksum, "page_checksum", lambda payload: b"")
    with closing(sqlite3.connect(kept.home / "library.db")) as db, db:
        db.execute("UPDATE pages SET checksum = ?", (b"",))
    kept.flip(page, part)
    with pytest.raises(AssertionError):
        assert_noticed_and_mended(kept, page, "checksum")
    if part.endswith("scale"):
        assert kept.ask().ids != kept.cold.ids, "and the answer would be wrong"


def test_names_that_collide_are_told_apart_by_the_tokens(kept, tmp_path, monkeypatch):
    def colliding(fingerprint: bytes, tokens: list[int], activation: None) -> list[tuple[bytes, bytes]]:
        return [(b"%032d" % i, packed) for i, (_, packed) in enumerate(page_names(fingerprint, tokens))]

    for module in (page_store, stored_pages):
        monkeypatch.setattr(module, "page_names", colliding)
    other, home = tmp_path / "other.txt", tmp_path / "collisions"
    other.write_text(kept.document.read_text()[::-1])
    ask(home, kept.model, other)
    answer = ask(home, kept.model, kept.document)
    assert (answer.reused, answer.ids) == (0, kept.cold.ids)
    assert "kept page 1 is of other text" in answer.notes[0]
