"""Made documents: what they answer is in them, what they do not answer is not, and the same seed makes the same."""

import random
import sys

import pytest
from repository import ROOT

from localctx.engine.prompt_wording import NOT_SAID

sys.path.insert(0, str(ROOT / "packaging"))
from near_misses import load_topics, make_sheet

TOPICS = [*load_topics(), *load_topics(held_out=True)]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.title[0])
def test_answers_are_words_of_the_document(topic) -> None:
    for seed in range(40):
        sheet = make_sheet(topic, random.Random(seed))
        assert sheet.answered
        assert sheet.unanswered
        for question, answer in sheet.answered:
            words = answer.removeprefix("Yes, ").removeprefix("No, ")
            assert (words in sheet.text) or words.removesuffix(".") in sheet.text, (question, answer)
        assert all(answer == NOT_SAID for _, answer in sheet.unanswered)
        assert not {q for q, _ in sheet.answered} & {q for q, _ in sheet.unanswered}


def test_a_question_has_one_answer() -> None:
    for topic in TOPICS:
        for seed in range(40):
            sheet = make_sheet(topic, random.Random(seed))
            assert len(dict(sheet.answered)) == len(set(sheet.answered)), "two answers to one question"


def test_both_yes_and_no_are_right() -> None:
    chance = random.Random(3)
    answers = [answer for topic in TOPICS for _ in range(20) for _, answer in make_sheet(topic, chance).answered]
    yes, no = (sum(answer.startswith(word) for answer in answers) for word in ("Yes, ", "No, "))
    assert 0.3 < yes / (yes + no) < 0.7


def test_the_same_seed_makes_the_same_document() -> None:
    assert make_sheet(TOPICS[0], random.Random(7)) == make_sheet(TOPICS[0], random.Random(7))


def test_held_out_topics_are_others() -> None:
    trained, held_out = load_topics(), load_topics(held_out=True)
    assert held_out
    assert not {topic.title[0] for topic in trained} & {topic.title[0] for topic in held_out}
