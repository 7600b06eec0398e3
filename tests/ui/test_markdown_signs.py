"""Words quoted from Markdown are shown without its signs."""

import pytest

from localctx.ui.answers.evidence import EvidencePlace, quotation
from localctx.ui.markdown_signs import without_signs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The landlord is **Ingrid Solberg** of `Quay 4`.", "The landlord is Ingrid Solberg of Quay 4."),
        ("## 3. Deposit\n\nIt is __900__.", "3. Deposit\n\nIt is 900."),
        ("2 ** 3 and a*b, ** and # 4, snake__case__name", "2 ** 3 and a*b, ** and # 4, snake__case__name"),
    ],
)
def test_signs_of_markdown_are_left_out(text, shown):
    assert without_signs(text, "lease.MD") == shown
    assert without_signs(text, "lease.txt") == text


def test_the_words_of_an_answer_are_bold_in_a_quotation_without_signs():
    place = EvidencePlace("id", "lease.md", "", 0, 40, "The landlord is **Ingrid Solberg** of Quay 4.")
    assert "The landlord is <strong>Ingrid Solberg</strong> of Quay 4." in quotation(place, "Ingrid Solberg")
