"""An answer of yes or no is given only where the cited sentence supports it; else the sentence itself is given."""

import pytest

from localctx.library.citations.yes_no_evidence import shares_words, supported_answer

WATER = "The rent includes water, but not gas and electricity."
CONSENT = "Pets may be kept only with the written consent of the landlord."


@pytest.mark.parametrize(
    ("answer", "question", "cited", "given"),
    [
        # the answer's words are in the sentence
        (
            "Yes, every second week.",
            "Does the tenant clean the stairs?",
            "The tenant cleans the stairs every second week.",
            "Yes, every second week.",
        ),
        ("No, not permitted.", "Are dogs permitted?", "Dogs are not permitted.", "No, not permitted."),
        ("No, not permitted", "Are dogs permitted?", "Dogs are not permitted.", "No, not permitted."),
        # they are from other places, or would say the contrary of the sentence
        ("No, the flat is a private home.", "Can I sublet?", "The tenant must not sublet it.", "No."),
        ("No, allowed inside the flat.", "Is smoking allowed?", "Smoking is not allowed inside the flat.", "No."),
        ("No, included in the rent.", "Is gas included in the rent?", WATER, "No."),
        ("Yes, included in the rent.", "Is water included in the rent?", WATER, "Yes."),
        ("Yes!", "Is water included in the rent?", WATER, "Yes."),
        # the sentence sets a condition, or says the contrary
        ("No, with consent.", "Are pets allowed?", CONSENT, CONSENT),
        (
            "Yes.",
            "Darf ich untervermieten?",
            "Untervermieten darf der Mieter nur mit Zustimmung.",
            "Untervermieten darf der Mieter nur mit Zustimmung.",
        ),
        (
            "No, the rent.",
            "Is parking included?",
            "Parking is\nincluded in the rent.",
            "Parking is included in the rent.",
        ),
        ("Yes, sublet.", "Can I sublet?", "The tenant must not sublet it.", "The tenant must not sublet it."),
        ("Yes.", "Is smoking allowed?", "Smoking is allowed nowhere: it is prohibited.", "Yes."),
        ("Yes.", "Can I smoke?", "To smoke is forbidden.", "To smoke is forbidden."),
        # the sentence has too few words of the question
        (
            "Yes, gas is in the rent.",
            "Is gas included in the rent?",
            "The rent is due on the 5th.",
            "The rent is due on the 5th.",
        ),
        (
            "Yes, in the rent.",
            "Are towels included?",
            "Cleaning is included in the rent.",
            "Cleaning is included in the rent.",
        ),
        (
            "Yes, covered.",
            "Is a flood covered?",
            "If you move, your home is covered.",
            "If you move, your home is covered.",
        ),
        ("Yes.", "Can I return a gift card?", "Gift cards cannot be returned.", "Gift cards cannot be returned."),
        ("Yes, covered at home.", "Is a flood covered?", "A flood is covered at home.", "Yes, covered at home."),
        ("Yes, of course.", "Is there a lift?", "The cat sleeps.", "Yes, of course."),
    ],
)
def test_a_yes_or_no_is_given_as_far_as_its_sentence_supports_it(answer, question, cited, given):
    assert supported_answer(answer, question, cited) == given


def test_a_question_that_denies_is_not_taken_for_contradicted():
    assert supported_answer("No.", "Is gas not included?", "Gas is included.") == "No."


@pytest.mark.parametrize(
    ("question", "sentence", "shares"),
    [
        ("Are pets allowed?", "Pets may be kept.", True),
        ("Are pets allowed?", "The landlord is Helen Marsh.", False),
        ("What is it?", "The landlord is Helen Marsh.", True),  # no content word to share
    ],
)
def test_words_that_a_sentence_shares_with_a_question(question, sentence, shares):
    assert shares_words(question, sentence) is shares
