"""A written summary loses the sentences whose figures its document does not have, or which the document denies."""

import pytest

from localctx.library.citations.false_sentences import FalseSentenceFilter
from localctx.library.read_document import read_document
from localctx.store.documents import StoredDocument

LEASE = (
    "This agreement is made between Helen Marsh (the landlord) and Tom Reed (the tenant).\n\n"
    "The tenant pays a monthly rent of £1,150, on the first day of each month.\n\n"
    "Smoking is not allowed inside the flat. Pets are not allowed without the written consent of the landlord.\n\n"
    "Either party may give two months' notice in writing.\n"
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
        "The rent rises by 5 % a year.",
        "The agreement was made in 2019.",
        "Smoking is allowed inside the flat.",
    ],
)
def test_a_sentence_with_another_figure_or_one_that_is_denied_is_left_out(lease, false):
    found = FalseSentenceFilter(lease).filter(f"Tom Reed rents a flat. {false} He can leave after two months.")
    assert found.text == "Tom Reed rents a flat. He can leave after two months."
    assert found.left_out == [false]


@pytest.mark.parametrize(
    "true",
    [
        "Helen Marsh lets a flat to Tom Reed for 1150 pounds a month.",
        "The two of them agree on a notice in writing.",
        "Nobody may smoke there, and either of them can end it.",
        "Pets are allowed with the written consent of the landlord.",
        "Neither party may end it without giving two months' notice in writing (60 days).",
        "1. The rent is £1,150.\n2. Smoking is not allowed.",
        "# Key Points of this Rental Agreement\n\nThe rent is £1,150.",
        "Die Wohnung kostet 1150 Pfund im Monat, und die Kündigungsfrist beträgt zwei Monate.",
    ],
)
def test_a_sentence_in_other_words_stays(lease, true):
    assert FalseSentenceFilter(lease).filter(true) == (true, [])
