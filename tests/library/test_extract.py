"""Extracts: sentences of a text, in its order, about as many words as wanted, and none said twice."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localctx.library.citations.summary_sentences import MAX_WORDS, MIN_SUMMARY, OVER, extract, key_sentences
from localctx.library.outline import outline
from localctx.library.wording.repeated_sentences import ends_in_repeats, repeats, without_repeated_sentences
from localctx.library.wording.sentences import sentences
from localctx.library.wording.words import split_words

FILLER = "It was warm on that day and nothing at all was heard of it again. "
STORY = (
    "The Stoorworm\n\nThe King sent for his wisest man. The wise man told the King that the Stoorworm had to be fed. "
    + FILLER * 4
    + '"What is it?" said he. "I do not know what you mean," said the other man to him. '
    + "Then Assipattle took the boat of the King and sailed it into the Stoorworm, and killed the Stoorworm with peat. "
    + FILLER * 4
    + "The King gave Assipattle his daughter and half of the kingdom, and the Stoorworm became a land of fire. "
    + FILLER * 3
    + "So Assipattle came to be called the greatest hero of the King and of the whole country. "
)


def read(text: str, words: int) -> list[str]:
    return [text[start:end] for start, end in extract(text, words)]


def test_sentences_with_names_that_come_again_are_taken_in_the_order_of_the_text():
    found = read(STORY, 60)
    assert all(STORY.index(a) < STORY.index(b) for a, b in pairwise(found))
    assert any("killed the Stoorworm with peat" in sentence for sentence in found)
    assert any("gave Assipattle his daughter" in sentence for sentence in found)
    assert not any("What is it" in sentence for sentence in found)


def test_a_short_text_is_not_given_whole():
    words = sum(len(sentence.split()) for sentence in read(STORY, 250))
    assert MIN_SUMMARY - OVER < words < 0.5 * len(STORY.split())


@pytest.mark.parametrize(
    "text", ["", "   ", "Title", "Two words\n\n- a\n- b", "- One, two.\n- Three.", "1 2 3 4 5 6 7."]
)
def test_texts_without_sentences_are_given_as_they_are(text):
    assert all(text[start:end].strip() for start, end in extract(text, 250))
    assert bool(extract(text, 250)) == bool(text.strip())


LICENCE = """This e-book may be copied under the terms of the licence of its publisher. Any royalty is due to the owner
of the trademark. The work is given without warranty of any kind. Copyright of the edition stays with its publisher. """
BOOK = f"""The Book of the Mill

{LICENCE}

*** START OF THE PROJECT GUTENBERG EBOOK THE MILL ***

Produced by two people who read the proofs of the whole edition with care.

CHAPTER I: THE MILLER
The miller Ansgar Holt bought the old mill at the weir from the heirs of the Duke.
{FILLER}

CHAPTER II: THE WEIR
The weir broke in the spring and Ansgar Holt lost the wheel of the mill to the river. {FILLER * 2}

CHAPTER III: THE SALE
At last the miller sold the mill to the town, which turned the house into a school.

*** END OF THE PROJECT GUTENBERG EBOOK THE MILL ***

{LICENCE * 5}"""


def told(text: str, count: int = 3) -> list[str]:
    return [text[start:end] for start, end in key_sentences(text, count, outline(text, []))]


def test_key_sentences_are_from_all_of_the_book_and_not_from_its_licence():
    first, _, last = told(BOOK)
    assert first.startswith("The miller Ansgar Holt bought the old mill")
    assert last.startswith("At last the miller sold the mill")
    assert not any(word in sentence for sentence in told(BOOK) for word in ("copied", "trademark", "warranty"))


def test_a_licence_is_left_out_without_the_marks_of_a_publisher():
    plain = BOOK.replace("PROJECT GUTENBERG", "NEW")
    for found in (told(plain), read(plain, 120)):
        assert not any(word in sentence for sentence in found for word in ("royalty", "warranty", "publisher"))


def test_what_a_licence_says_is_told_of_a_licence():
    assert "licence" in " ".join(told(LICENCE))


def test_what_every_page_repeats_is_told_of_none():
    page = "The river was at its usual level on page {}, and the weather was dry with light wind from the west.\n"
    pages = [page.format(i) + f"{body}\n\n" for i, body in enumerate(SAID_ONCE)]
    assert set(told("".join(pages), 4)) == set(SAID_ONCE)


SAID_ONCE = [
    "The inspection found the structure of the weir sound, with three defects.",
    "Erosion has undercut the left bank over a length of thirty metres.",
    "Oak from the forest of the Duke was used for the new gate of the lock.",
    "Work on the crest of the dam is to begin in September of the same year.",
]


def test_a_key_sentence_does_not_begin_with_the_words_of_its_heading():
    assert all(not sentence.startswith("CHAPTER") for sentence in told(BOOK))


@pytest.mark.parametrize("text", ["", "  \n", "Title\n\n- one\n- two"])
def test_nothing_is_told_of_a_text_without_sentences(text):
    assert told(text) == []


RIVERS = "River 3 is 111 km long here. River 4 is 148 km long here."
SENTENCES = [STORY[start:end] + " " for start, end in sentences(STORY, 0, len(STORY))]
OTHERS = ["Ana went. ", "# Head\n", "12, 13 and 14\n\n", "«Oui», dit-il. ", "King Stoorworm "]
LINES = st.lists(st.sampled_from(SENTENCES + OTHERS))


@given(LINES.map("".join), st.integers(1, 400))
def test_an_extract_is_of_whole_sentences_in_order_within_the_length(text, words):
    found = extract(text, words)
    assert found == sorted(set(found))
    assert set(found) <= set(sentences(text, 0, len(text)))
    assert sum(len(text[a:b].split()) for a, b in found) <= max(words + OVER, MIN_SUMMARY + OVER, MAX_WORDS)
    said = [split_words(text[a:b]) for a, b in found]
    assert not any(repeats(later, earlier) for i, later in enumerate(said) for earlier in said[:i])


# Repeated sentences


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("He came. He went. He came.", "He came. He went."),
        ('He came! HE CAME. "He came?"', "He came!"),
        (
            "The King is a kind and loving father. The King was the loving and kind father. End.",
            "The King is a kind and loving father. End.",
        ),
        ("He gave the horse away. He gave the cow away.", "He gave the horse away. He gave the cow away."),
        ("He is dead, they say. He is not dead, they say.", "He is dead, they say. He is not dead, they say."),
        (RIVERS, RIVERS),
        ("- a point about it\n- A point about it.\n- another thing", "- a point about it\n- another thing"),
        ("First.\n\nSecond.\n\nFirst.\n\nThird.", "First.\n\nSecond.\n\nThird."),
        ("", ""),
        ("No end", "No end"),
    ],
)
def test_a_sentence_is_said_once(text, left):
    assert without_repeated_sentences(text) == left


SAID = st.lists(st.sampled_from(["The King is kind. ", "THE King is kind! ", "He left.\n", "- a, b.\n", "12 km. "]))


@given(SAID.map("".join))
@example("- a, b.\n- a, b.\nThe King is kind. - a, b.\nThe King is kind. The King is kind. ")
def test_nothing_is_said_twice_and_nothing_else_is_lost(text):
    left = without_repeated_sentences(text)
    assert without_repeated_sentences(left) == left
    said, before = ([split_words(t[a:b]) for a, b in sentences(t, 0, len(t))] for t in (left, text))
    assert not any(repeats(later, earlier) for i, later in enumerate(said) for earlier in said[:i])
    assert all(any(repeats(words, kept) for kept in said) for words in before)


def test_a_text_ends_in_repeats_when_its_last_sentences_were_all_said():
    assert ends_in_repeats("He came. She left. He came. She left.", 2)
    assert not ends_in_repeats("He came. She left. He came. She", 2)
    assert not ends_in_repeats("He came. He came.", 2)
    assert not ends_in_repeats("", 1)
