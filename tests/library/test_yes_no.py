"""Answers that begin with yes or no, in several languages."""

import pytest

from localctx.library.wording.yes_no import clause_after, only_yes_or_no, starts_with_yes, without_repeated_clause


@pytest.mark.parametrize(
    ("answer", "is_yes"),
    [
        ("Yes, with consent.", True),
        ("Tak, w ogrodzie.", True),
        ("Si, con permiso.", True),
        ("Doch, im Garten.", True),
        ("Si vous voulez", None),
        ("Doch er kam nicht", None),
        ("No, not inside.", False),
        ("Nie, tylko w ogrodzie.", False),
        ("No pets are allowed", None),
        ("No. 5", None),
        ("可以。", True),
        ("不可以", False),
    ],
)
def test_it_is_known_what_an_answer_begins_with(answer, is_yes):
    assert starts_with_yes(answer) is is_yes


@pytest.mark.parametrize(
    ("answer", "only"),
    [
        ("Yes. Keep a dog.", "Yes."),
        ("Yes, keep a dog", "Yes."),
        ("Ja - natürlich gern", "Ja."),
        ("No!", "No."),
        ("可以。养狗", "可以."),
    ],
)
def test_only_the_yes_or_no_is_left(answer, only):
    assert clause_after(answer) is not None
    assert only_yes_or_no(answer) == only


def test_a_clause_that_repeats_the_question_is_left_out():
    assert without_repeated_clause("Yes. Keep a dog.", "May I keep a dog?") == "Yes."
    assert without_repeated_clause("Yes, in the garden.", "May I keep a dog?") == "Yes, in the garden."
