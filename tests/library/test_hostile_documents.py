"""Files that are damaged, lie or mean harm: each costs one message, nothing hangs or crashes, the store is unharmed."""

import os
import random
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from clock import seconds_since
from fuzz_documents import FORMATS
from made_files import docx, epub, pdf, with_member, zipped
from measure_fuzz import run_block
from processes import opened

from localctx.errors import DocumentError
from localctx.library.add import add_document
from localctx.library.folders.find import find_documents
from localctx.library.parsers.sandbox import ReadOptions, SandboxLimits, parse
from localctx.store.store import Store

MiB = 1 << 20
WORDS = "Rivers are long and canals are short. " * 20
PAGE = f"<html><body><h1>Rivers</h1><p>{WORDS}</p><table><tr><td>1<td>2</table></body></html>"
WHOLE = {
    "pdf": pdf([f"Page {i}\n{WORDS[:300]}" for i in range(3)], [("Page 1", 1)]),
    "docx": docx([("Heading 1", "Rivers"), ("", WORDS)]),
    "epub": epub({"a.xhtml": f"<h1>One</h1><p>{WORDS}</p>", "b.xhtml": "<p>Two</p>"}),
    "html": PAGE.encode(),
    "txt": WORDS.encode(),
}
LAUGHS = "".join(f"<!ENTITY a{i} '{f'&a{i - 1};' * 10}'>" for i in range(1, 10))
BODY = "<w:document xmlns:w='w'><w:body><w:p><w:r><w:t>%s</w:t></w:r></w:p></w:body></w:document>"


def truncated(seed: int, data: bytes) -> bytes:
    return data[: random.Random(seed).randrange(1, len(data))]


def flipped(seed: int, data: bytes) -> bytes:
    """From one to a hundred bits are turned."""
    dice, out = random.Random(seed), bytearray(data)
    for _ in range(10 ** dice.randrange(3)):
        out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return bytes(out)


def odd_files() -> dict[str, bytes]:
    """Made by hand: each is a lie, a bomb, or nothing."""
    word = WHOLE["docx"]
    return {
        "laughs.docx": with_member(
            word, "word/document.xml", f"<!DOCTYPE l [<!ENTITY a0 'ha'>{LAUGHS}]>{BODY % '&a9;'}"
        ),
        "outside.docx": with_member(
            word, "word/document.xml", f"<!DOCTYPE l [<!ENTITY x SYSTEM 'file:///etc/hosts'>]>{BODY % '&x;'}"
        ),
        "laughs-styles.docx": with_member(
            word, "word/styles.xml", f"<!DOCTYPE l [<!ENTITY a0 ''>{LAUGHS}]><l>&a9;</l>"
        ),
        "bomb.docx": with_member(word, "word/document.xml", b" " * (300 * MiB)),
        "nested-bomb.docx": with_member(word, "word/media/a.zip", zipped({"b.zip": zipped({"c": bytes(50 * MiB)})})),
        "without-a-body.docx": zipped({"word/x": "", "_rels/.rels": "<r/>"}),
        "without-chapters.epub": zipped({"META-INF/container.xml": "<c/>"}),
        "chapter-missing.epub": with_member(
            epub({"a": "x"}), "OEBPS/book.opf", "<p><item id='1' href='b'/><itemref idref='1'/></p>"
        ),
        "no-zip.docx": b"PK\3\4" + bytes(100),
        "lie.docx": word.replace(b"PK\1\2", b"PK\1\2", 1)[:-22] + b"PK\5\6" + b"\xff" * 18,
        "count.pdf": pdf(["x"], count=10**9),
        "too-few.pdf": pdf(["x"], count=7),
        "negative.pdf": pdf(["x"], count=-1),
        "circle.pdf": pdf(["x"]).replace(b"/Kids[5 0 R]", b"/Kids[2 0 R]"),
        "outline-circle.pdf": pdf(["x"], [("a", 0), ("b", 0)]).replace(b"/Next 6 0 R", b"/Next 5 0 R"),
        "header-only.pdf": b"%PDF-1.7\n",
        "deep.html": b"<html>" + b"<div>" * 5000 + b"deep",
        "unclosed.html": b"<html>" + b"<b><i><p>" * 2000 + b"deep",
        "attributes.html": b"<html><p " + b"a=b " * 100_000 + b">x",
        "frames.html": b"<html><frameset><frame></frameset></html>",
        "surrogates.html": b"<html>&#xD800;&#x110000;&#0;</html>",
        "half.txt": "Flüsse".encode("utf-16")[:-1],
        "unmarked.txt": (WORDS * 3).encode("utf-16-le"),
        "nul.txt": b"\0" * 5000,
        "nul-inside.txt": WORDS.encode() + b"\0" + WORDS.encode(),
        "lone.txt": b"\xed\xa0\x80" * 100,
        "nothing.txt": b"",
        "blank.pdf": b" \n\n",
        "bom.txt": b"\xef\xbb\xbf",
    }


def broken_files() -> dict[str, bytes]:
    files = odd_files()
    for kind, data in WHOLE.items():
        others = [other for other in WHOLE if other != kind]
        files |= {f"other-{other}-{kind}.{other}": data + other.encode() for other in others}
        files |= {f"cut-{i}.{kind}": truncated(i, data) for i in range(12)}
        files |= {f"flip-{i}.{kind}": flipped(i, data) for i in range(20)}
    return files


@pytest.mark.slow
def test_two_hundred_broken_files_cost_a_line_each_and_the_rest_is_kept(home, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    files = broken_files()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    (folder / "good.txt").write_text("good")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (folder / "up").symlink_to(folder)
    odd = [str(tmp_path / "pipe"), str(tmp_path / "loop"), str(tmp_path / "in" / ("n" * 300)), "nul\0name"]
    with closing(Store(home)) as store:
        sources = find_documents([str(folder), *odd], lambda path, why: None)
        results = {Path(r.path).name: r for r in (add_document(store, source) for source in sources)}
        assert len(results) == len(files) + 1 + len(odd) >= 200
        failed = {name: r for name, r in results.items() if r.status == "failed"}
        for name, r in failed.items():
            assert "; " in r.why, name
            assert "\n" not in r.why
            assert len(r.why) < 1000
        assert {"loop", "pipe", "laughs.docx", "bomb.docx", "nul.txt", "circle.pdf"} <= failed.keys()
        good = {
            "good.txt",
            "nested-bomb.docx",
            "deep.html",
            "unmarked.txt",
            "too-few.pdf",
            *(f"other-{k}-pdf.{k}" for k in ("docx", "txt")),
        }
        assert not good & failed.keys()
        assert max(r.seconds for r in results.values()) < 20
        assert store.health()["database"] == "ok"
        kept = {r.id for r in results.values()} - {""}
        assert {d.id for d in store.documents.all()} == kept
        assert store.documents.text(results["good.txt"].id) == "good"


# Limits


@pytest.mark.process
@pytest.mark.parametrize(
    ("what", "data", "limits", "problem"),
    [
        ("html", b"<div>" * 200_000, SandboxLimits(seconds=1), "takes more than 1 s"),
        ("html", b"<p>x" * 100_000, SandboxLimits(wall=0), "takes more than"),
        ("zip", docx([("", "x" * 10_000)]), SandboxLimits(characters=9_999), "more than 9,999 characters"),
        ("html", b"<p>x" * MiB, SandboxLimits(memory=128 * MiB), "needs more than 128 MiB"),
    ],
)
def test_a_limit_that_is_reached_is_told(what, data, limits, problem):
    start = time.monotonic()
    with pytest.raises(DocumentError, match=problem):
        parse(what, data, ReadOptions(limits=limits))
    assert seconds_since(start) < 10


def test_a_crash_in_a_parser_is_one_message(tmp_path, monkeypatch):
    (tmp_path / "selectolax.py").write_text("import ctypes\nctypes.string_at(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DocumentError, match=rf"crash \(exit -{signal.SIGSEGV.value}\)"):
        parse("html", b"<p>x")


@pytest.mark.process
def test_a_child_ends_with_its_parent(tmp_path):
    (tmp_path / "slow.html").write_bytes(b"<html>" + b"<div>" * 400_000)
    code = "import sys; from localctx.library.read_document import read_document; read_document(sys.argv[1])"
    with opened([sys.executable, "-c", code, str(tmp_path / "slow.html")]) as parent:
        deadline = time.monotonic() + 20
        while not (children := psutil.Process(parent.pid).children()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)
        parent.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=2)
    assert not alive


def test_a_book_that_names_one_chapter_thousands_of_times_is_refused_in_a_sentence(tmp_path):
    spine = "<itemref idref='c0'/>" * 3000
    package = f"<package><manifest><item id='c0' href='a'/></manifest><spine>{spine}</spine></package>"
    data = with_member(epub({"a": "<p>A chapter.</p>" * 4000}), "OEBPS/book.opf", package)
    with pytest.raises(DocumentError, match=r"names one chapter .* 3,000 times; do not trust it"):
        parse("zip", data)


@pytest.mark.parametrize("depth", [1000, 100_000, 1_000_000])
def test_deep_xml_is_a_text_or_a_sentence(depth):
    deep = "<w:body xmlns:w='w'>" + "<w:p>" * depth + "<w:t>deep</w:t>" + "</w:p>" * depth + "</w:body>"
    try:
        said = parse("zip", with_member(WHOLE["docx"], "word/document.xml", deep)).text
    except DocumentError as e:
        said = str(e)
    assert "exit" not in said  # which would be a crash
    assert len(said) < 200


@pytest.mark.slow
def test_links_out_of_a_folder_are_not_followed_and_counted_in_one_line(run, tmp_path):
    (tmp_path / "secret.txt").write_text("The secret is 42.")
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.txt").write_text("This is the document.")
    (folder / "inside.txt").symlink_to("good.txt")
    (folder / "relative.txt").symlink_to("../secret.txt")
    (folder / "sub" / "absolute.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "sub" / "up.txt").symlink_to("../good.txt")
    (folder / "twice.txt").symlink_to("relative.txt")
    (folder / "shadow.txt").symlink_to("/etc/shadow")
    done = run("library", "add", folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("link") == 1
    assert "4 links out of a folder not followed; to read the files, name them" in done.stderr
    listed = run("library", "list", "--json")
    assert "secret" not in listed.stdout
    assert "good.txt" in listed.stdout + done.stdout
    assert run("library", "search", "secret").stdout == ""
    assert run("library", "add", folder / "relative.txt").returncode == 0  # named by the owner


@pytest.mark.slow
def test_documents_changed_at_random_are_read_or_refused_in_a_sentence(tmp_path):
    """``python tests/measure/measure_fuzz.py`` has more inputs."""
    ended = run_block(",".join(FORMATS), 50, 1, tmp_path)
    assert {name: sum(ends.values()) >= 50 for name, ends in ended.items()} == dict.fromkeys(FORMATS, True)
    assert sum(ends["read"] for ends in ended.values()) > 100
    assert sum(ends["refused"] for ends in ended.values()) > 100
