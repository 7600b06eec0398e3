"""That a document does not say is told in the language of the question."""

import pytest

from localctx.library.wording.no_answer import NO_ANSWER, no_answer


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
