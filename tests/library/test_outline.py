"""The headings of a document: those that are marked, or numbered lines that follow one another."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.library.outline import outline
from localctx.store.documents import Span

BODY = "The parties agree on what is written here, and on nothing else that was said.\n\n"


def labels(text: str) -> list[str]:
    found = outline(text, [])
    assert all(text[h.start : h.end].startswith(h.label) for h in found)
    return [h.label for h in found]


@pytest.mark.parametrize(
    "headings",
    [
        ["1. Summary", "2. Scope", "3. Weir crest"],
        ["1 Introduction", "2 Method", "2.1 Stations", "2.2 Gauges", "3 Results"],
        ["CHAPTER I: A BED", "CHAPTER II: A BATH", "CHAPTER III: A FEAST", "CHAPTER IV"],
        ["Chapter 1", "Chapter 2", "Chapter 3"],
        ["§ 1 Miete", "§ 2 Kaution", "§ 3 Tiere"],
        ["I. The Rent", "II. The Term", "III. The Deposit", "IV. The End"],
    ],
)
def test_numbered_lines_that_follow_one_another_are_headings(headings):
    text = "A title\n\n" + "".join(f"{heading}\n{BODY}" for heading in headings)
    assert labels(text) == headings


def test_a_table_of_contents_and_lists_are_no_headings():
    contents = "1. Rent\n2. Pets\n3. Term\n\n"
    listed = "1. Cats\n2. Dogs\n3. Birds\n\n"
    text = f"{contents}1. Rent\n{BODY}2. Pets\n{BODY}{listed}3. Term\n{BODY}"
    assert labels(text) == ["1. Rent", "2. Pets", "3. Term"]
    assert outline(text, [])[0].start == len(contents)


@pytest.mark.parametrize(
    "text",
    [
        "1. Cats\n2. Dogs\n3. Birds\n",
        f"1. The rent is due.\n{BODY}2. It is paid by transfer.\n{BODY}3. Pets are not kept.\n{BODY}",
        f"I said so\n{BODY}I went there\n{BODY}I came back\n{BODY}",
        f"1914 Weir\n{BODY}1918 Mill\n{BODY}1920 House\n{BODY}",
        f"1. Rent\n{BODY}4. Pets\n{BODY}9. Term\n{BODY}",
        f"1. Rent ..... 3\n{BODY}2. Pets . . . 4\n{BODY}3. Term ..... 5\n{BODY}",
        BODY,
        "",
    ],
)
def test_other_lines_are_no_headings(text):
    assert labels(text) == []


def test_marked_headings_are_taken_without_the_signs_before_them():
    text = f"# House\n\n## Kitchen\n{BODY}## Bath\n{BODY}"
    starts = [text.index(line) for line in ("# House", "## Kitchen", "## Bath")]
    spans = [Span(at, len(text), "heading", text[at:].split("\n")[0].strip("# ")) for at in starts]
    assert [text[h.start :].split("\n")[0] for h in outline(text, spans)] == ["Kitchen", "Bath"]


LINES = st.lists(st.sampled_from(["1. Rent", "2. Pets", "2.1 Cats", "3. Term", "IV. Bath", BODY, "", "12", "I"]))


@given(LINES.map("\n".join))
def test_headings_are_in_order_and_cover_the_text_from_the_first(text):
    found = outline(text, [])
    assert all(a.end == b.start for a, b in pairwise(found))
    assert not found or found[-1].end == len(text)
