"""Which questions compare documents, what each document is asked, and which questions stay as they are."""

# ruff: noqa: RUF001

import pytest

from localctx.workflows.comparing.comparing_question import LANGUAGES, comparing_question
from localctx.workflows.comparing.subjects import SUBJECTS, subject_of
from localctx.workflows.comparing.wording import WORDINGS


@pytest.mark.parametrize(
    ("question", "plain", "order"),
    [
        ("Of the two leases, which has the lower rent?", "What is the rent?", "lower"),
        ("Which is the cheaper of the two leases?", "How much does it cost?", "lower"),
        ("Which rent is lower?", "What is the rent?", "lower"),
        ("Where is the rent lower?", "What is the rent?", "lower"),
        ("Which lease is cheaper per month?", "How much does it cost?", "lower"),
        ("What are the notice periods in the two contracts?", "What is the notice period?", "none"),
        ("What is the rent in both leases?", "What is the rent?", "none"),
        ("What is the purpose of the two documents?", "What is the purpose?", "none"),
        ("How long is the notice period in these contracts?", "What is the notice period?", "none"),
        ("Welche Miete ist höher?", "Wie hoch ist die Miete?", "higher"),
        ("Wo ist die Miete niedriger?", "Wie hoch ist die Miete?", "lower"),
        ("Wie hoch sind die Mieten in den beiden Verträgen?", "Wie hoch ist die Miete?", "none"),
        ("Wie lang sind die Kündigungsfristen der beiden Verträge?", "Wie lang ist die Kündigungsfrist?", "none"),
        ("Quel loyer est le plus bas ?", "Quel est le loyer ?", "lower"),
        ("Quel est le contrat le moins cher ?", "Combien cela coûte-t-il ?", "lower"),
        ("Quels sont les loyers des deux contrats ?", "Quel est le loyer ?", "none"),
        ("Quelle est la différence de loyer entre les deux baux ?", "Quel est le loyer ?", "none"),
        ("Lequel des deux baux prévoit la plus longue durée ?", "Quelle est la durée ?", "longer"),
        ("¿Cuál es el contrato más barato?", "¿Cuánto cuesta?", "lower"),
        ("¿Qué alquiler es más bajo?", "¿Cuál es la renta?", "lower"),
        ("¿Cuáles son los alquileres de los dos contratos?", "¿Cuál es la renta?", "none"),
        ("哪个租金更低？", "租金是多少？", "lower"),
        ("两份合同的租金分别是多少？", "租金是多少？", "none"),
        ("两份合同中，哪一份的押金更高？", "押金是多少？", "higher"),
        ("哪份合同更早到期？", "到期日是什么时候？", "earlier"),
        ("Which of the two leases has the lower rent?", "What is the rent?", "lower"),
        ("Which lease has the lower rent?", "What is the rent?", "lower"),
        ("Which contract has the longer notice period?", "What is the notice period?", "longer"),
        ("Which has the higher deposit?", "What is the deposit?", "higher"),
        ("Which is cheaper?", "How much does it cost?", "lower"),
        ("Which one is longer?", "How long does it last?", "longer"),
        ("Which of the two is older?", "When was it signed?", "earlier"),
        ("Which contract is later?", "When was it signed?", "later"),
        ("Which of these contracts ends earlier?", "When does it end?", "earlier"),
        ("Which lease starts first?", "When does it start?", "earlier"),
        ("Which lease was signed later?", "When was it signed?", "later"),
        ("Which offer costs less?", "How much does it cost?", "lower"),
        ("In which lease is the notice period longer?", "What is the notice period?", "longer"),
        ("Which landlord gives more time for notice?", "What is the notice period?", "higher"),
        ("Which of the two leases has the lower rent, lease-a.txt or lease-b.txt?", "What is the rent?", "lower"),
        ("Which contract has more vacation days?", "How many vacation days are there?", "higher"),
        ("What is the difference between the rents of the two?", "What is the rent?", "none"),
        ("What is the difference between the rents of the two leases?", "What is the rent?", "none"),
        ("What's the difference in rent between the leases?", "What is the rent?", "none"),
        ("Compare the notice periods", "What is the notice period?", "none"),
        ("Compare the notice periods of the two contracts.", "What is the notice period?", "none"),
        ("Please compare the arguments of the two papers.", "What are the arguments?", "none"),
        ("How do the deposits differ?", "What is the deposit?", "none"),
        (
            "Tell me which of the two rental contracts has the highest annual rent.",
            "What is the annual rent?",
            "higher",
        ),
        ("Which lease's rent is lower?", "What is the rent?", "lower"),
        ("Which policy has the higher late payment fee?", "What is the late payment fee?", "higher"),
        ("Which contract runs longer?", "How long does it last?", "longer"),
        ("By how much do the rents differ?", "What is the rent?", "none"),
        ("Welcher der beiden Verträge hat die höhere Miete?", "Wie hoch ist die Miete?", "higher"),
        ("Welcher Vertrag hat die längere Kündigungsfrist?", "Wie lang ist die Kündigungsfrist?", "longer"),
        ("Welches Angebot ist günstiger?", "Wie viel kostet es?", "lower"),
        ("Welcher der beiden Mietverträge endet früher?", "Wann endet der Vertrag?", "earlier"),
        ("In welchem der beiden Verträge ist die Kaution höher?", "Wie hoch ist die Kaution?", "higher"),
        ("Welcher Vertrag sieht die längere Laufzeit vor?", "Wie lang ist die Laufzeit?", "longer"),
        ("Welcher Vertrag läuft länger?", "Wie lang ist die Laufzeit?", "longer"),
        ("Was ist der Unterschied zwischen den Mieten der beiden Verträge?", "Wie hoch ist die Miete?", "none"),
        ("Vergleiche die Kündigungsfristen.", "Wie lang ist die Kündigungsfrist?", "none"),
        ("Wie unterscheiden sich die Laufzeiten in den beiden Verträgen?", "Wie lang ist die Laufzeit?", "none"),
        ("Welcher hat das höhere Gehalt?", "Wie hoch ist das Gehalt?", "higher"),
        ("Lequel des deux contrats a le loyer le plus bas ?", "Quel est le loyer ?", "lower"),
        ("Quel contrat prévoit le préavis le plus long ?", "Quel est le préavis ?", "longer"),
        ("Lequel est le moins cher ?", "Combien cela coûte-t-il ?", "lower"),
        ("Quel bail se termine plus tôt ?", "Quelle est la date de fin ?", "earlier"),
        ("Quelle est la différence entre les loyers des deux baux ?", "Quel est le loyer ?", "none"),
        ("Comparez les délais de préavis.", "Quel est le délai de préavis ?", "none"),
        ("Lequel a le plus petit loyer ?", "Quel est le loyer ?", "lower"),
        ("Dans lequel des deux contrats le loyer est-il plus bas ?", "Quel est le loyer ?", "lower"),
        ("¿Cuál de los dos contratos tiene la renta más baja?", "¿Cuál es la renta?", "lower"),
        ("¿Qué contrato tiene el plazo de preaviso más largo?", "¿Cuál es el plazo de preaviso?", "longer"),
        ("¿Cuál es más barato?", "¿Cuánto cuesta?", "lower"),
        ("¿Qué contrato termina antes?", "¿Cuándo termina?", "earlier"),
        ("¿Cuál es la diferencia entre los alquileres de los dos contratos?", "¿Cuál es la renta?", "none"),
        ("Compara los plazos de preaviso.", "¿Cuál es el plazo de preaviso?", "none"),
        ("¿Cuál tiene la menor fianza?", "¿Cuál es la fianza?", "lower"),
        ("¿En cuál de los dos contratos es más bajo el alquiler?", "¿Cuál es el alquiler?", "lower"),
        ("两份合同哪份租金更低?", "租金是多少？", "lower"),
        ("哪份合同的租金更低？", "租金是多少？", "lower"),
        ("哪一份更便宜？", "费用是多少？", "lower"),
        ("这两份租约，哪份押金更高？", "押金是多少？", "higher"),
        ("哪份合同的通知期更长？", "通知期是多长？", "longer"),
        ("哪份合同先到期？", "到期日是什么时候？", "earlier"),
        ("两份合同的租金有什么区别？", "租金是多少？", "none"),
        ("比较一下两份合同的通知期。", "通知期是多长？", "none"),
        ("两份合同的租金相差多少？", "租金是多少？", "none"),
        ("Welcher Vertrag läuft früher ab?", "Wann endet der Vertrag?", "earlier"),
        ("Which contract has the later end date?", "What is the end date?", "later"),
        ("哪份合同的租金最低？", "租金是多少？", "lower"),
    ],
)
def test_a_comparing_question_becomes_a_plain_one_and_an_order(question, plain, order):
    asked = comparing_question(question, 2)
    assert asked is not None
    assert (asked.plain, asked.order) == (plain, order)


@pytest.mark.parametrize(
    "question",
    [
        "Which of the tenants may keep a dog?",
        "Which of the two tenants pays the lower rent?",
        "Which tenant has the lower rent?",
        "Which room has the higher ceiling?",
        "Compare the two documents.",
        "What is the difference between the two contracts?",
        "What is the difference between the rent and the deposit?",
        "Compare Alice and Bob.",
        "Compare the characters of the novel.",
        "Which of the three leases has the lowest rent?",
        "Which chapter is longer?",
        "Which is the best?",
        "Which lease allows pets?",
        "Is the rent lower than 900 euros?",
        "Who pays the higher rent?",
        "Summarize the differences.",
        "Which of the parties has the longer notice period?",
        "Which lease has a lower rent than 900 euros?",
        "Which lease has the lower rent and the higher deposit?",
        "Which contract has the later date?x",
        "Welcher Mieter zahlt die höhere Miete?",
        "Was ist der Unterschied zwischen Miete und Kaution?",
        "Vergleiche die beiden Verträge.",
        "Welche Mieter dürfen einen Hund halten?",
        "Quel locataire paie le loyer le plus bas ?",
        "Comparez les deux contrats.",
        "¿Quién paga la renta más baja?",
        "Compara los dos contratos.",
        "哪个租户的租金更低？",
        "比较两份合同。",
        "哪个房间更大？",
        "Which lease ends longer?",
        "Which has the earlier rent?",
        "Which of the three contracts is cheapest?",
        "What is the difference between a lease and a licence?",
        "Compare the rent with the market.",
        "哪份",
        "¿Qué inquilino paga la renta más baja?",
        "Quelle est la différence entre le loyer et la caution ?",
        "¿Cuál es la diferencia entre la renta y la fianza?",
        "租金和押金有什么区别？",
        "Of the three leases, which has the lowest rent?",
        "Which room is larger?",
        "Where is the meeting?",
        "What is the rent of the flat?",
        "What is the capital of these countries?",
        "Where is the river longer?",
        "Welches Zimmer ist größer?",
        "Wo ist der Fluss länger?",
        "¿Qué habitación es más grande?",
        "Quelle chambre est la plus grande ?",
        "What are the duties of the two parties?",
        "Wie hoch ist die Miete der Wohnung?",
    ],
)
def test_other_questions_are_not_guessed_at(question):
    assert comparing_question(question, 2) is None


@pytest.mark.parametrize(
    "question",
    [
        "What is the rent?",
        "How long is the notice period?",
        "Wie hoch ist die Kaution?",
        "Quel est le loyer ?",
        "¿Cuál es la renta?",
        "租金是多少？",
    ],
)
def test_a_plain_question_about_a_known_subject_is_implied_for_each_document(question):
    asked = comparing_question(question, 2)
    assert (asked.implied, asked.order, asked.named) == (True, "none", 0)


def test_a_plain_question_is_asked_in_the_words_of_the_user():
    asked = comparing_question("What is the annual rent? ", 2)
    assert asked.plain_in("en") == "What is the annual rent?"
    assert asked.plain_in("de") == "Wie hoch ist die Miete?"


@pytest.mark.parametrize(
    ("question", "nouns"),
    [
        ("Compare the two on notice and deposit", ["notice", "deposit"]),
        ("Compare both leases by rent, the deposit, and notice period.", ["rent", "deposit", "notice period"]),
        ("Compare the rent and the deposit of the two leases.", ["rent", "deposit"]),
        ("Make a table of the rent and the deposit of both.", ["rent", "deposit"]),
        ("Show me a table with rent, deposit and notice for the two leases.", ["rent", "deposit", "notice"]),
        ("Vergleiche die Miete und die Kaution der beiden Verträge.", ["Miete", "Kaution"]),
        ("Compare le loyer et la caution.", ["loyer", "caution"]),
        ("Compara la renta y la fianza.", ["renta", "fianza"]),
        ("比较租金和押金", ["租金", "押金"]),
    ],
)
def test_documents_are_compared_in_a_list_of_subjects(question, nouns):
    asked = comparing_question(question, 2)
    assert [each.noun for each in (asked, *asked.others)] == nouns


def test_a_list_with_an_unknown_subject_is_left_to_the_model():
    assert comparing_question("Compare the two on rent and mood", 2) is None


@pytest.mark.parametrize("documents", [0, 1, 7])
def test_two_to_six_documents_are_compared(documents):
    assert comparing_question("Which has the lower rent?", documents) is None


def test_the_number_that_a_question_names_must_be_that_of_the_documents():
    assert comparing_question("Which of the three leases has the lowest rent?", 2) is None
    assert comparing_question("Which of the two leases has the lower rent?", 3).named == 2
    assert comparing_question("Which of the three leases has the lowest rent?", 3) is not None
    assert comparing_question("Welcher der drei Verträge hat die niedrigste Miete?", 3) is not None
    assert comparing_question("三份合同哪份租金最低？", 3) is not None


def test_a_document_in_another_language_is_asked_in_its_own():
    asked = comparing_question("Which lease has the lower rent?", 2)
    assert asked is not None
    assert asked.plain_in("de") == "Wie hoch ist die Miete?"
    assert asked.plain_in("fr") == "Quel est le loyer ?"
    assert asked.plain_in("it") == asked.plain_in("en") == "What is the rent?"


def test_every_subject_and_every_wording_is_in_every_language():
    languages = {rules.language for rules in LANGUAGES}
    assert set(WORDINGS) == languages
    assert all(set(subject.plain) == languages for subject in SUBJECTS.values())
    for rules in LANGUAGES:
        assert {subject for *_, subject in (*rules.adjectives, *rules.verbs)} <= set(SUBJECTS)


@pytest.mark.parametrize(
    ("noun", "text", "is_about"),
    [
        ("rent", "Die Miete beträgt 950 Euro.", True),
        ("rent", "The deposit is 1,900 euros.", False),
        ("notice period", "Either party may end it with three months' notice.", True),
        ("pet deposit", "The tenant pays a deposit of 1,900 euros.", False),
        ("pet deposit", "For a pet, a deposit of 200 euros is due.", True),
        ("late payment fee", "A fee of 20 euros is due for a late payment.", True),
        ("押金", "押金为2000元。", True),
    ],
)
def test_a_text_is_about_a_subject_by_its_words(noun, text, is_about):
    assert subject_of(noun).is_in(text) == is_about
