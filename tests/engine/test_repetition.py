"""Repetition: what goes in circles is found and held back, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.engine.decoding.repetition import COPIES, MAX_PERIOD, MIN_TOKENS, Repetition

WORDS = list(range(100, 110))


def heard(tokens, line_ends=()):
    """What is given out of an answer, and whether it ended in a repetition."""
    repetition, given = Repetition(), 0
    for i, token in enumerate(tokens):
        given += repetition.add(token, i in line_ends)
        if repetition.found:
            return tokens[:given], True
    return tokens[: given + repetition.withheld], False


def test_the_third_copy_ends_it_and_only_the_first_is_given_out():
    start, circle = [1, 2, 3], WORDS
    said, found = heard(start + circle * 5)
    assert found
    assert said == start + circle


def test_two_copies_are_none():
    assert heard([1, 2, *WORDS, *WORDS, 3]) == ([1, 2, *WORDS, *WORDS, 3], False)


def test_a_long_line_that_comes_twice_in_a_row_is_one():
    line = list(range(20))
    said, found = heard([7, *line, *line], line_ends=(0, 20, 40))
    assert found
    assert said == [7, *line]
    assert not heard([7, *line, *line])[1], "without line ends two copies are none"


@pytest.mark.parametrize("circle", [[5], [5, 6], [5, 6, 7]])
def test_zeros_of_a_number_and_rules_of_a_table_are_none(circle):
    some = circle * ((MIN_TOKENS - 1) // len(circle))
    assert heard([1, *some, 2]) == ([1, *some, 2], False)


@given(st.lists(st.integers(0, 3), max_size=80))
def test_nothing_is_lost_and_what_ends_early_was_a_repetition(tokens):
    said, found = heard(tokens)
    assert said == tokens[: len(said)]
    if not found:
        assert said == tokens


@given(st.lists(st.integers(0, 50), min_size=MIN_TOKENS, max_size=MAX_PERIOD, unique=True), st.integers(COPIES, 5))
def test_every_circle_is_found(circle, copies):
    said, found = heard([99, *circle * copies])
    assert found
    assert said == [99, *circle]
