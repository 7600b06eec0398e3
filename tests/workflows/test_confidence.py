"""Confidence: a probability from likelihoods; where it is low, the document does not say, and the nearest is shown."""

import json
import random
from math import e, log
from types import SimpleNamespace

import pytest
import torch
from ask_in_process import session
from tiny_adapters import save_adapter

from localctx.engine import run_request
from localctx.engine.decoding.confidence import Calibration, Evidence, calibration_from_json
from localctx.engine.events import Done, NearestPassage, Quoted, Token
from localctx.engine.prompt_wording import NOT_SAID
from localctx.library.wording.no_answer import NO_ANSWER
from localctx.models.decoder.local_model import LocalModel
from localctx.models.token_controls import TokenControls
from localctx.workflows.answer import abstention
from localctx.workflows.answer.abstention import reconsider

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"
FEATURES = len(Evidence(0, 0, 0, 0, 0).features)
HOW = {"careful": "auto", "mode": "full", "max_tokens": 12, "repeats": "stop", "dtype": "f32"}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, tiny_model):
    return save_adapter(tmp_path_factory.mktemp("adapters") / "reader", tiny_model)


def write_reader(adapter, threshold: float, **more) -> None:
    stored = {"weights": [0.0] * FEATURES, "bias": 0.0, "threshold": threshold}
    measured = {"form": "Question: {question}", "not_said": NOT_SAID, "confidence": {"free": stored, "quote": stored}}
    (adapter / "reader.json").write_text(json.dumps({**measured, **more}))


def events_of(home, model, adapter, document, question=QUESTION, **how):
    with session(home, model, adapter=str(adapter), **{**HOW, **how}) as s:
        return list(s.stream(question, [str(document)]))


@pytest.mark.parametrize("mode", ["full", "retrieve"])
@pytest.mark.parametrize("answers", ["free", "quote"])
def test_an_answer_that_is_not_likely_right_is_not_given(home, tiny_model, adapter, document, mode, answers):
    write_reader(adapter, threshold=0.9)
    *events, done = events_of(home, tiny_model, adapter, document, mode=mode, answers=answers)
    assert isinstance(done, Done)
    report = done.report.to_json()
    assert (report["answer"], report["stopped"], report["confidence"]) == (NO_ANSWER["en"], "unanswered", 0.5)
    nearest = report["nearest"]
    assert report["citations"] == []
    assert document.read_text()[nearest["start"] : nearest["end"]] == nearest["quote"]
    said = [event for event in events if isinstance(event, Quoted | Token | NearestPassage)]
    assert said[-1] == NearestPassage(nearest)
    assert "".join(event.text for event in said[:-1]) == NO_ANSWER["en"], "no quotation stands above"


@pytest.mark.parametrize("answers", ["free", "quote"])
def test_one_that_is_likely_right_is_given_whole(home, tiny_model, adapter, document, answers):
    write_reader(adapter, threshold=0.1)
    *events, done = events_of(home, tiny_model, adapter, document, answers=answers)
    report = done.report.to_json()
    assert report["confidence"] == 0.5
    assert report["stopped"] != "unanswered"
    assert (
        "".join(event.text for event in events if isinstance(event, Token)).strip()
        == report["answer"]
        != NO_ANSWER["en"]
    )


def test_the_time_of_reading_counts_the_document_and_the_question(home, tiny_model, adapter, document, monkeypatch):
    passes, forward_each = list[int](), LocalModel.forward_each

    def compute(model, requests, *rest):
        passes.append(len(requests))  # a pass takes a second
        return forward_each(model, requests, *rest)

    monkeypatch.setattr(LocalModel, "forward_each", compute)
    for module in (run_request, abstention):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: len(passes)))
    write_reader(adapter, threshold=0.1)
    *_, done = events_of(home, tiny_model, adapter, document)
    prefilled = passes.index(3) + 1  # the prompt, its ranking and the question alone come last
    assert done.report.to_json()["seconds"]["prefill"] == prefilled < len(passes)


@pytest.mark.parametrize("how", [{"careful": "off"}, {"temperature": 0.5, "seed": 1}, {"adapter": "none"}])
def test_other_answers_are_not_rated(home, tiny_model, adapter, document, how):
    write_reader(adapter, threshold=0.9)
    how = {"adapter": str(adapter), **HOW, **how}
    with session(home, tiny_model, **how) as s:
        *_, done = s.stream(QUESTION, [str(document)])
    assert done.report.to_json()["confidence"] is None
    assert done.report.to_json()["stopped"] != "unanswered"


def test_auto_decodes_as_was_measured_for_the_adapter(home, tiny_model, adapter, document):
    for measured in ("quote", "free"):
        write_reader(adapter, 0.0, answers=measured)
        *_, done = events_of(home, tiny_model, adapter, document, answers="auto")
        assert done.report.to_json()["decoding"] == measured


@pytest.mark.parametrize(
    ("first", "likelihood", "threshold", "forbidden"),
    [(5, -0.1, 0.2, True), (6, -0.1, 0.2, False), (5, -3.0, 0.2, False), (5, -0.1, 0.9, False)],
)
def test_a_reply_that_nothing_answers_is_reconsidered_if_the_text_may_answer(first, likelihood, threshold, forbidden):
    """Only where it would be the reply, and the evidence (0.5 here) reaches the calibration's bound."""
    tokenizer = SimpleNamespace(encode=lambda text: [5, 7])
    request = SimpleNamespace(
        model=SimpleNamespace(tokenizer=tokenizer),
        not_said=NOT_SAID,
        logits=torch.eye(9)[first],
        controls=TokenControls(bias={1: 2.0}),
        result=SimpleNamespace(decoding="free"),
    )
    calibration = Calibration((0.0,) * FEATURES, 0.0, 0.5, threshold)
    others = reconsider(request, Evidence(0, 0, likelihood, 0, 1), calibration)
    assert others == pytest.approx(log(8 / (8 + e)) if forbidden else 0.0), "the likelihood of the other eight tokens"
    assert request.controls.bias == ({1: 2.0, 5: -100.0} if forbidden else {1: 2.0})


def test_a_calibration_is_stored_and_read_again():
    stored = Calibration((0.5, -1.25, 0.0, 0.0, 2.0, 1.0), -0.75, 0.4, 0.2)
    assert calibration_from_json(json.loads(json.dumps(stored.to_json()))) == stored
    assert calibration_from_json({"weights": [1.0], "bias": 0.0, "threshold": 0.5}) is None


@pytest.mark.parametrize(
    "stored",
    [
        7,
        ["free"],
        {"free": None},
        {"free": {}},
        {"quote": {"weights": [0.0] * FEATURES, "bias": 0.0}},
        {"free": {"weights": 6, "bias": 0.0, "threshold": 0.5}},
        {"free": {"weights": ["0"] * FEATURES, "bias": 0.0, "threshold": 0.5}},
        {"free": {"weights": [0.0] * FEATURES, "bias": float("nan"), "threshold": 0.5}},
        {"free": {"weights": [float("inf")] * FEATURES, "bias": 0.0, "threshold": 0.5}},
        {"free": {"weights": [10**400] * FEATURES, "bias": 0.0, "threshold": 0.5}},
        {"free": {"weights": [True] * FEATURES, "bias": 0.0, "threshold": 0.5}},
        {"free": {"weights": [0.0] * FEATURES, "bias": 0.0, "threshold": 5}},
    ],
)
def test_a_calibration_that_is_none_is_refused_in_one_line_before_any_work(run, tiny_model, adapter, document, stored):
    (adapter / "reader.json").write_text(json.dumps({"confidence": stored}))
    refused = run("ask", document, QUESTION, "--model", tiny_model, "--adapter", adapter)
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert "confidence in reader.json" in line
    assert "--adapter none" in line


def test_likelier_answers_get_more_confidence():
    calibration, chance = Calibration((1.0,) + (0.0,) * (FEATURES - 1), 0.0, 0.5), random.Random(0)
    for _ in range(100):
        not_said, low, more = -chance.random() * 20, -chance.random() * 30, chance.random() * 5
        less, likelier = (Evidence(low + add, 5, not_said, 3.0, 9) for add in (0.0, more))
        assert 0 < calibration.confidence(less) <= calibration.confidence(likelier) < 1
