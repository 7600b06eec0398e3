"""``localctx quality --context``: the questions made of a text, the rule, and the command."""

import json
from contextlib import closing

import pytest
import quality_fixtures
from required_extras import needs_llama
from tiny_ggufs import write_tiny_gguf

from localctx.engine.planning.effective_context import MEASURED
from localctx.quality.context_quality import (
    SHORTEST,
    LengthResult,
    Question,
    compare_lengths,
    effective_context,
    make_cloze_questions,
    make_haystacks,
)
from localctx.store.store import Store

pytestmark = pytest.mark.slow

model, run = quality_fixtures.model, quality_fixtures.run
TEXT = "".join(
    f"In the year {1800 + i} the keeper of this long river was Master Ann{chr(97 + i % 26)}{chr(97 + i // 26)} of it. "
    for i in range(60)
)


def test_questions_are_made_of_sentences_that_name_something_once():
    text = "We met him at the old harbour there in the evening. He lives in Lindau by the big old lake, and likes it."
    (question,) = make_cloze_questions(text)
    assert question.expected == ("Lindau",)
    assert "____" in question.words
    assert "Lindau" not in question.words


@pytest.mark.parametrize(
    ("answer", "right"), [("It is Lindau.", True), ("lindau", True), ("Bregenz", False), ("", False)]
)
def test_an_answer_is_right_with_an_expected_word(answer, right):
    assert Question("", ("Lindau",)).answered_by(answer) == right


def test_thousands_may_be_set_apart():
    assert Question("", ("1234567",)).answered_by("It is 1,234,567.")


def test_lengths_double_and_each_piece_has_its_needles_and_sentences(model):
    pieces = make_haystacks(model.tokenizer, TEXT, 2048)
    assert sorted({p.length for p in pieces}) == [512, 1024, 2048]
    for piece in pieces:
        planted = [q for q in piece.questions if "magic number" in q.words]
        assert len(planted) == 2
        assert all(q.expected[0] in piece.text for q in piece.questions)
        assert len(piece.questions) > 2


def results(*pairs):
    return [LengthResult(SHORTEST << i, 10, whole, passages) for i, (whole, passages) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "tokens"),
    [
        ([(9, 9), (8, 7), (6, 9)], 1024),
        ([(5, 6), (9, 1)], 256),
        ([(9, 8), (5, 6), (9, 1)], 512),
        ([(9, 8)], 512),
    ],
)
def test_the_effective_context_ends_where_the_whole_first_loses(pairs, tokens):
    assert effective_context(results(*pairs)) == tokens


def test_no_longer_texts_are_read_once_the_whole_lost_twice(model):
    pieces = make_haystacks(model.tokenizer, TEXT, 4096)
    asked = []

    def ask(text, question, mode):
        asked.append(len(text))
        found = next(q for p in pieces if p.text == text for q in p.questions if q.words == question)
        return found.expected[0] if mode == "retrieve" else ""

    compared = list(compare_lengths(pieces, ask))
    assert [c.length for c in compared] == [512, 1024]
    assert all(c.passages == c.asked and not c.whole for c in compared)


def test_the_command_measures_and_what_it_found_is_used(run, home, tiny_model, tmp_path):
    path = tmp_path / "keepers.txt"
    path.write_text(TEXT)
    code, out, err = run(path, "--context", "--tokens", 512, "--json")
    assert code == 0, err
    report = json.loads(out)
    assert [c["length"] for c in report["lengths"]] == [512]
    assert report["effective"] in (256, 512)
    with closing(Store(home)) as store:
        assert store.quality_results.of_model(str(tiny_model))[MEASURED]["effective"] == report["effective"]


@needs_llama
def test_the_context_of_a_gguf_is_measured_and_its_pages_are_refused_by_name(run, tmp_path):
    model, path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama"), tmp_path / "keepers.txt"
    path.write_text(TEXT)
    flags = ("--engine", "llama.cpp", "--model", model, "--tokens", 512)
    code, out, err = run(path, "--context", "--json", *flags)
    assert code == 0, err
    assert [c["length"] for c in json.loads(out)["lengths"]] == [512]
    for more in ((), ("--blend",), ("--stream", 600)):
        code, _, err = run(path, *flags, *more)
        assert code == 2
        assert "llama.cpp, which holds keys and values itself; use --engine torch" in err
        assert len(err.splitlines()) == 1


def test_two_measurements_at_once_are_refused(run, tmp_path):
    path = tmp_path / "keepers.txt"
    path.write_text(TEXT)
    code, _, err = run(path, "--context", "--blend")
    assert code == 2
    assert "--blend" in err


def test_a_text_that_is_too_short_is_told(run, tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("Nothing much.")
    code, _, err = run(path, "--context")
    assert code == 1
    assert "too few to measure on" in err
