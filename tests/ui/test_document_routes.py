"""What the viewer asks for over HTTP: pages and sections by id and number, pictures, and words; for the owner only."""

from contextlib import closing

import pytest
from made_files import epub, pdf
from starlette.testclient import TestClient

from localctx.errors import DocumentError
from localctx.library.add import add_document
from localctx.library.parsers.sandbox import PNG, PageDrawing
from localctx.serving.http import LOOPBACK
from localctx.settings import load_settings
from localctx.store.word_places import PageBoxes
from localctx.ui.app import mount
from localctx.ui.browser_access import BrowserAccess
from localctx.ui.viewer.drawn_pages import MAX_BYTES, DrawnPages
from localctx.ui.viewer.viewer_parts import SECTION, DocumentPart, part_called
from localctx.ui.window import AppWindow

pytestmark = pytest.mark.slow

HOST = "127.0.0.1:7860"
PAGES = ["First page of the lease.", "The rent is due\non the first day.", "Last page."]
LABELS = "/PageLabels<</Nums[0<</S/r>>1<</S/D>>]>>"
ABSENT = "0" * 64


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    home = tmp_path_factory.mktemp("viewer") / "home"
    with pytest.MonkeyPatch.context() as patch, closing(AppWindow(load_settings(home=home))) as window:
        patch.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))
        yield window


@pytest.fixture(scope="module")
def app(window):
    return BrowserAccess(mount(window, "127.0.0.1", 7860), LOOPBACK, "key", 7860)


@pytest.fixture
def stranger(app):
    return TestClient(app, f"http://{HOST}", follow_redirects=False)


@pytest.fixture
def owner(app):
    client = TestClient(app, f"http://{HOST}", follow_redirects=False)
    client.get("/", params={"key": "key"})
    return client


@pytest.fixture
def add(window, tmp_path):
    with window.store() as store:  # the same text at another path would be another file
        for document in store.documents.all():
            store.remove_document(document.id)

    def add(name: str, data: bytes) -> str:
        (tmp_path / name).write_bytes(data)
        with window.store() as store:
            added = add_document(store, str(tmp_path / name))
        assert not added.why
        return added.id

    return add


def part(client, document: str, **query) -> dict:
    response = client.get(f"/documents/{document}/part", params=query)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    return response.json()


def test_a_page_comes_with_its_text_and_the_places_of_its_words(owner, add):
    lease = add("lease.pdf", pdf(PAGES, labels=LABELS))
    second = part(owner, lease, number=2)
    assert {k: second[k] for k in ("name", "kind", "number", "total", "label", "image", "notice")} == {
        "name": "lease.pdf",
        "kind": "page",
        "number": 2,
        "total": 3,
        "label": "1",
        "image": True,
        "notice": "",
    }
    assert (second["width"], second["height"]) == (600, 800)
    words = [second["text"][w[0] - second["start"] : w[1] - second["start"]] for w in second["words"]]
    assert words == PAGES[1].split()
    assert part(owner, lease, at=second["start"]) == second
    assert part(owner, lease, at=second["end"] - 1) == second
    assert part(owner, lease, at=10**9)["number"] == 3
    assert part(owner, lease, label="I")["number"] == 1
    assert part(owner, lease, label="3")["number"] == 3, "no page is called so: the third"


def test_a_page_is_a_picture(owner, add):
    lease = add("lease.pdf", pdf(PAGES))
    response = owner.get(f"/documents/{lease}/pages/2")
    assert response.status_code == 200
    assert response.headers["content-type"] == "image/png"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.content.startswith(PNG)


def test_words_are_found_in_any_case_and_across_lines(owner, add):
    lease = add("lease.pdf", pdf(PAGES))
    (hit,) = owner.get(f"/documents/{lease}/search", params={"words": "RENT is due  on the"}).json()["hits"]
    at = part(owner, lease, at=hit[0])
    assert at["number"] == 2
    assert at["text"][hit[0] - at["start"] : hit[1] - at["start"]] == "rent is due on the"
    for words in ("", "  ", "(.*)", "nothing of it"):
        assert owner.get(f"/documents/{lease}/search", params={"words": words}).json() == {"hits": []}


def test_nothing_is_shown_without_the_key_under_another_name_or_to_another_site(owner, stranger, add):
    lease = add("lease.pdf", pdf(PAGES))
    for path in ("part", "search?words=rent", "pages/1"):
        url = f"/documents/{lease}/{path}"
        assert stranger.get(url).status_code == 403
        assert owner.get(url, headers={"host": "evil.example"}).status_code == 400
        assert owner.get(url, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert owner.post(url).status_code in (404, 405)


@pytest.mark.parametrize("path", ["part", "search?words=a", "pages/1"])
@pytest.mark.parametrize("document", [ABSENT, "lease.pdf", "..", "%2e%2e", "%2Fetc%2Fpasswd", "' OR 1=1 --"])
def test_what_is_no_document_is_not_there(owner, add, document, path):
    add("lease.pdf", pdf(PAGES))
    assert owner.get(f"/documents/{document}/{path}").status_code == 404


@pytest.mark.parametrize("number", ["0", "4", "-1", "99999999999999999999"])
def test_a_page_that_is_not_there(owner, add, number):
    lease = add("lease.pdf", pdf(PAGES))
    assert owner.get(f"/documents/{lease}/pages/{number}").status_code == 404
    assert owner.get(f"/documents/{lease}/part", params={"label": "xii"}).status_code == 404
    assert owner.get(f"/documents/{lease}/pages/../../lease.pdf").status_code in (404, 422)


def test_a_text_has_sections_that_begin_at_its_headings_and_no_pictures(owner, add):
    chapters = {f"{i}.xhtml": f"<h1>Chapter {i}</h1>" + f"<p>Words of chapter {i}.</p>" * 150 for i in range(1, 6)}
    book = add("book.epub", epub(chapters))
    first = part(owner, book)
    assert (first["kind"], first["image"], first["words"], first["heading"]) == ("section", False, [], "Chapter 1")
    texts = [part(owner, book, number=i)["text"] for i in range(1, first["total"] + 1)]
    assert all(0 < len(text) <= SECTION for text in texts)
    assert [text[:9] for text in texts] == [f"Chapter {i}" for i in range(1, 6)]
    assert owner.get(f"/documents/{book}/pages/1").status_code == 404


def test_a_text_without_headings_is_divided_after_paragraphs(owner, add):
    text = "".join(f"Paragraph {i} {'word ' * 30}\n\n" for i in range(200))
    document = add("long.txt", text.encode())
    parts, number = [], 1
    while number <= part(owner, document)["total"]:
        parts.append(part(owner, document, number=number))
        number += 1
    assert "".join(p["text"] for p in parts) == text
    assert all(p["text"].startswith("Paragraph") and p["text"].endswith("\n\n") for p in parts)


def test_a_file_that_changed_shows_its_text_and_says_so(owner, add, window, tmp_path):
    lease = add("lease.pdf", pdf(PAGES))
    (tmp_path / "lease.pdf").write_bytes(pdf(["Quite another"]))
    shown = part(owner, lease, number=2)
    assert (shown["image"], shown["text"].strip()) == (False, PAGES[1].replace("\n", " "))
    assert "has changed" in shown["notice"]
    assert owner.get(f"/documents/{lease}/pages/2").status_code == 404


def test_a_document_of_before_gets_its_boxes_when_its_page_is_drawn(owner, add, window):
    lease = add("lease.pdf", pdf(PAGES))
    before = part(owner, lease, number=2)
    with window.store() as store:
        store.db.execute("DELETE FROM word_boxes")
    assert part(owner, lease, number=2) == before


def test_a_damaged_page_shows_its_text(owner, add, window, monkeypatch):
    lease = add("lease.pdf", pdf(PAGES))
    with window.store() as store:
        store.db.execute("DELETE FROM word_boxes")

    def fail(*of):
        raise DocumentError("makes its parser crash", "save it again")

    monkeypatch.setattr("localctx.library.page_source.draw_page", fail)
    shown = part(owner, lease, number=1)
    assert (shown["image"], shown["text"].strip()) == (False, PAGES[0])
    assert "cannot be drawn" in shown["notice"]
    assert owner.get(f"/documents/{lease}/pages/1").status_code == 404


def test_pages_are_drawn_once_and_the_oldest_are_forgotten():
    pages, drawn = DrawnPages(), list[int]()

    def get(number: int, size: int = 0) -> PageDrawing:
        def draw() -> PageDrawing:
            drawn.append(number)
            return PageDrawing(bytes(size), "", PageBoxes(number, 1.0, 1.0, b""))

        return pages.get("d", number, draw)

    get(1)
    get(1)
    assert drawn == [1]
    get(2, MAX_BYTES)
    get(1)
    assert drawn == [1, 2]
    get(3, MAX_BYTES)
    get(2, MAX_BYTES)
    assert drawn == [1, 2, 3, 2]


def test_a_page_that_cannot_be_drawn_is_not_tried_again():
    pages, tried = DrawnPages(), list[int]()

    def draw() -> PageDrawing:
        tried.append(1)
        raise DocumentError("no", "try another")

    for _ in range(2):
        with pytest.raises(DocumentError):
            pages.get("d", 1, draw)
    assert tried == [1]


def test_pages_of_one_label_are_found_by_their_place_in_the_file():
    parts = [DocumentPart(i, i + 1, label) for i, label in enumerate(("i", "1", "2", "1 (sheet 4)"))]
    asked = ("1", "1 (sheet 2)", "1 (Sheet 4)", "sheet 3", "4", "sheet 9")
    assert [part_called(parts, label) for label in asked] == [1, 1, 3, 2, 3, None]
