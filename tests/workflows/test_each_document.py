"""Questions about several documents that are put to each of them, and those that are asked of all together."""

import pytest
from stored_documents import row

from localctx.store.documents import Span, StoredDocument
from localctx.workflows.answer.each_document import asked_of_each

PARK = (
    "Tenancy agreement between Helen Marsh (the landlord) and Tom Reed (the tenant). The tenant pays a monthly rent of "
    "950 euros and a deposit of 1,900 euros. The tenant must not sublet the flat. Pets need the landlord's consent. "
    "The tenancy ends on 31 March 2028. The landlord repairs the roof and the walls."
)
MILL = (
    "Rental contract. The landlord is Brightwater Homes, the tenant is Aisha Khan. The rent is 880 euros a month, and "
    "the deposit is 880 euros. Dogs are not permitted. No subletting. The tenant cleans the stairs of the flats."
)
NOVEL = (
    "It was a bright morning, and the river lay like glass between the willows. He walked down to the water, thinking "
    "of nothing, and saw a boat with two girls in it who laughed and waved at him, as people did in that happy country."
)


def documents(**texts: str) -> list[StoredDocument]:
    names = {name: f"{name.replace('_', '-')}.txt" for name in texts}
    return [StoredDocument(row(names[name], text), text, []) for name, text in texts.items()]


LEASES = documents(park_lane=PARK, mill_road=MILL)


@pytest.mark.parametrize(
    "question",
    [
        "Who is the landlord?",
        "Are pets allowed?",  # one document has no word of it, but the two are alike
        "Is there a garden?",
        "What was the rent in 2025?",
        "Wer ist der Vermieter?",
    ],
)
def test_a_plain_question_is_put_to_each_of_two_leases_as_it_is(question):
    asked = asked_of_each(question, LEASES)
    assert asked is not None
    assert (asked.plain, asked.order, asked.others) == (question, "none", ())


@pytest.mark.parametrize(
    "question",
    [
        "What does the Park Lane lease say about pets?",  # names a document
        "Where does Tom Reed live?",  # names somebody of one document
        "And what about dogs?",
        "Does he pay the rent?",
        "Which tenant pays the lowest rent?",
        "Summarize the documents.",
        "The landlord of the flat",  # no question
        "Is it?",
    ],
)
def test_other_questions_are_asked_of_all_documents_together(question):
    assert asked_of_each(question, LEASES) is None


def test_a_question_that_a_table_answers_by_computing_is_not_put_to_each():
    tables = [document._replace(spans=[Span(0, 9, "row", "2")]) for document in LEASES]
    assert asked_of_each("What is the highest rent?", LEASES) is not None
    assert asked_of_each("What is the highest rent?", tables) is None
    assert asked_of_each("Who is the landlord?", tables) is not None


def test_documents_that_are_not_alike_are_asked_about_what_both_name():
    other = documents(lease=PARK, novel=NOVEL)
    assert asked_of_each("Are pets allowed?", other) is None
    assert asked_of_each("Who walked?", documents(first=NOVEL, second=PARK + " Somebody walked.")) is not None
    assert asked_of_each("Who is the landlord?", LEASES[:1]) is None
    assert asked_of_each("Who is the landlord?", documents(**{f"lease_{i}": PARK for i in range(7)})) is None


@pytest.mark.parametrize(
    "question",
    [
        "What are the main differences?",
        "How do they differ?",
        "Compare the two leases.",
        "What is the difference between them?",
    ],
)
def test_differences_are_asked_about_subjects_that_both_documents_name(question):
    asked = asked_of_each(question, LEASES)
    assert asked is not None
    assert [one.noun for one in (asked, *asked.others)][:1] == ["rent"]
    assert {"rent", "deposit"} <= {one.noun for one in (asked, *asked.others)}
    assert "area" not in {one.noun for one in (asked, *asked.others)}
    assert asked.implied


def test_differences_without_a_known_subject_are_not_asked_about():
    assert asked_of_each("What are the differences?", documents(a=NOVEL, b=NOVEL)) is None


@pytest.mark.parametrize(
    ("question", "plain"),
    [
        ("Which of the two allows pets?", "Are pets allowed?"),
        ("Which of the two leases permits subletting?", "Is subletting allowed?"),
        ("Which lease includes a roof?", "Is a roof included?"),
        ("Which one allows dogs?", "Are dogs allowed?"),
        ("Do both include pets?", "Does it include pets?"),
        ("Do they both allow subletting?", "Does it allow subletting?"),
        ("Do all of the leases allow pets?", "Does it allow pets?"),
    ],
)
def test_which_document_allows_something_is_asked_of_each(question, plain):
    asked = asked_of_each(question, LEASES)
    assert asked is not None
    assert asked.plain == plain


@pytest.mark.parametrize(
    "question",
    [
        "Which clause allows pets?",
        "Which pets require consent?",
        "Which lease allows him to keep pets?",
        "Which lease allows neither pets nor subletting?",
        "Which of the two allows zebras?",
        "Do both include zebras?",
        "Do both tenants pay the rent?",  # is not about the documents
        "Do all tenants keep pets?",
    ],
)
def test_what_is_not_asked_of_the_documents_is_not_asked_of_each(question):
    asked = asked_of_each(question, LEASES)
    assert asked is None or asked.plain == question
