"""The document beside the chat, in a browser: opened from sources and the library, marked, searched, quoted, closed."""

from collections.abc import Iterator

import pytest
from made_files import epub, pdf
from window_checks import barriers

from localctx.library.add import add_document

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)>${alert(2)}"
RENT = "The rent is 1,150 a month."
PAGES = ["A tenancy agreement\nbetween two parties.", f"2. Rent\n{RENT} It is\npaid in advance.", "3. Pets\nNo pets."]
CHAPTERS = {
    f"{i}.xhtml": f"<h1>Chapter {i}</h1><p>{'The heron waits. ' * 250}</p><p>End of {i} 🐦 here.</p>" for i in (1, 2)
}
MARKED = "[...document.querySelectorAll('#viewer rect.lc-cited')].map(r => r.getBoundingClientRect().toJSON())"


@pytest.fixture(scope="module")
def contexts(chromium) -> dict:
    """A user with a large screen, and one with a phone."""
    sizes = {"large": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
    return {name: chromium.new_context(viewport=size) for name, size in sizes.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def documents(tiny_window, folder) -> dict[str, str]:
    """The ids of the documents of the library, by name."""
    files = {
        "lease.pdf": pdf(PAGES),
        "birds.epub": epub(CHAPTERS),
        f"{HOSTILE.replace('/', '')}.txt": f"{HOSTILE} and a heron\n".encode(),
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with tiny_window.store() as store:
        added = [add_document(store, str(folder / name)) for name in files]
    assert not any(a.why for a in added)
    return {a.path.rpartition("/")[2]: a.id for a in added}


@pytest.fixture
def open_page(contexts, tiny_address, documents) -> Iterator:
    """A function that opens the window; dialogs, errors of scripts and the browser's own fail the test."""
    faults: list[str] = []
    pages = []

    def open_page(size: str = "large", query: str = ""):
        page = contexts[size].new_page()
        page.on("dialog", lambda d: faults.append(d.message))
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.on("console", lambda m: faults.append(m.text) if m.type == "error" and not expected(m) else None)
        page.add_init_script("localStorage.clear()")  # no draft of an earlier page
        page.goto(tiny_address + query)
        page.locator("#question textarea").wait_for()
        page.locator("#viewer").wait_for(state="attached")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert faults == []


def expected(message) -> bool:
    """A document that was deleted is not found."""
    return "/documents/" in message.location["url"] and "404" in message.text


@pytest.fixture
def chat(tiny_window, documents) -> str:
    """A chat about the lease and the book."""
    with tiny_window.store() as store:
        return store.chats.create("Rent?", [documents["lease.pdf"], documents["birds.epub"]]).id


@pytest.fixture
def sources(tiny_window, documents) -> list[str]:
    """Three sources of an answer, two in the lease and one in the book: document, start and end of each."""
    quotes = (("lease.pdf", RENT), ("lease.pdf", "No pets."), ("birds.epub", "End of 2 🐦 here."))
    with tiny_window.store() as store:
        texts = {name: store.documents.text(documents[name]) for name, _ in quotes}
    starts = [texts[name].index(quote) for name, quote in quotes]
    return [f"{documents[n]}/{at}/{at + len(quote)}" for (n, quote), at in zip(quotes, starts, strict=True)]


def show_sources(page, sources: list[str]):
    """Put sources into the page as an answer has them; the first of them."""
    page.evaluate(
        """sources => { const all = document.createElement('div'); all.className = 'lc-answer'
            for (const source of sources) { const button = document.createElement('button')
                const [document_, start, end] = source.split('/')
                Object.assign(button.dataset, {document: document_, start, end})
                button.className = 'lc-open-source'; button.textContent = 'Show in the document'; all.append(button) }
            document.querySelector('#status').append(all) }""",
        sources,
    )
    return page.locator("#status .lc-answer .lc-open-source").first


def viewer(page):
    return page.locator("#viewer")


def shows(page, words: str, where: str = "#viewer-body") -> None:
    page.wait_for_function(
        "([where, words]) => document.querySelector(where)?.textContent.includes(words)", arg=[where, words]
    )


def open_from_library(page, name: str) -> None:
    page.get_by_role("tab", name="Library").click()
    page.locator("#documents").get_by_role("button", name=name, exact=True).click()
    viewer(page).wait_for()
    shows(page, name, "#viewer-name")


def drawn(page) -> None:
    """Wait until the picture of the page is there."""
    page.wait_for_function("document.querySelector('#viewer img')?.naturalWidth > 0")


def ink_under(page, box: dict) -> float:
    """The share of dark pixels that the picture has in a box of the window."""
    return page.evaluate(
        """box => { const image = document.querySelector('#viewer img'), at = image.getBoundingClientRect()
            const canvas = document.createElement('canvas'), scale = image.naturalWidth / at.width
            canvas.width = Math.round(box.width * scale); canvas.height = Math.round(box.height * scale)
            const context = canvas.getContext('2d')
            context.drawImage(image, (at.x - box.x) * scale, (at.y - box.y) * scale)
            const data = context.getImageData(0, 0, canvas.width, canvas.height).data
            let dark = 0; for (let i = 0; i < data.length; i += 4) dark += data[i] < 128
            return dark / (data.length / 4) }""",
        box,
    )


def select(page, first: str, last: str) -> None:
    """Select from one word to another of what is shown, as dragging the mouse does."""
    page.evaluate(
        """([first, last]) => { const words = [...document.querySelectorAll('#viewer svg text')]
            const a = words.find(w => w.textContent === first), b = words.findLast(w => w.textContent === last)
            getSelection().setBaseAndExtent(a.firstChild, 0, b.firstChild, b.textContent.length) }""",
        [first, last],
    )


# Sources


def test_a_source_opens_on_its_page_with_its_words_marked_and_arrows_go_to_the_others(open_page, sources):
    page = open_page()
    opener = show_sources(page, sources)
    opener.click()
    shows(page, "lease.pdf", "#viewer-name")
    drawn(page)
    assert page.locator("#viewer-part").input_value() == "2"
    assert page.locator("#viewer-count").inner_text() == "1 of 3"
    (mark,) = page.evaluate(MARKED)
    words = page.locator("#viewer svg text").all()
    marked = [w for w in words if mark["x"] <= w.bounding_box()["x"] + 2 < mark["x"] + mark["width"]]
    assert ink_under(page, mark) > 0.05, "what is marked is not where the words are drawn"
    assert marked
    page.get_by_role("button", name="Next source").click()
    page.wait_for_function("document.querySelector('#viewer-part').value === '3'")
    assert page.locator("#viewer-count").inner_text() == "2 of 3"
    page.get_by_role("button", name="Next source").click()
    shows(page, "birds.epub", "#viewer-name")
    assert page.locator("#viewer mark").inner_text() == "End of 2 🐦 here."
    assert page.locator("#viewer mark").is_visible()
    page.get_by_role("button", name="Next source").click()
    page.wait_for_function("document.querySelector('#viewer-count').textContent === '1 of 3'")
    page.keyboard.press("Escape")
    viewer(page).wait_for(state="hidden")
    assert opener.evaluate("e => e === document.activeElement"), "the focus does not go back to what opened it"


def test_a_link_in_an_answer_opens_too_and_the_keyboard_does_it(open_page, documents, tiny_window):
    page = open_page()
    lease = documents["lease.pdf"]
    with tiny_window.store() as store:
        start = store.documents.text(lease).index("No pets.")
    page.evaluate(
        """place => { const link = document.createElement('a'); link.className = 'lc-open-source'
            link.href = '#'; link.textContent = '1'; Object.assign(link.dataset, place)
            document.querySelector('#conversation').append(link); link.focus() }""",
        {"document": lease, "start": start, "end": start + 8},
    )
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('#viewer-part').value === '3'")
    drawn(page)
    assert len(page.evaluate(MARKED)) == 1
    assert not page.url.endswith("#")


# Pages


def test_pages_are_turned_and_named(open_page):
    page = open_page()
    open_from_library(page, "lease.pdf")
    assert page.get_by_role("button", name="Previous page").is_disabled()
    page.get_by_role("button", name="Next page").click()
    page.wait_for_function("document.querySelector('#viewer-part').value === '2'")
    page.locator("#viewer-body").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('#viewer-part').value === '3'")
    assert page.get_by_role("button", name="Next page").is_disabled()
    page.locator("#viewer-part").fill("1")
    page.keyboard.press("Enter")
    shows(page, "agreement")
    page.locator("#viewer-part").fill("17")
    page.keyboard.press("Enter")
    shows(page, "There is no page 17.", "#viewer-notice")
    assert page.locator("#viewer-part").input_value() == "1"
    assert PAGES[0].split()[1] in page.locator("#viewer img").get_attribute("alt")
    page.get_by_role("button", name="As text").click()
    assert page.locator("#viewer .lc-part-text").inner_text().split() == PAGES[0].split()


def test_words_are_searched_from_page_to_page(open_page):
    page = open_page()
    open_from_library(page, "lease.pdf")
    page.locator("#viewer-words").fill("PET")
    shows(page, "1 of 2", "#viewer-hits")
    page.wait_for_function("document.querySelector('#viewer-part').value === '3'")
    page.wait_for_selector("#viewer rect.lc-here")
    assert page.locator("#viewer rect.lc-hit-word").count() == 1
    page.get_by_role("button", name="Next hit").click()
    shows(page, "2 of 2", "#viewer-hits")
    page.locator("#viewer-words").fill("parties")
    shows(page, "1 of 1", "#viewer-hits")
    page.wait_for_function("document.querySelector('#viewer-part').value === '1'")
    page.locator("#viewer-words").fill("zebra")
    shows(page, "no hit", "#viewer-hits")


def test_a_book_is_shown_by_its_sections(open_page):
    page = open_page()
    open_from_library(page, "birds.epub")
    assert page.locator("#viewer-kind").inner_text() == "Section"
    shows(page, "Chapter 1")
    page.get_by_role("button", name="Next section").click()
    shows(page, "Chapter 2")
    assert page.get_by_role("button", name="As text").is_hidden()
    page.locator("#viewer-words").fill("end of 1")
    shows(page, "1 of 1", "#viewer-hits")
    assert page.locator("#viewer mark").inner_text() == "End of 1"


def test_nothing_in_a_document_is_markup(open_page, documents):
    page = open_page()
    name = next(name for name in documents if HOSTILE[:4] in name)
    open_from_library(page, name)
    assert page.locator("#viewer .lc-part-text").inner_text() == f"{HOSTILE} and a heron\n"
    assert page.locator("#viewer img").count() == 0
    page.locator("#viewer-words").fill(HOSTILE)
    page.wait_for_selector("#viewer mark")
    assert page.locator("#viewer mark").inner_text() == HOSTILE


# Into the chat


def test_a_selection_on_a_page_goes_into_the_question_with_its_document(open_page, documents):
    page = open_page()
    open_from_library(page, "lease.pdf")
    page.get_by_role("button", name="Next page").click()
    shows(page, "1,150")
    ask = page.get_by_role("button", name="Ask about this selection")
    assert ask.is_disabled()
    select(page, "The", "month.")
    page.wait_for_function("!document.querySelector('#viewer-ask').disabled")
    ask.click()
    question = page.locator("#question textarea")
    sync_api.expect(question).to_have_value(f"“{RENT}”\n")
    sync_api.expect(question).to_be_focused()
    sync_api.expect(page.locator("#sources")).to_contain_text("lease.pdf")
    page.keyboard.type("Is it much?")
    assert question.input_value() == f"“{RENT}”\nIs it much?"


def test_a_selection_of_a_text_counts_characters_as_the_document_does(open_page):
    page = open_page()
    open_from_library(page, "birds.epub")
    page.locator("#viewer-words").fill("here.")
    page.wait_for_selector("#viewer mark")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#viewer mark'))")
    page.wait_for_function("!document.querySelector('#viewer-ask').disabled")
    page.get_by_role("button", name="Ask about this selection").click()
    sync_api.expect(page.locator("#question textarea")).to_have_value("“here.”\n")


def test_reading_ends_at_the_page_or_the_selection(open_page):
    page = open_page()
    open_from_library(page, "lease.pdf")
    page.get_by_role("button", name="Next page").click()
    shows(page, "1,150")
    page.get_by_role("button", name="Read only up to this page").click()
    until = page.locator("#until textarea, #until input")
    sync_api.expect(until).to_have_value("page 2")
    shows(page, "nothing after this place", "#viewer-notice")
    sync_api.expect(page.locator("#sources")).to_contain_text("lease.pdf")
    select(page, "The", "month.")
    page.get_by_role("button", name="Read only up to this selection").click()
    sync_api.expect(until).to_have_value('"agreement between two parties. 2. Rent The rent is 1,150 a month."')


def test_the_chat_links_to_its_documents(open_page, chat):
    page = open_page(query=f"&chat={chat}")
    page.get_by_role("button", name="Open birds.epub").click()
    shows(page, "Chapter 1")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Open lease.pdf").click()
    shows(page, "agreement")


def test_a_hit_of_the_librarys_search_opens_at_its_words(open_page):
    page = open_page()
    page.get_by_role("tab", name="Library").click()
    page.locator("#words textarea, #words input").fill("pets")
    page.locator("#words button").click()
    page.locator("#hits .lc-open-source").first.click()
    shows(page, "lease.pdf", "#viewer-name")
    drawn(page)
    assert page.evaluate(MARKED)


# What is not there any more


def test_a_file_that_changed_shows_its_text_and_says_so(open_page, tiny_window, folder):
    (folder / "note.pdf").write_bytes(pdf(["What was there"]))
    with tiny_window.store() as store:
        add_document(store, str(folder / "note.pdf"))
    (folder / "note.pdf").write_bytes(pdf(["Something else entirely"]))
    page = open_page()
    open_from_library(page, "note.pdf")
    shows(page, "The file has changed since it was read", "#viewer-notice")
    assert page.locator("#viewer .lc-part-text").inner_text() == "What was there"


def test_a_document_that_was_deleted_meanwhile_is_said(open_page, tiny_window, folder):
    (folder / "gone.txt").write_text("Not for long, this one.")
    with tiny_window.store() as store:
        added = add_document(store, str(folder / "gone.txt"))
    page = open_page()
    page.get_by_role("tab", name="Library").click()
    link = page.locator("#documents").get_by_role("button", name="gone.txt", exact=True)
    link.wait_for()
    with tiny_window.store() as store:
        store.remove_document(added.id)
    link.click()
    shows(page, "not in the library any more", "#viewer-notice")
    assert page.locator("#viewer-name").inner_text() == "gone.txt"


# Screens


def test_on_a_phone_it_lies_over_the_page_and_closes(open_page, sources):
    page = open_page("phone")
    show_sources(page, sources).click()
    shows(page, "lease.pdf", "#viewer-name")
    drawn(page)
    assert viewer(page).bounding_box() == {"x": 0, "y": 0, "width": 390, "height": 844}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.get_by_role("dialog").count() == 1
    assert page.locator("#question textarea").evaluate("e => !!e.closest('[inert]')")
    page.get_by_role("button", name="Close the document").click()
    viewer(page).wait_for(state="hidden")
    assert not page.locator("#question textarea").evaluate("e => !!e.closest('[inert]')")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_bars_the_way_to_it(open_page, theme):
    page = open_page(query=f"&__theme={theme}")
    open_from_library(page, "lease.pdf")
    drawn(page)
    page.locator("#viewer-words").fill("lease")
    assert barriers(page) == {}
    page.get_by_role("button", name="As text").click()
    assert barriers(page) == {}


def test_a_long_document_opens_in_a_second(open_page, tiny_window, folder):
    (folder / "novel.pdf").write_bytes(pdf([f"Page {i}\n" + "and so it went on and on\n" * 35 for i in range(1, 501)]))
    with tiny_window.store() as store:
        add_document(store, str(folder / "novel.pdf"))
    page = open_page()
    open_from_library(page, "novel.pdf")
    drawn(page)
    page.locator("#viewer-part").fill("417")
    took = page.evaluate(
        """async () => { const start = performance.now(), field = document.querySelector('#viewer-part')
            field.dispatchEvent(new Event('change'))
            const shown = () => document.querySelector('#viewer img')?.src.endsWith('/417')
            while (!shown()) await new Promise(requestAnimationFrame)
            return performance.now() - start }"""
    )
    drawn(page)
    assert took < 3000, "alone it takes a tenth of that"
    assert page.locator("#viewer svg text").count() < 400
