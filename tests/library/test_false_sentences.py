"""A written summary keeps only the sentences that its document can have said."""

import pytest

from localctx.library.citations.false_sentences import without_false_sentences
from localctx.library.read_document import read_document
from localctx.store.documents import StoredDocument

LEASE = (
    "This agreement is made between Helen Marsh (the landlord) and Tom Reed (the tenant).\n\n"
    "The tenant pays a monthly rent of £1,150, on the first day of each month.\n\n"
    "Smoking is not allowed inside the flat. Either party may give two months' notice in writing.\n"
)


@pytest.fixture(scope="module")
def lease(tmp_path_factory) -> StoredDocument:
    path = tmp_path_factory.mktemp("lease") / "lease.txt"
    path.write_text(LEASE)
    return read_document(str(path))


@pytest.mark.parametrize(
    "false",
    [
        "The rent is £1,250 a month.",
        "The tenant is called Maria Reed.",
        "Smoking is allowed inside the flat.",
        "The notice must be given three months before.",
    ],
)
def test_a_sentence_with_an_unknown_number_or_name_or_one_denied_is_left_out(lease, false):
    found = without_false_sentences(f"Tom Reed rents a flat. {false} He can leave after two months.", lease)
    assert found.text == "Tom Reed rents a flat. He can leave after two months."
    assert found.left_out == [false]


@pytest.mark.parametrize(
    "true",
    [
        "Helen Marsh lets a flat to Tom Reed for 1150 pounds a month.",
        "The two of them agree on a notice in writing.",
        "Nobody may smoke there, and either of them can end it.",
        "Helen and Tom have an agreement.",
    ],
)
def test_a_sentence_in_other_words_stays(lease, true):
    assert without_false_sentences(true, lease) == (true, [])


def test_a_summary_in_another_language_is_not_checked(lease):
    german = "Der Mieter zahlt jeden Monat tausend Pfund Miete an Frau Helene Marsch, und das Rauchen ist ihm verboten."
    assert without_false_sentences(german, lease) == (german, [])
