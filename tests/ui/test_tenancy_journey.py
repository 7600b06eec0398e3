"""A tenant's first hour with the window and the default model: contracts, a book, answers to check, a way back."""

from collections.abc import Iterator

import pytest
from browser import Tab, Watch, launched, served
from made_files import epub

pytestmark = pytest.mark.slow

PARTS = {
    "Parties": "This agreement is made between Margaret Olsen, the landlord, and {tenant}, the tenant. It is about the "
    "flat at 14 Harbour Lane, which has two rooms, a kitchen and a bathroom.",
    "Term": "The tenancy begins on 1 March 2026 and lasts twelve months. Either party may end it afterwards with a "
    "notice of two months in writing.",
    "Deposit": "The tenant pays a deposit of {deposit} euros before moving in. It is held in a protected account and "
    "returned within thirty days after the end of the tenancy, less the cost of any damage.",
    "Rent": "The monthly rent is {rent} euros. It is paid in advance by bank transfer on the first day of each month. "
    "The rent may be raised once a year with a notice of three months.",
    "Repairs": "The landlord keeps the roof, the walls and the heating in good order. The tenant pays for small "
    "repairs of up to 80 euros each.",
    "Pets": "No pets may be kept in the flat without the written consent of the landlord. A guide dog is always "
    "allowed.",
}
FILL = "The tenant keeps the flat clean and airs it every day, and tells the landlord at once of any damage. "
NOVEL = "".join(
    f"Chapter {i}\n\n{'The sea was grey, and the keeper of the light walked down to the boats. ' * 15}\n\n"
    for i in range(1, 9)
)
BOOK = {"1.xhtml": f"<h1>The light</h1><p>The lamp is lit by Ada Lindqvist every evening. {'It burns. ' * 120}</p>"}
LOOKS = [
    ("light", {"width": 1280, "height": 900}),
    ("dark", {"width": 1280, "height": 900}),
    ("light", {"width": 390, "height": 844}),
    ("dark", {"width": 390, "height": 844}),
]


def contract(page, **details: object) -> bytes:
    """A contract as a PDF of a page for each part, printed by the browser."""
    pages = (
        f'<section style="break-after: page"><h1>{number}. {title}</h1><p>{text.format(**details)}</p>'
        f"<p>{FILL * 4}</p></section>"
        for number, (title, text) in enumerate(PARTS.items(), 1)
    )
    page.set_content(f"<!doctype html><title>Tenancy agreement</title>{''.join(pages)}")
    return page.pdf()


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def files(browser) -> dict[str, bytes]:
    page = browser.new_page()
    first = contract(page, tenant="John Ferris", deposit="1,840", rent="920")
    second = contract(page, tenant="Lucy Hart", deposit="2,210", rent="1,105")
    page.close()
    return {"ferris.pdf": first, "hart.pdf": second, "novel.txt": NOVEL.encode(), "light.epub": epub(BOOK)}


@pytest.fixture(scope="module")
def window(tmp_path_factory, default_home) -> Iterator:
    home = tmp_path_factory.mktemp("tenant") / "home"
    home.mkdir()
    (home / "models").symlink_to((default_home / "models").resolve())
    with served(home, "--threads", 2) as window:
        yield window


@pytest.fixture
def tab(browser, window) -> Iterator:
    """A function that opens a tab in a theme and size; nothing may go wrong in any."""
    watch, contexts = Watch(window.origin), []

    def opened(theme: str = "light", viewport: dict[str, int] | None = None) -> Tab:
        contexts.append(browser.new_context(color_scheme=theme, viewport=viewport or LOOKS[0][1]))
        return Tab(watch.over(contexts[-1].new_page())).open(window.url)

    yield opened
    toasts = [text for context in contexts for page in context.pages for text in page.locator(".toast-body").all()]
    for context in contexts:
        context.close()
    assert toasts == []
    assert watch.seen == []


def ready(tab: Tab) -> str:
    """Wait until what was dropped is ready; what the card says."""
    return tab.wait_for("Ask anything", "#ready-card", 400)


def drop(tab: Tab, name: str, data: bytes) -> str:
    tab.drop(name, data)
    tab.wait_for(name.partition(".")[0], "#ready-card", 60)
    return ready(tab)


def test_the_tenancy_journey(tab, files, window):
    one = tab()
    drop(one, "ferris.pdf", files["ferris.pdf"])
    one.page.locator("#suggestions button:visible").first.wait_for(timeout=180_000)  # each is tried first
    suggestions = one.page.locator("#suggestions button:visible").all_inner_texts()
    assert 1 <= len(suggestions) <= 3
    assert one.page.locator("#guide").get_by_role("button", name="Summarize").is_visible()
    one.page.locator("#suggestions button:visible").first.click()
    one.page.locator("#conversation .lc-answer").first.wait_for(timeout=180_000)
    one.answer()

    one.ask("How much is the monthly rent?")
    assert "920" in one.answer()
    one.page.locator("#conversation .lc-answer .lc-open-source").last.click()
    mark = one.page.locator("#viewer rect.lc-cited").first
    mark.wait_for()
    assert one.page.locator("#viewer-part").input_value() == "4"  # the page of the rent
    assert "rent is 920 euros" in " ".join(one.page.locator("#viewer img").get_attribute("alt").split())
    one.page.keyboard.press("Escape")
    one.page.locator("#viewer").wait_for(state="hidden")

    drop(one, "hart.pdf", files["hart.pdf"])
    one.ask("What is the monthly rent in each agreement?")
    answer = one.answer()
    assert "1,105" in answer or "920" in answer
    assert "already read" in one.details() or "Started" in one.details()

    one.ask("Who is the landlord and what does the landlord keep in good order?")
    one.page.wait_for_function("location.search.includes('chat=')")
    chat = one.page.url.partition("chat=")[2]
    one.page.close()
    two = tab()
    two.open(f"{window.origin}/?chat={chat}")
    two.wait_for("Who is the landlord", "#conversation")
    assert "Olsen" in two.answer() or "roof" in two.conversation.inner_text()

    two.use_menu("Delete")
    two.page.locator("#undo-chat").click()
    two.wait_for("Who is the landlord", "#conversation")

    two.use_menu("Summarize its documents")
    two.wait_for("2 of 2 documents done", "#summaries-progress", 240)
    assert "rent" in two.page.locator(".lc-card", has_text="hart.pdf").inner_text()


def test_a_novel_and_a_book_are_read_and_summarized(tab, files):
    one = tab()
    drop(one, "novel.txt", files["novel.txt"])
    one.ask("Who walked down to the boats?")
    assert "keeper" in one.answer()
    one.page.locator("#new-chat").click()
    drop(one, "light.epub", files["light.epub"])
    one.ask("Who lights the lamp?")
    assert "Ada Lindqvist" in one.answer()


@pytest.mark.parametrize(("theme", "viewport"), LOOKS)
def test_axe_finds_nothing_serious_beside_an_open_document(tab, files, theme, viewport):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    one = tab(theme, viewport)
    drop(one, "ferris.pdf", files["ferris.pdf"])
    one.ask("How much is the deposit?")
    assert "1,840" in one.answer()
    one.page.locator("#conversation .lc-answer .lc-open-source").last.click()
    one.page.locator("#viewer rect.lc-cited").first.wait_for()
    found = axe.Axe().run(one.page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found if v["impact"] in ("serious", "critical")] == []
