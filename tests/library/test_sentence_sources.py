"""Which passage says a sentence of an answer: words up to inflection, numbers and names, nothing that is denied."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.library.citations.cite import Citation
from localctx.library.citations.claims import claims_something
from localctx.library.citations.excerpt import reflowed, words_to_mark
from localctx.library.citations.sentence_sources import (
    AnswerSentence,
    SupportFinder,
    check_by_citations,
    check_quotes,
    checked_summary,
    numbered_sources,
)
from localctx.library.citations.source_index import SourceText
from localctx.library.wording.word_forms import form_of

LEASE = """Lease
1. Parties. This lease is between Ann Marlow (the landlord) and Joe Tan (the tenant).
2. Term. The term begins on 1 May 2024 and has no end. 3. Use. The flat at 12 Mill Lane
is a dwelling. 4. Rent. The rent is EUR 600 per month, due on the third working day of
each month. 5. Deposit. The deposit is EUR 1,200. It is returned within two months of the
end of the lease. 6. Pets. The tenant shall not keep pets. Smoking is not allowed.
7. Notice. Either party may terminate the lease with three months' notice."""
PIECES = [*"ab R.!?4\"'”)\n\t1-#漢&<", "The ", "rent ", "Rent. "]
TEXT = st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text()


def check(answer: str, *texts: str, question: str = "", **how) -> list[AnswerSentence]:
    sources = [SourceText(f"d{i}", f"{i}.txt", 0, text) for i, text in enumerate(texts)]
    return SupportFinder(sources, question, **how).check(answer)


def quotes(answer: str, *texts: str, question: str = "") -> list[str | None]:
    """What is shown for each sentence: the words of its source, or None."""
    return [s.source.quote if s.source else None for s in check(answer, *(texts or [LEASE]), question=question)]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("The rent is EUR 600 per month.", "EUR 600 per month"),
        ("600 euros", "EUR 600 per month"),
        ("€600", "EUR 600 per month"),
        ("The tenant's rent of 600.00 euros is due each month", None),
        ("The deposit is 1200 EUR.", "EUR 1,200"),
        ("The deposits are returned within 2 months.", "It is returned within two months"),
        ("Smoking isn't allowed.", "Smoking is not allowed"),
        ("The parties may terminate with three months' notice", "three months' notice"),
        ("Ann Marlow", "Ann Marlow"),
        ("The landlord is Ann Marlow, and the tenant is Joe Tan.", "Ann Marlow"),
    ],
)
def test_a_passage_says_a_sentence_whatever_the_inflection(answer, words):
    (found,) = quotes(answer)
    assert words is None or words in found


@pytest.mark.parametrize(
    "answer",
    [
        "The rent is 700 euros per month.",
        "The rent is EUR 600 per week.",
        "The notice is two months.",
        "Bob Marlow is the landlord.",
        "This lease is between Ann Marlow and Joe Smith.",
        "Smoking is allowed.",
        "The tenant may keep pets.",
        "The deposit is not EUR 1,200.",
        "The moon is made of cheese.",
        "Marlow House was built in 1900.",
    ],
)
def test_a_number_a_name_or_a_not_that_the_passage_lacks_is_not_said(answer):
    (sentence,) = check(answer, LEASE)
    assert (sentence.support, sentence.number, sentence.source) == ("unsupported", None, None)


@pytest.mark.parametrize(
    "sentence",
    [
        "Yes.",
        "No.",
        "Hello! How can I help you?",
        "Sure, here is what the lease says:",
        "I hope this helps!",
        "The document does not say.",
        "The text doesn't mention any pets.",
        "The rent is not specified in the contract.",
        "There is no information about the rent.",
        "I'm sorry, but I cannot find that.",
        "Is that all?",
        "## Rent",
        "**Rent**",
        "...",
        "",
    ],
)
def test_greetings_refusals_questions_and_headings_are_not_dimmed(sentence):
    assert not any(claims_something(sentence[s.start : s.end]) for s in check(sentence, LEASE))
    assert {s.support for s in check(sentence, LEASE)} <= {"unchecked"}


def test_of_several_places_that_say_it_the_one_about_the_question_is_the_source():
    text = "The deposit is EUR 600. Rain fell. The rent is EUR 600. The fee is EUR 600."
    assert quotes("600 euros", text, question="How much is the rent?") == ["The rent is EUR 600."]
    assert quotes("600 euros", text, question="How much is the fee?") == ["The fee is EUR 600."]


def test_a_place_that_was_quoted_goes_before_others():
    text = "The deposit is EUR 600. The rent is EUR 600. The fee is EUR 600."
    at = text.index("EUR 600. The fee")
    (sentence,) = SupportFinder([SourceText("d", "d.txt", 0, text)]).check("600 euros", near=[("d", at, at + 7)])
    assert sentence.source.quote == "The rent is EUR 600."


def test_sources_are_numbered_as_they_come_and_one_that_comes_again_keeps_its_number():
    answer = "The deposit is EUR 1,200. The moon is round. The rent is EUR 600. The deposit is 1200 euros."
    checked = check(answer, LEASE)
    assert [s.number for s in checked] == [1, None, 2, 1]
    assert [source.quote.split()[1] for source in numbered_sources(checked)] == ["deposit", "rent"]


def test_what_no_sentence_says_alone_sentences_in_a_row_may_say():
    (found,) = quotes("The deposit of EUR 1,200 is returned within two months of the end of the lease.")
    assert " ".join(found.split()).endswith("EUR 1,200. It is returned within two months of the end of the lease.")


def test_a_source_is_where_it_stands_in_its_document():
    start = LEASE.index("4. Rent")
    part = SourceText("d", "lease.pdf", start, LEASE[start:], lambda at: f"{at}", lambda at: "Rent")
    (sentence,) = SupportFinder([part]).check("The rent is 600 euros per month.")
    c = sentence.source
    assert LEASE[c.start : c.end] == c.quote
    assert (c.document, c.name, c.page, c.heading) == ("d", "lease.pdf", str(c.start), "Rent")
    assert AnswerSentence.from_json(sentence.to_json()) == sentence


def test_the_end_of_an_answer_that_was_stopped_is_not_dimmed():
    finder = SupportFinder([SourceText("d", "d", 0, LEASE)])
    assert [s.support for s in finder.check("The moon is round. The sun is", complete=False)][1:] == ["unchecked"]
    assert [s.support for s in finder.check("The moon is round.", complete=False)] == ["unsupported"]


def test_an_answer_in_another_language_is_not_dimmed():
    german = "Der Mieter zahlt jeden Monat sechshundert Euro an den Vermieter, und zwar am dritten Werktag."
    (sentence,) = check("The tenant pays the landlord a sum of money on every third working day of the month.", german)
    assert sentence.support == "unchecked"
    (sentence,) = check(
        "家賃は毎月六百ユーロで、借主は毎月三日目の営業日までに、前払いで、家主の指定する銀行口座に、手数料を差し引かずに支払わなければならない。",
        LEASE,
    )
    assert sentence.support == "unchecked"


def test_words_are_found_in_a_language_that_does_not_part_them():
    assert quotes("青い丘", "川は長い。川は青い丘から流れる。雨が降った。") == ["川は青い丘から流れる。"]


def test_an_old_answer_is_numbered_by_its_citations_and_nothing_of_it_is_dimmed():
    quote = "The rent is EUR 600 per month."
    c = vars(Citation("d", "lease.pdf", "2", None, 7, 7 + len(quote), quote, "attention", 0.3))
    said, other = check_by_citations("The rent is 600 euros. The moon is round.", [c])
    assert (said.support, said.number, said.source.start, said.source.page) == ("supported", 1, 7, "2")
    assert (other.support, other.source) == ("unchecked", None)
    assert check_by_citations("Anything.", []) == [AnswerSentence(0, 9, "unchecked")]


def test_the_parts_of_a_quoted_answer_have_the_places_they_are_from():
    citations = [Citation("d", "d", None, None, at, at + 5, words, "quote", 1.0) for at, words in
                 ((50, "Ann\nMarlow"), (3, "Joe Tan"))]  # fmt: skip
    ann, joe = check_quotes("Ann Marlow; Joe Tan", citations)
    assert [(s.start, s.end, s.number, s.source.start) for s in (ann, joe)] == [(0, 10, 1, 50), (12, 19, 2, 3)]


def test_a_sentence_of_a_summary_has_the_number_of_its_source():
    summary = "The rent is 600. It rains. Pets are forbidden."
    citations = [vars(Citation("d", "d", None, None, 0, 4, "Rent", "passage", 0.4)) | {"at": at} for at in (16, 46)]
    checked = checked_summary(summary, citations)
    assert [(summary[s.start : s.end], s.number) for s in checked] == [
        ("The rent is 600.", 1),
        ("Pets are forbidden.", 2),
    ]


@given(TEXT, st.lists(TEXT, max_size=3), TEXT)
def test_whatever_is_said_its_source_stands_there(answer, texts, question):
    checked = check(answer, *texts, question=question)
    edges = [edge for s in checked for edge in (s.start, s.end)]
    assert edges == sorted(edges)
    for s in checked:
        assert (s.support == "supported") == (s.source is not None) == (s.number is not None)
        if c := s.source:
            assert texts[int(c.document[1:])][c.start : c.end] == c.quote != ""


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("run runs running", True),
        ("city cities", True),
        ("apply applies applied applying", True),
        ("stop stopped stopping", True),
        ("tenant tenants tenant's", True),
        ("1,000 1000 1000.00", True),
        ("three 3", True),
        ("€ EUR euros", True),
        ("600 6000", False),
        ("2.5 25", False),
    ],
)
def test_words_have_one_form(words, same):
    forms = {form_of(word.casefold()) for word in words.split()}
    assert (len(forms) == 1) is same, forms


def test_a_long_book_is_searched_in_a_moment():
    book = "\n\n".join(f"Chapter {i}. The keeper of harbour {i} walked {i * 7} miles to the town." for i in range(4000))
    start = time.process_time()
    (sentence,) = check("The keeper walked 20993 miles.", book)
    assert "Chapter 2999." not in sentence.source.quote
    assert "walked 20993 miles" in sentence.source.quote
    assert time.process_time() - start < 10


# --- Excerpts


def test_wrapped_lines_are_joined_and_lists_rows_and_short_lines_stay():
    text = (
        "The rent is EUR 600 per month, due on the third\nworking day of each month, as every tenant of\nThis house "
        "knows.\n\n- one\n- two\n| a | b |\nA title\nThe text of it.\n4.2 The tenant pays."
    )
    shown = reflowed(text)
    assert len(shown) == len(text)
    assert shown == text.replace("third\nworking", "third working").replace("tenant of\nThis", "tenant of This")


@given(TEXT, st.integers(0, 40), st.integers(0, 20))
def test_what_is_marked_lies_in_the_quote(text, start, more):
    start = min(start, len(text))
    end = min(len(text), start + more)
    assert len(reflowed(text[start:end])) == end - start
    assert all(start <= a < b <= end for a, b in words_to_mark(text, start, end, text))


def test_the_words_of_the_answer_are_marked_once():
    text = "The rent is EUR 600 per month, due on the third day of each month."
    marks = words_to_mark(text, 0, len(text), "600 euros per month")
    assert [text[a:b] for a, b in marks] == ["EUR 600 per month"]
