"""That a document does not say is told in the language of the question."""

import pytest

from localctx.library.wording.no_answer import NO_ANSWER, is_no_answer, no_answer


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Who won the battle of Hastings?", "en"),
        ("What was decided?", "en"),
        ("Deposit?", "en"),
        ("", "en"),
        ("Wie heißt der Hausmeister?", "de"),
        ("Was ist das?", "de"),
        ("Darf ich einen Hund halten?", "de"),
        ("Quelle est la garantie ?", "fr"),
        ("Puis-je utiliser l'appareil dehors ?", "fr"),
        ("¿Quién firmó el contrato?", "es"),
        ("Chi ha firmato il contratto?", "it"),
        ("Wie is de eigenaar van het huis?", "nl"),
        ("Quem assinou o contrato?", "pt"),
        ("谁签了合同", "zh"),
        ("契約に署名したのは誰ですか。", "ja"),
        ("누가 계약에 서명했습니까?", "ko"),
    ],
)
def test_it_is_told_in_the_language_of_the_question(question, language):
    assert no_answer(question) == NO_ANSWER[language]


@pytest.mark.parametrize(
    ("answer", "is_none"),
    [
        ("I found no clear answer.", True),
        ("the document does not say", True),
        ("No, the document does not say.", True),
        ("Not stated.", True),
        ("The text is silent.", True),  # the adapter's own sentence
        ("The document does not say who pays, but the owner signs.", False),
        ("No.", False),
        ("", False),
    ],
)
def test_an_answer_that_only_says_that_there_is_none(answer, is_none):
    assert is_no_answer(answer, own="The text is silent.") == is_none
