"""Documents as the viewer sets them, in a browser: Markdown, and sheets as grids, with quotations marked exactly."""

from collections.abc import Iterator

import pytest
import xlsxwriter
from window_checks import barriers

from localctx.library.add import add_document

pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)>"
LEASE = f"""\
# The **lease**

The rent is **1,150 euros** a month, paid in *advance*.

- No pets, {HOSTILE}
- No `smoking`

| Item | Amount | What it is for, in as many words as are needed to make a wide table of it | and-a-long-word-as-well |
|------|-------:|------|-----|
| Rent | 1,150 | living-in-the-flat-and-in-the-cellar | {HOSTILE} |
"""
MARKED = """() => [...document.querySelectorAll('#viewer mark.lc-cited')]
    .filter(m => m.getClientRects().length).map(m => m.textContent).join('')"""
MARKED_WHOLE = "[...document.querySelectorAll('#viewer mark.lc-cited')].map(m => m.textContent).join('')"


@pytest.fixture(scope="module")
def documents(tiny_window, tmp_path_factory) -> dict[str, tuple[str, str]]:
    """The ids and the texts of the documents, by name."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "lease.md").write_text(LEASE)
    with xlsxwriter.Workbook(str(folder / "rents.xlsx")) as workbook:
        sheet = workbook.add_worksheet("Rents")
        sheet.write_row(0, 0, ["Flat", "Tenant", "Rent", "Remarks", "City"])
        for i in range(1, 201):
            sheet.write_row(i, 0, [f"A{i}", f"Person {i} {HOSTILE}", 900 + i, "", "Hamburg"])
    with tiny_window.store() as store:
        added = [add_document(store, str(folder / name)) for name in ("lease.md", "rents.xlsx")]
        return {a.path.rpartition("/")[2]: (a.id, store.documents.text(a.id)) for a in added}


@pytest.fixture
def open_page(chromium, tiny_address) -> Iterator:
    """A function that opens the window at a width and in a theme; dialogs and errors of scripts fail the test."""
    faults: list[str] = []
    pages = []

    def open_page(width: int = 1280, theme: str = "light"):
        page = chromium.new_page(viewport={"width": width, "height": 844})
        page.on("dialog", lambda d: faults.append(d.message))
        page.on("pageerror", lambda e: faults.append(str(e)))
        page.goto(f"{tiny_address}&__theme={theme}")
        page.locator("#question textarea").wait_for()
        page.locator("#viewer").wait_for(state="attached")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert faults == []


def show(page, document: tuple[str, str], quote: str) -> None:
    """Open a document at a quotation."""
    start = document[1].index(quote)
    page.evaluate(
        """place => { const source = document.createElement('button'); source.className = 'lc-open-source'
            Object.assign(source.dataset, place); document.body.append(source); source.click(); source.remove() }""",
        {"document": document[0], "start": start, "end": start + len(quote)},
    )
    page.locator("#viewer .lc-part-text").wait_for()


def test_markdown_is_set_and_a_quotation_across_bold_words_is_marked_exactly(open_page, documents):
    page = open_page()
    quote = "rent is **1,150 euros** a month"
    show(page, documents["lease.md"], quote)
    assert page.locator("#viewer-body h3").inner_text() == "The lease"
    assert page.evaluate(MARKED_WHOLE) == quote
    assert page.evaluate(MARKED) == quote.replace("*", "")
    assert page.locator("#viewer-body strong mark:visible").inner_text() == "1,150 euros"
    assert page.locator("#viewer-body li").all_inner_texts() == [f"No pets, {HOSTILE}", "No smoking"]
    assert page.locator("#viewer-body th").all_inner_texts()[:2] == ["Item", "Amount"]
    assert page.locator("#viewer-body td").all_inner_texts()[:2] == ["Rent", "1,150"]
    assert page.locator("#viewer-body img").count() == 0
    assert page.locator("#viewer .lc-part-text").text_content() == documents["lease.md"][1]


def test_a_quotation_across_cells_and_paragraphs_is_marked_exactly(open_page, documents):
    page = open_page()
    text = documents["lease.md"][1]
    quote = text[text.index("advance") : text.index("1,150 | living") + 5]
    show(page, documents["lease.md"], quote)
    words = "".join(quote.replace("|", " ").replace("-", " ").split())
    shown = "".join(page.evaluate(MARKED).replace("-", " ").split())
    assert shown == words.replace("*.", ".").replace("`", "").replace(":", "")


def test_a_hidden_sign_is_shown_where_a_search_finds_it(open_page, documents):
    page = open_page()
    show(page, documents["lease.md"], "rent")
    page.locator("#viewer-words").fill("**1,150")
    page.locator("#viewer mark.lc-here").first.wait_for()
    assert page.locator("#viewer mark.lc-here").all_inner_texts() == ["**", "1,150"]


def test_copied_words_have_no_signs(open_page, documents):
    page = open_page()
    show(page, documents["lease.md"], "rent")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#viewer-body p'))")
    assert page.evaluate("getSelection().toString()") == "The rent is 1,150 euros a month, paid in advance."
    page.get_by_role("button", name="Ask about this selection").click()
    page.wait_for_function("document.querySelector('#question textarea').value")
    asked = page.locator("#question textarea").input_value()
    assert asked == "“The rent is **1,150 euros** a month, paid in *advance*.”\n"


def test_a_sheet_is_a_grid_with_its_header_and_the_row_of_a_quotation_marked(open_page, documents):
    page = open_page()
    quote = f"Flat: A40; Tenant: Person 40 {HOSTILE}; Rent: 940; City: Hamburg"
    show(page, documents["rents.xlsx"], quote)
    assert page.locator("#viewer-body h3").inner_text().strip() == "Rents"
    header = page.locator("#viewer-body tr.lc-header")
    assert header.locator("th").all_inner_texts() == ["", "Flat", "Tenant", "Rent", "Remarks", "City"]
    row = page.locator("#viewer-body tr[data-row='41']")
    assert row.locator("td").all_inner_texts() == ["A40", f"Person 40 {HOSTILE}", "940", "", "Hamburg"]
    assert page.evaluate(MARKED_WHOLE) == quote
    assert row.locator("td mark:visible").all_inner_texts() == ["A40", f"Person 40 {HOSTILE}", "940", "Hamburg"]
    assert page.locator("#viewer mark:visible").count() == 4
    top = page.locator("#viewer-body").bounding_box()["y"]
    assert abs(header.locator("th").nth(1).bounding_box()["y"] - top) < 2, "the header does not stay above the rows"
    assert page.locator("#viewer-body img").count() == 0


def test_a_later_section_of_a_sheet_has_its_header(open_page, documents):
    page = open_page()
    show(page, documents["rents.xlsx"], "Flat: A200")
    header = page.locator("#viewer-body tr.lc-header th")
    names = header.evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)")
    assert names == ['""', '"Flat"', '"Tenant"', '"Rent"', '"Remarks"', '"City"']
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#viewer mark.lc-cited').closest('td'))")
    page.get_by_role("button", name="Ask about this selection").click()
    page.wait_for_function("document.querySelector('#question textarea').value")
    assert page.locator("#question textarea").input_value() == "“Flat: A200;”\n"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["lease.md", "rents.xlsx"])
def test_on_a_phone_wide_tables_scroll_in_their_own_box_and_nothing_bars_the_way(open_page, documents, name, theme):
    page = open_page(390, theme)
    show(page, documents[name], {"lease.md": "rent is", "rents.xlsx": "Flat: A40"}[name])
    box = {"lease.md": ".lc-scroll", "rents.xlsx": "#viewer-body"}[name]
    width, shown = page.locator(box).evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert width > shown
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    if name == "lease.md":
        assert page.locator("#viewer-body").evaluate("e => e.scrollWidth <= e.clientWidth")
    assert barriers(page, "#viewer") == {}
