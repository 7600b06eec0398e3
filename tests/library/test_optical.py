"""Pages read optically: the order of what is seen, which pages, limits, and the real thing where it is installed."""

import difflib
import io
import json
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pypdfium2
import pytest
from ask_in_process import session
from clock import seconds_since
from hypothesis import given
from hypothesis import strategies as st
from made_files import pdf
from required_extras import needs_ocr

from localctx.child_process import ChildWatch, start_python
from localctx.errors import DocumentError
from localctx.library.add import add_document, find_stored
from localctx.library.parsers.pdf import optical, read_pdf
from localctx.library.parsers.pdf.layout import Box, place
from localctx.library.parsers.sandbox import ReadOptions
from localctx.library.parsers.text_builder import OPTICAL
from localctx.library.parsers.word_boxes import GRID, unpack
from localctx.library.read_document import make_spans, matches_ocr, read_document
from localctx.store.store import Store

PAGES = [
    "The harbour of Lindholm\n\nShips had come to the town since the twelfth century, and most of\n"
    "them brought salt. The customs house, built in 1742, still stands\nbeside the northern quay.",
    "A storm of 17 November 1883 sank 9 vessels in one night. Nobody\n"
    "on shore was hurt, but the lighthouse lost its lamp, and for 41\ndays the entrance was marked by a fire.",
]


def scanned(pages: list[str], turn: float = 0) -> bytes:
    """A PDF of pictures of pages, each turned by so many degrees."""
    with closing(pypdfium2.PdfDocument(pdf(pages))) as source:
        pictures = [page.render(scale=2, grayscale=True).to_pil().rotate(turn, fillcolor=255) for page in source]
    buffer = io.BytesIO()
    pictures[0].save(buffer, "PDF", save_all=True, append_images=pictures[1:], resolution=144)
    return buffer.getvalue()


def joined(first: bytes, second: bytes) -> bytes:
    """One PDF of the pages of two."""
    buffer = io.BytesIO()
    with closing(pypdfium2.PdfDocument(first)) as whole, closing(pypdfium2.PdfDocument(second)) as more:
        whole.import_pages(more)
        whole.save(buffer)
    return buffer.getvalue()


# Order


def lines(left: float, top: float, texts: list[str], pitch: float = 12, width: float = 0) -> list[Box]:
    """Lines of ten pixels below each other, as wide as their letters or as said."""
    places = ((left, top + i * pitch, text) for i, text in enumerate(texts))
    return [Box(x, y, x + (width or 6 * len(text)), y + 10, text) for x, y, text in places]


@given(st.lists(st.tuples(*(st.integers(0, 400),) * 4), max_size=40))
def test_everything_seen_is_in_the_text_once(places):
    boxes = [Box(x, y, x + w + 1, y + h + 1, str(i)) for i, (x, y, w, h) in enumerate(places)]
    assert sorted(place(boxes)[0].split(), key=int) == [box.text for box in boxes]


@given(st.randoms())
def test_columns_under_a_title_are_read_one_after_the_other_whatever_order_they_are_found_in(random):
    left, right = ([f"{side} line {i}" for i in range(6)] for side in ("left", "right"))
    boxes = (
        lines(0, 0, ["A title across"], width=300) + lines(0, 40, left, width=130) + lines(160, 41, right, width=130)
    )
    boxes += lines(140, 130, ["7"])
    random.shuffle(boxes)
    assert place(boxes)[0] == "\n".join(["A title across\n", *left, *right]) + "\n\n7"


def test_a_table_is_read_line_by_line():
    names, numbers = ["salt", "herring and cod", "rye", "timber", "flax"], ["1", "20", "3", "44", "5"]
    seen = place(lines(0, 0, names, pitch=20) + lines(250, 2, numbers, pitch=20))[0]
    assert seen.split() == " ".join(f"{a} {b}" for a, b in zip(names, numbers, strict=True)).split()


def test_paragraphs_stand_apart():
    boxes = lines(0, 0, ["It was an exam-", "ple of ships."])
    assert place(boxes + lines(0, 60, ["Next"]))[0] == "It was an exam-\nple of ships.\n\nNext"


# Which pages


class Fake:
    """Sees the size of a page, and nothing on an empty one."""

    def read(self, picture) -> tuple[str, list]:
        return f"seen {picture.shape}" if picture.min() < picture.max() else "", []


@pytest.fixture
def fake(monkeypatch):
    """The extra is installed, so to speak."""
    monkeypatch.setattr(optical, "is_installed", lambda: True)
    monkeypatch.setattr(optical, "OpticalReader", Fake)


GARBAGE = "\x01\x02 a few \x03\x04"


def read(data: bytes, ocr: str = "auto") -> tuple[str, list[tuple[str, str]], int]:
    """The format, the pages with their text, and how often limits were renewed."""
    renewed: list[None] = []
    form, flow = read_pdf.read(data, lambda *of: None, ocr, lambda: renewed.append(None))
    text, marks = flow.done()
    return form, [(s.label, text[s.start : s.end].strip()) for s in make_spans(marks, len(text))], len(renewed)


def test_pages_without_usable_text_are_read_optically_and_only_those(fake):
    seen = "seen (1633, 1225)"
    mixed = pdf(["Text", GARBAGE, "", "More text"])
    assert read(mixed) == (
        "pdf, 1 of 4 pages read optically",
        [("1", "Text"), ("2", seen), ("3", ""), ("4", "More text")],
        2,
    )
    assert read(pdf([GARBAGE, ""])) == (OPTICAL, [("1", seen), ("2", "")], 2)
    assert read(pdf(["Text", ""])) == ("pdf", [("1", "Text"), ("2", "")], 1)
    assert read(pdf(["Text", "More"]), "on") == (OPTICAL, [("1", seen), ("2", seen)], 2)
    assert read(pdf(["Text", ""]), "off") == ("pdf", [("1", "Text"), ("2", "")], 0)


@pytest.mark.parametrize(("box", "most"), [("14400 14400", 2_000_000), ("3 14400", 8_000 * 3), ("20 20", 2_000_000)])
def test_a_page_of_any_size_makes_a_picture_of_bounded_size(fake, box, most):
    data = pdf([GARBAGE]).replace(b"[0 0 600 800]", f"[0 0 {box}]".encode())
    sizes: list[int] = []
    Fake.read = lambda self, picture: sizes.append(picture.size) or ("x", [])  # type: ignore[method-assign]
    read(data)
    assert 0.9 * most / 8 < sizes[0] < 1.01 * most


@pytest.mark.parametrize("data", [pdf([""]), pdf([GARBAGE] * 2)])
def test_what_is_left_without_text_is_refused_with_what_would_help(fake, monkeypatch, data):
    with pytest.raises(DocumentError, match=r"; read it with --ocr$"):
        read(data, "off")
    monkeypatch.setattr(Fake, "read", lambda self, picture: ("", []))
    with pytest.raises(DocumentError, match=r"no text.*; scan it anew"):
        read(data)
    monkeypatch.setattr(optical, "is_installed", lambda: False)
    for ocr in ("auto", "on"):
        with pytest.raises(DocumentError, match=r"; install .*: pip install 'localctx\[ocr\]'$"):
            read(data, ocr)


# Read once


@pytest.mark.parametrize(
    ("form", "ocrs"),
    [(OPTICAL, "auto on"), ("pdf", "auto off"), ("pdf, 1 of 2 pages read optically", "auto"), ("docx", "auto on off")],
)
def test_a_document_is_read_again_only_where_that_would_change_it(form, ocrs):
    assert [ocr for ocr in ("auto", "on", "off") if matches_ocr(form, ocr)] == ocrs.split()


@pytest.mark.slow
def test_an_untouched_file_is_not_read_again_by_any_command(home, tmp_path, tiny_model, monkeypatch):
    file = tmp_path / "a.pdf"
    file.write_bytes(pdf(["Some text", "on two pages"]))
    with closing(Store(home)) as store:
        added = add_document(store, str(file))
        kept, again = find_stored(store, str(file)), read_document(str(file))
        assert kept
        assert (kept.text, kept.spans, kept.row.id) == (again.text, again.spans, added.id)
        assert find_stored(store, str(file), "on") is find_stored(store, "-") is find_stored(store, "missing") is None
    with monkeypatch.context() as patch:
        patch.setattr("localctx.workflows.read_sources.read_document", lambda *of: pytest.fail("it was read again"))
        with session(home, tiny_model) as s:
            assert list(s.prepare(str(file)))[-1].report.to_json()["tokens"]["prompt"]
            with pytest.raises(pytest.fail.Exception):
                list(s.stream("What?", [str(file)], persist=False))  # leaves the store alone
    with closing(Store(home)) as store:
        assert store.documents.find("a.pdf").used > kept.row.added
        store.db.execute("UPDATE documents SET text = 'damaged'")
        assert find_stored(store, str(file)) is None


# Limits


@pytest.mark.slow
@pytest.mark.parametrize(("renewed", "code"), [("_renew(request)", 0), ("0", -signal.SIGXCPU)])
def test_cpu_seconds_begin_anew_with_each_page(renewed, code):
    code_of_child = f"""
import time
from localctx.library.parsers.parse_child import _limit, _renew
from localctx.library.parsers.sandbox import ReadOptions
request = dict(seconds=1, memory=1 << 32, bytes=0, optical=0)
_limit(request, 1, 1 << 32)
for page in range(3):
    {renewed}
    end = time.process_time() + 0.7
    while time.process_time() < end: pass
"""
    done = subprocess.run([sys.executable, "-c", code_of_child], stdout=subprocess.PIPE)
    assert done.returncode == code
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == (4 if code == 0 else 1)
    assert told[0] == {"seconds": 1, "memory": 1 << 32}


def test_limits_that_are_already_lower_stay():
    code = """
import resource
from localctx.system import limit_process
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
limit_process(5, 1 << 40)
print(resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_CPU)[0])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(1 << 30), "5"]
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 1 << 30


@pytest.mark.slow
def test_a_child_is_killed_only_when_it_falls_silent():
    with start_python("import time; time.sleep(60)") as child:
        watch = ChildWatch(child, 1)
        watch.start()
        for _ in range(6):
            time.sleep(0.3)
            assert child.poll() is None
            watch.restart()
        child.wait(10)
        assert watch.excess == "time"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "seconds", "memory", "excess"),
    [
        ("while True: pass", 1, 1 << 40, "time"),
        ("a = bytearray(300 << 20); a[::4096] = a[::4096]\nwhile True: pass", 60, 200 << 20, "memory"),
    ],
)
def test_a_child_without_limits_of_the_system_is_killed_for_what_it_takes(work, seconds, memory, excess):
    with start_python(work) as child:
        watch = ChildWatch(child, 120)
        watch.allow(seconds, memory)
        watch.start()
        child.wait(60)
        assert watch.excess == excess


# The real thing


def words_right(seen: str, wanted: str) -> float:
    """Which part of the words is there, in order."""
    a, b = wanted.split(), seen.split()
    matched = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return sum(block.size for block in matched) / len(a)


@pytest.mark.slow
@needs_ocr
def test_a_scanned_pdf_is_read_word_for_word_with_its_pages(tmp_path):
    file, heard = tmp_path / "scan.pdf", list[tuple[int, int]]()
    file.write_bytes(joined(scanned(PAGES, turn=0.7), pdf(["This page has text."])))
    document = read_document(str(file), ReadOptions(progress=lambda done, total: heard.append((done, total))))
    pages = [(s.label, document.text[s.start : s.end]) for s in document.spans if s.kind == "page"]
    assert [label for label, _ in pages] == ["1", "2", "3"]
    for (_, seen), wanted in zip(pages, PAGES, strict=False):
        assert words_right(seen, wanted) > 0.9
    assert document.text.startswith("The harbour of Lindholm\n\nShips had come")
    assert pages[2][1] == "This page has text."
    assert document.row.encoding == "pdf, 2 of 3 pages read optically"
    assert heard == [(i, 3) for i in range(1, 4)]


@pytest.mark.slow
@needs_ocr
def test_the_models_are_on_this_machine(monkeypatch):
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, lambda *of: pytest.fail("the network was asked"))
    with closing(pypdfium2.PdfDocument(scanned(["Two words"]))) as source:
        picture = source[0].render(scale=2, grayscale=True).to_numpy()
    reader = optical.OpticalReader()
    assert reader.read(picture)[0] == "Two words"
    assert reader.read(picture[:100]) == ("", [])


@pytest.mark.slow
@needs_ocr
def test_a_page_on_its_side_or_head_is_read_too():
    text = "The harbour of Lindholm\nis as old as the town"
    with closing(pypdfium2.PdfDocument(scanned([text]))) as source:
        picture = source[0].render(scale=2, grayscale=True).to_numpy()
    reader = optical.OpticalReader()
    assert [reader.read(np.rot90(picture, quarters))[0] for quarters in (1, 2, 3)] == [text] * 3


@pytest.mark.slow
@needs_ocr
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_boxes_of_a_scanned_page_hold_the_ink_of_their_words(tmp_path, degrees):
    file = tmp_path / "scan.pdf"
    file.write_bytes(scanned(PAGES[:1]).replace(b"/Type /Page\n", f"/Type /Page\n/Rotate {degrees}\n".encode()))
    document, picture = read_document(str(file)), None
    with closing(pypdfium2.PdfDocument(file)) as source:
        assert source[0].get_rotation() == degrees
        picture = source[0].render(scale=2, grayscale=True).to_numpy().squeeze()
    boxes, outside = unpack(document.boxes[0].words), picture.copy()
    assert len(boxes) == len(document.text.split())
    for box in boxes:
        rows = slice(box.top * picture.shape[0] // GRID - 3, box.bottom * picture.shape[0] // GRID + 4)
        columns = slice(box.left * picture.shape[1] // GRID - 3, box.right * picture.shape[1] // GRID + 4)
        assert (picture[rows, columns] < 128).sum() > 20, document.text[box.start : box.end]
        outside[rows, columns] = 255
    assert (outside < 128).sum() < 0.02 * (picture < 128).sum()


@pytest.mark.slow
@needs_ocr
def test_optical_reading_stops_within_a_second(tmp_path):
    file, stopped = tmp_path / "scan.pdf", 0.0
    file.write_bytes(scanned(PAGES * 4))

    def stop(done: int, total: int) -> None:
        nonlocal stopped
        stopped = time.monotonic()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_document(str(file), ReadOptions(progress=stop))
    assert seconds_since(stopped) < 1
