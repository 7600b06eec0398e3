"""Answers of many passages: grouped, counted, and told with their places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.library.citations.answer_groups import MAX_PLACES, describe_groups, group_answers, place_of
from localctx.library.citations.cite import Citation

ANSWERS = st.lists(st.sampled_from(["Heron.", "the heron", "a HERON!", "copper", "Copper", "two words", "two  words"]))


def citation(start: int, page: str | None = None, document: str = "a") -> Citation:
    return Citation(document, f"{document}.txt", page, None, start, start + 5, "words", "passage", 1.0)


@given(ANSWERS)
def test_every_answer_is_in_one_group_of_those_that_differ_in_form_alone(answers):
    groups = group_answers(answers)
    assert sorted(i for group in groups for i in group.citations) == list(range(len(answers)))
    assert [group.count for group in groups] == sorted((group.count for group in groups), reverse=True)
    assert len(groups) == len({"".join(c for c in a.lower().replace("the ", "") if c.isalpha())[-5:] for a in answers})
    for group in groups:
        assert list(group.citations) == sorted(group.citations)
        assert group.answer == answers[group.citations[0]]


@given(st.lists(st.text(max_size=20)))
def test_any_texts_are_grouped_and_told_in_a_line_each(answers):
    groups = group_answers(answers)
    cited = [citation(i) for i in range(len(answers))]
    told = describe_groups(groups, cited, answers, {"a": 1000}, 1000).split("\n")
    assert len(told) == 2 + len(groups)


def test_the_report_counts_and_names_places():
    groups = group_answers(["The heron.", "copper", "heron"])
    cited = [citation(100), citation(500), citation(900)]
    sentences = ["It is\n the heron.", "Copper!", "heron"]
    assert describe_groups(groups, cited, sentences, {"a": 1000}, 440) == (
        "3 of 440 passages answer this, with 2 different answers:\n\n"
        '1. The heron. "It is the heron." (2 passages: 10 %; 90 % of the text)\n'
        "2. copper (50 % of the text)"
    )


@pytest.mark.parametrize(
    ("answers", "head"),
    [
        (["one"], "1 of 9 passages answers this."),
        (["one", "One."], "2 of 9 passages answer this, all the same:"),
        (["one", "two"], "2 of 9 passages answer this, with 2 different answers:"),
    ],
)
def test_the_first_line_counts(answers, head):
    cited = [citation(i) for i in range(len(answers))]
    assert describe_groups(group_answers(answers), cited, answers, {"a": 10}, 9).startswith(head)


def test_pages_and_several_documents_are_named():
    assert place_of(citation(5, "12"), 10, False) == "page 12"
    assert place_of(citation(5), 10, True) == "a.txt, 50 %"
    cited = [citation(5), citation(1, document="b")]
    told = describe_groups(group_answers(["x", "x"]), cited, ["x", "x"], {"a": 10, "b": 4}, 2)
    assert "(2 passages: a.txt, 50 %; b.txt, 25 % of the text)" in told


def test_of_many_places_the_first_are_told():
    cited = [citation(i) for i in range(100)]
    told = describe_groups(group_answers(["x"] * 100), cited, ["x"] * 100, {"a": 100}, 100)
    assert f"; and {100 - MAX_PLACES} more)" in told
