"""Sentences of contracts: the number of a clause begins a sentence and does not end one."""

import pytest

from localctx.library.citations.cite import cite_passages
from localctx.library.search.search import Passage
from localctx.library.wording.sentences import sentences


def split(text: str) -> list[str]:
    return [" ".join(text[a:b].split()) for a, b in sentences(text, 0, len(text))]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("4. Rent. The rent is EUR 600.", ["4. Rent.", "The rent is EUR 600."]),
        ("It began in 2024. 4. Rent. It is 600.", ["It began in 2024.", "4. Rent.", "It is 600."]),
        ("It ends.\n4.2 The tenant pays.\n4.3. It rains.", ["It ends.", "4.2 The tenant pays.", "4.3. It rains."]),
        ("The tenant shall:\n(a) pay;\n(b) go.", ["The tenant shall:", "(a) pay;", "(b) go."]),
        ("It ends.\n4. Crest\nThe crest is high.", ["It ends.", "4. Crest", "The crest is high."]),
        ("It ends.\n4.2 Crest\nIts height is 3.4 m.", ["It ends.", "4.2 Crest", "Its height is 3.4 m."]),
        (
            "It ended.\n7 May 1990 was the day\nMary Smith left for the sea and her sister.",
            ["It ended.", "7 May 1990 was the day Mary Smith left for the sea and her sister."],
        ),
        ("Live at\n12 Park Lane\nLondon. Go.", ["Live at 12 Park Lane London.", "Go."]),
        ("7. The landlord of\nPark Lane pays.", ["7. The landlord of Park Lane pays."]),
        ("Section 4. Rent. It is 600.", ["Section 4. Rent.", "It is 600."]),
        ("§ 4. Miete. Sie ist 600 Euro.", ["§ 4. Miete.", "Sie ist 600 Euro."]),
        ("IV. Rent. It is paid.", ["IV. Rent.", "It is paid."]),
        ("See No. 7 of the list. No. It is not.", ["See No. 7 of the list.", "No.", "It is not."]),
        ("It begins on 1 May\n2024. The rent is due.", ["It begins on 1 May 2024.", "The rent is due."]),
        ("It grew to\n4.2 million people.", ["It grew to 4.2 million people."]),
        ("He lives in flat 4. The door is red.", ["He lives in flat 4.", "The door is red."]),
        ("Due on the 3. The tenant pays.", ["Due on the 3.", "The tenant pays."]),
        ("1) One. 2) Two.", ["1) One.", "2) Two."]),
    ],
)
def test_a_clause_is_not_cut_at_its_number(text, parts):
    assert split(text) == parts


def test_a_citation_of_the_rent_does_not_skip_its_sentence():
    text = (
        "3. Term. It has no end. 4. Rent. The rent is EUR 600 per month.\nIt is due on the third day. 5. Deposit. None."
    )
    passage = Passage("d", "lease.pdf", 0, len(text), text, None, None, 0.0, {})
    (citation, *_) = cite_passages("EUR 600 per month", "What is the rent?", [passage])
    assert "The rent is EUR 600 per month." in citation.quote
    assert not citation.quote.startswith(("4", "Rent"))


def test_a_heading_in_markdown_is_a_sentence_of_its_own():
    assert split("## 4. Use of the flat\nThe flat is a home.\nIt is\nnot let.\n# Notice\nTwo months.") == [
        "## 4. Use of the flat",
        "The flat is a home.",
        "It is not let.",
        "# Notice",
        "Two months.",
    ]
    assert split("The tag #7 is\n#blue and new.") == ["The tag #7 is #blue and new."]


def test_a_time_of_day_ends_a_sentence_before_a_capital_letter():
    assert split("No music after 10 p.m. The tenant cleans.") == ["No music after 10 p.m.", "The tenant cleans."]
    assert split("It opens at 8 a.m. on Mondays.") == ["It opens at 8 a.m. on Mondays."]
