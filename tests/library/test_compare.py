"""Two versions of a document: clauses that changed, moved, came and went; and forms that are no change."""

import re
import textwrap
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_documents import row

from localctx.library.compare.compare_documents import compare_documents
from localctx.library.compare.comparison import NO_CHANGE, ClauseChange, Comparison
from localctx.store.documents import Span, StoredDocument

LEASE = """1. Rent

1.1 The tenant shall pay a rent of EUR 1,200 per month.
1.2 The rent is due on 1 May 2026. It is paid to Anna Weber.

2. Pets

2.1 The tenant may keep pets, as clause 1.2 says. Dogs are not allowed in the lift.
2.2 Cats are welcome in the whole house.

3. Keys

3.1 The landlord hands over three keys.
3.2 Lost keys are replaced by the tenant.
"""


def stored(text: str, spans: tuple[Span, ...] = ()) -> StoredDocument:
    return StoredDocument(row("a.txt", text), text, spans)


def compared(old: str, new: str) -> Comparison:
    return compare_documents(stored(old), stored(new))


def told(old: str, new: str) -> list[tuple[str | None, tuple[str, ...]]]:
    """The meaning and the words of each change, or its state."""
    return [(change.meaning or change.state, change.lines) for change in compared(old, new).changes]


def only_change(old: str, new: str) -> ClauseChange:
    (change,) = compared(old, new).changes
    return change


# What is no change


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LEASE, " ".join(LEASE.split())),
        (LEASE, "\n\n".join(LEASE.split())),
        ("The agree-\nment ends. It ends soon.", "The agreement ends. It ends soon."),
        ("A well-\nknown rule. A well-known man.", "A well-known rule.\nA well-known man."),
        ("Ein-\nund Ausgang bleiben frei.", "Ein- und Ausgang bleiben frei."),
        ("The “tenant” – not the landlord’s son – pays…", 'The "tenant" - not the landlord\'s son - pays...'),  # noqa: RUF001
        ("The ﬁrst ofﬁce, 5 m².", "The first office, 5 m²."),
        ("cafe\u0301 is a word.", "café is a word."),
        (
            "# Rent\n\nThe **rent** is *due*.\n- one key\n- two keys\n",
            "Rent\n\nThe rent is due.\n• one key\n• two keys\n",
        ),
        ("| Name | Price |\n|---|---|\n| Chair | 20 |\n", "Name\tPrice\nChair\t20\n"),
        ("The rent\u00a0is EUR\u202f1 200.", "The rent is EUR 1 200."),
    ],
)
def test_another_form_is_no_change(old, new):
    assert compared(old, new).summary == NO_CHANGE
    assert compared(new, old).changes == ()


def test_a_case_and_a_comma_are_a_change():
    assert told("The Tenant pays, now and here.", "The tenant pays now and here.") == [
        ("wording", ("Tenant -> tenant", "removed: ,"))
    ]


# What changed words are about


@pytest.mark.parametrize(
    ("old", "new", "meaning", "line"),
    [
        ("EUR 1,200 per month", "EUR 1,300 per month", "number", "1,200 -> 1,300"),
        ("EUR 1,200 per month", "USD 1,200 per month", "number", "EUR -> USD"),
        ("EUR 1 200 per month", "EUR 1 300 per month", "number", "1 200 -> 1 300"),
        ("two of the keys", "three of the keys", "number", "two -> three"),
        ("5 % of the price", "7 % of the price", "number", "5 -> 7"),
        ("EUR 1,200.00 per month", "EUR 1.200,00 per month", "wording", "1,200.00 -> 1.200,00"),
        ("on 1 May 2026", "on 3 June 2027", "date", "1 May 2026 -> 3 June 2027"),
        ("on 01.05.2026 there", "on 01.06.2026 there", "date", "01.05.2026 -> 01.06.2026"),
        ("on 1 May 2026 there", "on 2026-05-01 there", "wording", "1 May 2026 -> 2026-05-01"),
        ("always in May and more", "always in June and more", "date", "May -> June"),
        ("every Monday in the house", "every Friday in the house", "date", "Monday -> Friday"),
        ("to Anna Weber at once", "to Anna Müller at once", "name", "Weber -> Müller"),
        ("and must pay for it", "and may pay for it", "obligation", "must -> may"),
        ("and does pay for it", "and does not pay for it", "obligation", "added: not"),
        ("in a green folder", "in a red folder", "wording", "green -> red"),
        ("in EUR 7 and must be green", "in EUR 8 and may be red", "number", "7 -> 8"),
    ],
)
def test_a_change_is_told_by_its_meaning(old, new, meaning, line):
    clause = "The tenant of the house has to hand over the signed list {} from the first day of the agreement."
    change = only_change(clause.format(old), clause.format(new))
    assert (change.meaning, change.words[0].line) == (meaning, line)


@pytest.mark.parametrize(
    ("clause", "words", "meaning"),
    [
        ("Der Mieter {} die Wohnung bis zum Ende des Monats an den Vermieter herausgeben.", "muss kann", "obligation"),
        ("Le locataire {} rendre le logement au bailleur à la fin du mois de juin.", "doit peut", "obligation"),
        ("El inquilino {} devolver la vivienda al propietario al final del mes de junio.", "debe puede", "wording"),
        ("Der Vermieter gibt die {} bis zum Ende des Monats an den Mieter zurück.", "Kaution Miete", "wording"),
        ("Der Vermieter zahlt das Geld bis zum Ende des Monats an Frau {} zurück.", "Kaiser Sommer", "name"),
    ],
)
def test_obligations_and_names_are_told_in_known_languages(clause, words, meaning):
    old, new = words.split()
    assert only_change(clause.format(old), clause.format(new)).meaning == meaning


def test_changes_come_in_the_order_of_their_meaning():
    new = (
        LEASE.replace("1,200", "1,300").replace("1 May", "1 June").replace("Weber", "Müller").replace("may", "must not")
    )
    new = new.replace("2.2 Cats are welcome in the whole house.\n", "").replace(
        "Lost keys are", "The deposit is low.\nLost keys are"
    )
    expected = ["number", "date", "name", "obligation", "inserted", "deleted"]
    assert [meaning for meaning, _ in told(LEASE, new)] == expected


def test_a_formal_change_beside_a_real_one_leaves_it():
    old, new = "The rent is\nEUR 1,200. It is “due” now.", 'The rent is EUR 1,300.\n\nIt is "due" now.'
    assert told(old, new) == [("number", ("1,200 -> 1,300",))]


# Clauses that come, go, move, are divided


def test_an_inserted_clause_shifts_numbers_and_references_once():
    new = LEASE.replace("1.2 The rent", "1.2 The deposit is two rents.\n1.3 The rent").replace(
        "clause 1.2", "clause 1.3"
    )
    found = compared(LEASE, new)
    assert [(c.state, c.new.text) for c in found.changes] == [("inserted", "1.2 The deposit is two rents.")]
    assert found.renumbered == (("1.2", "1.3"),)
    assert found.references == 1
    assert found.notes == ("1 clause has another number (1.2 -> 1.3); 1 reference to them changed with it.",)


def test_a_reference_to_another_clause_is_a_change():
    assert told(LEASE, LEASE.replace("clause 1.2", "clause 1.1")) == [("number", ("1.2 -> 1.1",))]


def test_a_number_that_begins_a_sentence_is_no_number_of_a_clause():
    text = "{} people live here. The town is old. {} rivers meet in it."
    assert told(text.format("4.2 million", 3), text.format("4.3 million", 4)) == [
        ("number", ("4.2 -> 4.3",)),
        ("number", ("3 -> 4",)),
    ]


def test_a_clause_that_moved_and_changed_says_both():
    *parts, heading, keys = LEASE.split("\n\n")
    found = compared(LEASE, "\n\n".join([heading, keys.replace("three keys", "four keys"), *parts])).changes
    assert [(change.state, change.moved) for change in found] == [("changed", True), ("moved", True), ("moved", True)]
    assert found[0].lines == ("three -> four",)


def test_a_sentence_that_is_divided_is_one_change():
    old = "The tenant pays the rent in advance and the tenant also pays for the water."
    new = "The tenant pays the rent in advance. The tenant also pays for the water."
    assert [change.state for change in compared(old, new).changes] == ["changed"]


def test_places_name_page_heading_or_paragraph():
    text = "Rent\n\nThe rent is EUR 5.\n\nThe tenant pays."
    new = text.replace("5", "6")
    spans = (Span(0, len(text), "heading", "Rent"), Span(0, len(text), "page", "3"))
    (change,) = compare_documents(stored(text, spans), stored(new)).changes
    assert (change.old.place, change.new.place) == ('page 3, under "Rent"', "paragraph 2")
    assert text[change.old.start : change.old.end] == change.old.text


def test_parts_that_were_not_read_are_named():
    old = StoredDocument(replace(row("old.pdf", LEASE), unread="page 4 has no text"), LEASE, ())
    assert compare_documents(old, stored(LEASE)).notes == ("Not read, so not compared, in old.pdf: page 4 has no text",)


def test_headers_and_footers_of_printed_pages_are_not_compared():
    pages = ["3/4/26, 9:15 AM Lease", "1. Rent", "The rent is 1/2 of the wage.", "lease.html 1/2", "The tenant pays."]
    text, half = "\n".join(pages), len("\n".join(pages[:4]))
    printed = stored(text, (Span(0, half, "page", "1"), Span(half, len(text), "page", "2")))
    found = compare_documents(stored("\n\n".join([*pages[1:3], pages[4]])), printed)
    assert found.changes == ()
    assert [note.partition("txt: ")[2] for note in found.notes] == [pages[0], pages[3]]


def test_other_documents_are_doubted():
    old, new = (
        "\n\n".join(f"{word} {i} is {i * 7} {unit}." for i in range(20))
        for word, unit in (("River", "km"), ("A hill of", "feet high"))
    )
    assert "are these two versions?" in compared(old, new).notes[-1]


def test_rows_of_a_table_are_clauses():
    old = "Name\tPrice\nChair\t20\nTable\t90\nLamp\t15"
    assert told(old, old.replace("90", "95")) == [("number", ("90 -> 95",))]
    assert [c.old.text for c in compared(old, old.replace("Table\t90\n", "")).changes] == ["Table 90"]


# Any text

WORDS = re.findall(
    r"\S+", "the rent tenant shall not pay EUR 1,200 on 3 May to Anna Weber well-known (a) 4.2 clause keys for"
)
SENTENCE = st.lists(st.sampled_from(WORDS), min_size=3, max_size=12).map(
    lambda words: f"{' '.join(words).capitalize()}."
)


@st.composite
def documents(draw) -> list[list[str]]:
    """Paragraphs of sentences, no two alike."""
    sentences = draw(st.lists(SENTENCE, min_size=4, max_size=14, unique_by=lambda s: re.sub(r"\W", "", s)))
    marked = [f"{sentence[:-1]} {chr(65 + i)}{i}x." for i, sentence in enumerate(sentences)]
    size = draw(st.integers(1, 3))
    return [marked[i : i + size] for i in range(0, len(marked), size)]


def written(paragraphs: list[list[str]]) -> str:
    return "\n\n".join(map(" ".join, paragraphs))


@given(st.text(alphabet="ab .\n-1(\t|#*é“?A", max_size=200))
def test_a_text_is_equal_to_itself(text):
    assert compared(text, text).changes == ()
    assert compared(text, text).notes == ()


@given(documents(), st.integers(15, 70), st.sampled_from(["\n", "  \n", "\n\n", "\t"]))
def test_a_new_layout_is_no_change(paragraphs, width, between):
    lines = textwrap.wrap(written(paragraphs), width, break_on_hyphens=False, break_long_words=False)
    found = compared(written(paragraphs), between.join(lines))
    assert (found.changes, found.notes) == ((), ())


@given(documents(), st.data())
def test_a_deleted_clause_is_that_one_alone(paragraphs, data):
    at = data.draw(st.integers(0, len(paragraphs) - 1))
    which = data.draw(st.integers(0, len(paragraphs[at]) - 1))
    left = [list(paragraph) for paragraph in paragraphs]
    gone = left[at].pop(which)
    (deleted,) = compared(written(paragraphs), written([p for p in left if p])).changes
    assert (deleted.state, deleted.old.text) == ("deleted", gone)
    (inserted,) = compared(written([p for p in left if p]), written(paragraphs)).changes
    assert (inserted.state, inserted.new.text) == ("inserted", gone)


@given(documents(), st.data())
def test_two_paragraphs_that_change_places_only_move(paragraphs, data):
    a, b = sorted(data.draw(st.lists(st.integers(0, len(paragraphs) - 1), min_size=2, max_size=2, unique=True)))
    swapped = [*paragraphs[:a], paragraphs[b], *paragraphs[a + 1 : b], paragraphs[a], *paragraphs[b + 1 :]]
    changes = compared(written(paragraphs), written(swapped)).changes
    assert {change.state for change in changes} == {"moved"}
