"""Inflections of a word have the same form."""

import pytest

from localctx.library.wording.word_forms import form_of


@pytest.mark.parametrize(
    "words", ["number numbers", "garden gardens", "cover covers covered covering", "return returned", "house houses"]
)
def test_inflections_have_the_same_form(words):
    assert len({form_of(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["engineers", "gardens", "agreed", "studies", "fees", "renters"])
def test_the_form_of_a_form_is_itself(word):
    assert form_of(form_of(word)) == form_of(word)
