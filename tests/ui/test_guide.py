"""What stands in the middle of a new chat: what its documents are about. It leads into them, and to a summary."""

import pytest
from browser import Tab
from clock import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CLAUSES = [
    ("Rent", "The monthly rent of 940 euros is payable in advance on the first day of each month."),
    ("Pets", "One cat or one small dog may be kept in the house with the consent of the landlord."),
    ("Garden", "The apple trees in the garden are pruned by the landlord in February of each year."),
]
LEASE = "\n".join(f"{i}. {name}\n{said}\n" for i, (name, said) in enumerate(CLAUSES, 1)).encode()
OTHER = b"The mill at the weir was sold to the town, which turned it into a school for forty children.\n"
MOVED = """() => {
  const top = () => document.querySelector('.lc-guide p')?.getBoundingClientRect().top
  window.tops = [top()]
  new MutationObserver(() => window.tops.push(top())).observe(document.body, { childList: true, subtree: true })
}"""


def guide(tab: Tab) -> str:
    """Wait until the guide tells what the documents are about; its text."""
    tab.page.locator("#guide .lc-offers button").wait_for(timeout=PATIENCE * 1000)
    return tab.page.locator("#guide").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_new_document_is_told_of_and_leads_to_its_places_and_a_summary(brief_tab, width):
    tab, page = brief_tab, brief_tab.page
    page.set_viewport_size({"width": width, "height": 844})
    tab.drop("lease.txt", LEASE)
    told = guide(tab)
    page.evaluate(MOVED)
    assert all(said in told for _, said in CLAUSES)
    assert not page.locator(".lc-empty").is_visible()
    tab.wait_for("Ready. Ask anything.", "#ready-card", PATIENCE)
    page.locator("#suggestions button").first.wait_for()
    assert len(set(page.evaluate("window.tops"))) == 1, "what is read does not move when questions are suggested"

    for name, said in (("2. Pets", "2. Pets"), (CLAUSES[2][1], CLAUSES[2][1])):
        page.locator("#guide").get_by_role("button", name=name).click()
        page.locator("#viewer mark").first.wait_for()
        assert said in " ".join(page.locator("#viewer mark").all_inner_texts())
        page.keyboard.press("Escape")

    page.locator("#guide").get_by_role("button", name="Summarize").click()
    tab.details()
    assert page.locator("#conversation [data-testid=user]").inner_text() == "Summarize this document"
    assert not page.locator("#guide").is_visible()
    assert page.evaluate("Object.keys(localStorage).filter(key => key.includes('draft'))") == [], "the box is empty"
    page.locator("#suggestions button").first.wait_for(state="detached")


def test_of_two_documents_both_are_told_and_summarized(brief_tab):
    brief_tab.drop("lease.txt", LEASE)
    guide(brief_tab)
    brief_tab.drop("mill.txt", OTHER)
    brief_tab.wait_for("mill.txt", "#guide")
    told = guide(brief_tab)
    assert told.index("2 documents") < told.index("lease.txt") < told.index("mill.txt")
    assert OTHER.decode().strip() in told
    brief_tab.page.locator("#guide").get_by_role("button", name="Summarize").click()
    brief_tab.details()
    headings = brief_tab.page.locator("#conversation .lc-said h3")
    assert headings.all_inner_texts() == ["lease.txt", "mill.txt"]
    weights = headings.evaluate_all("all => all.map(h => +getComputedStyle(h).fontWeight)")
    assert min(weights) > 500, "headings do not look like the text below them"
