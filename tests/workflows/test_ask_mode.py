"""Whole or passages: the model's effective context decides, and the plan says so."""

from contextlib import closing

import pytest
from ask_in_process import ask, session

from localctx.engine.events import Note, Planned
from localctx.engine.planning.effective_context import ESTIMATES, MEASURED, estimate_effective_context
from localctx.store.store import Store

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7"  # several documents are asked together, because it does not end as a question


def planned(home, model, *files, **settings):
    """What is told before the answer."""
    with session(home, model, max_tokens=2, **settings) as s:
        return next(e for e in s.stream(QUESTION, [str(f) for f in files]) if isinstance(e, Planned))


def test_what_the_model_bears_is_read_whole_and_of_more_passages(home, tiny_model, document):
    whole = planned(home, tiny_model, document, effective_context=5_000)
    passages = planned(home, tiny_model, document, effective_context=200)
    assert (whole.mode, passages.mode) == ("full", "retrieve")
    assert passages.reason.startswith("passages, because ")
    assert "answers best from up to 200 tokens (as you set it), and the documents have about 6" in passages.reason


def test_several_documents_count_together(home, tiny_model, document, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(document.read_text().replace("River", "Lake"))
    assert planned(home, tiny_model, document, effective_context=900).mode == "full"
    assert planned(home, tiny_model, document, other, effective_context=900).mode == "retrieve"


def test_a_model_that_was_never_measured_gets_a_guess_that_is_called_one(home, tiny_model, document):
    plan = planned(home, tiny_model, document, effective_context=0)
    assert plan.mode == "retrieve"
    assert "256 tokens (a cautious guess from its size: localctx quality --context measures it)" in plan.reason


def test_what_was_measured_here_counts_more_than_a_guess(home, tiny_model, document):
    with closing(Store(home)) as store:
        store.quality_results.note(b"key", str(tiny_model), MEASURED, True, {"effective": 2_048})
    assert planned(home, tiny_model, document, effective_context=0).mode == "full"
    with closing(Store(home)) as store:
        store.quality_results.note(b"key", str(tiny_model), MEASURED, True, {"effective": 128})
    assert "up to 128 tokens (as measured here)" in planned(home, tiny_model, document, effective_context=0).reason


@pytest.mark.parametrize("how", [{"mode": "full"}, {"keep": "select:1/4"}])
def test_who_says_how_it_is_read_has_it_so(home, tiny_model, document, how):
    assert planned(home, tiny_model, document, effective_context=64, **how).mode == "full"


def test_what_will_be_answered_from_passages_is_prepared_by_making_it_searchable(home, tiny_model, document):
    with session(home, tiny_model, effective_context=64) as s:
        *events, done = s.prepare(str(document))
    assert "made searchable" in " ".join(e.text for e in events if isinstance(e, Note))
    assert done.report.to_json()["kept"]["pages"] == 0
    assert done.report.to_json()["tokens"]["prompt"] > 600
    with closing(Store(home)) as store:
        assert store.index.has(done.report.to_json()["document"])


def test_guesses_grow_with_the_model():
    sizes = [below - 1 for below, _ in ESTIMATES[:-1]]
    assert [estimate_effective_context(int(size)) for size in sizes] == [tokens for _, tokens in ESTIMATES[:-1]]
    assert estimate_effective_context(10**12) == ESTIMATES[-1][1]


def test_the_report_says_the_mode(home, tiny_model, document):
    assert ask(home, tiny_model, document, effective_context=64, max_tokens=2).report.to_json()["mode"] == "retrieve"
