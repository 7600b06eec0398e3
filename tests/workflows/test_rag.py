"""Answers from passages: what is found, ranked, read, kept and told."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from ask_in_process import session

from localctx.engine.coroutine import compute_alone, run_to_end
from localctx.engine.decoding.prefill_decode import likelihood
from localctx.engine.events import Done, Note, Planned, Token
from localctx.engine.planning.cache_plan import CachePlan
from localctx.engine.prompt import make_prompt
from localctx.errors import Cancelled, DocumentError
from localctx.library.read_document import read_document
from localctx.store.store import Store
from localctx.workflows.answer.every_passage import MAY_ASK_ABOUT_WHOLE
from localctx.workflows.answer.retrieval import SEARCH_WEIGHT

pytestmark = pytest.mark.slow

QUESTION = "How long is the river Quell?"


@pytest.fixture
def lands(tmp_path) -> Path:
    """A text beyond the tiny model's window of 4,096 tokens, in paragraphs of some 200 characters."""
    names = ("Avon", "Brue", "Cam", "Dee", "Esk", "Quell", "Frome", "Goyt", "Hull", "Irk", "Kent", "Lea")
    paragraphs = [
        f"The river {name} rises in county {i} among hills of slate, and it is {i * 37 + 11} km long in all. Its banks "
        f"are lined with alder and willow, and every spring of year {1900 + i} it floods the meadows by the mill."
        for i, name in enumerate(names)
    ]
    path = tmp_path / "lands.txt"
    path.write_text("\n\n".join(paragraphs * 2))
    return path


@pytest.fixture
def open_session(home, sharp_model) -> Callable:
    return lambda **settings: session(home, sharp_model, **settings)


class Heard:
    """The events of one question."""

    def __init__(self, events) -> None:
        self.events = list(events)
        done = self.events[-1]
        assert isinstance(done, Done)
        self.report = done.report

    def of(self, kind: type) -> list:
        return [e for e in self.events if isinstance(e, kind)]

    @property
    def ids(self) -> list[int]:
        return [e.id for e in self.of(Token)]


def test_what_does_not_fit_is_answered_from_passages_and_the_plan_says_why(open_session, lands):
    with open_session() as s:
        heard = Heard(s.stream(QUESTION, [str(lands)]))
    (plan,) = heard.of(Planned)
    assert (plan.mode, plan.unusual, heard.report.to_json()["mode"]) == ("retrieve", True, "retrieve")
    assert "reads at most 4,096" in plan.reason
    assert "the answer comes from the best 1 of 5 passages found" in plan.reason
    assert plan.tokens == heard.report.to_json()["ranking"]["tokens"] > heard.report.to_json()["tokens"]["prompt"]
    assert heard.report.to_json()["ranking"]["prefilled"] == plan.tokens
    assert heard.events.index(plan) < heard.events.index(heard.of(Token)[0])


def test_passages_are_text_of_the_document_and_ordered_by_likelihood_and_search(open_session, lands):
    with open_session() as s:
        passages = Heard(s.stream(QUESTION, [str(lands)])).report.to_json()["passages"]
    text = read_document(str(lands)).text
    assert all(p["text"] == text[p["start"] : p["end"]] for p in passages)
    scores = [p["likelihood"] + SEARCH_WEIGHT * p["score"] for p in passages]
    assert scores == sorted(scores, reverse=True)
    assert "Quell" in next(p["text"] for p in passages if p["ranks"]["words"] == 1)


def test_a_fitting_document_is_read_whole_unless_passages_are_asked_for(open_session, document):
    with open_session() as s:
        assert Heard(s.stream("How long is river 7?", [str(document)])).report.to_json()["mode"] == "full"
    with open_session(mode="retrieve") as s:
        report = Heard(s.stream("How long is river 7?", [str(document)])).report.to_json()
    assert report["mode"] == "retrieve"
    assert "River 7 is 259 km long" in report["passages"][0]["text"]


def test_ranking_again_reads_only_the_question_even_in_a_new_session(open_session, lands):
    with open_session() as s:
        first = Heard(s.stream(QUESTION, [str(lands)]))
    with open_session() as s:
        same = Heard(s.stream(QUESTION, [str(lands)]))
        other = Heard(s.stream("How wide is the river Quell?", [str(lands)]))
    assert same.ids == first.ids
    assert first.report.to_json()["ranking"]["reused"] == 0
    suffix = len("Question: How long is the river Quell?</s>\n<s>assistant\n") + 8  # characters are tokens here
    for again in (same, other):
        ranking = again.report.to_json()["ranking"]
        assert 0 < ranking["prefilled"] <= 5 * suffix
        assert ranking["reused"] == ranking["tokens"] - ranking["prefilled"]
    assert [p["start"] for p in same.report.to_json()["passages"]] == [
        p["start"] for p in first.report.to_json()["passages"]
    ]


def test_the_answer_is_that_of_the_passage_alone(open_session, lands, tmp_path):
    with open_session() as s:
        heard = Heard(s.stream(QUESTION, [str(lands)]))
        compute_alone = tmp_path / "alone.txt"
        compute_alone.write_text(heard.report.to_json()["passages"][0]["text"])
        assert Heard(s.stream(QUESTION, [str(compute_alone)], persist=False)).ids == heard.ids


def test_several_passages_are_read_in_the_order_of_the_text_and_neighbours_are_one(open_session, lands):
    with open_session(passages=3) as s:
        heard = Heard(s.stream(QUESTION, [str(lands)]))
        chosen = sorted(heard.report.to_json()["passages"][:3], key=lambda p: p["start"])
        text, texts = read_document(str(lands)).text, list[str]()
        start = end = -9
        for p in chosen:
            if texts and p["start"] - end == 2:
                texts[-1] = text[start : p["end"]]
            else:
                start = p["start"]
                texts.append(p["text"])
            end = p["end"]
        wanted = make_prompt(s.model.tokenizer, texts, QUESTION)
        again = Heard(s.stream(QUESTION, [str(lands)]))
    assert heard.report.to_json()["tokens"]["prompt"] == len(wanted.tokens)
    assert again.report.to_json()["tokens"]["reused"] >= wanted.shared - 1
    assert again.ids == heard.ids


def test_blended_passages_take_over_what_was_ranked(open_session, lands):
    with open_session(passages=3, blend="on", max_tokens=4) as s:
        report = Heard(s.stream(QUESTION, [str(lands)])).report.to_json()
    with open_session(passages=3, max_tokens=4) as s:
        plain = Heard(s.stream(QUESTION, [str(lands)])).report.to_json()
    tokens = report["tokens"]
    assert tokens["reused"] + tokens["prefilled"] == tokens["prompt"]
    assert tokens["reused"] > tokens["prompt"] // 2 > plain["tokens"]["reused"]
    assert [p["start"] for p in report["passages"]] == [p["start"] for p in plain["passages"]]


def test_without_keeping_nothing_is_left(open_session, lands, home):
    with open_session() as s:
        report = Heard(s.stream(QUESTION, [str(lands)], persist=False)).report.to_json()
    assert report["mode"] == "retrieve"
    assert not Store.is_at(home)


def test_the_whole_library_is_asked(open_session, lands, document, home):
    with closing(Store(home)) as store:
        for path in (lands, document):
            d = read_document(str(path))
            store.documents.add(d.row, d.text, d.spans)
    with open_session() as s:
        passages = Heard(s.stream(QUESTION, [], library=True)).report.to_json()["passages"]
        assert next(p["name"] for p in passages if p["ranks"]["words"] == 1) == "lands.txt"
        (passage,) = Heard(s.stream("Which is River 7?", [], library=True)).report.to_json()["passages"][:1]
    assert passage["name"] in ("rivers.txt", "lands.txt")


def test_the_command_asks_the_library_and_refuses_files_beside_it(run, sharp_model, document):
    run("library", "add", document)
    ask = ["ask", "--library", "--model", sharp_model, "--embedder", "none", "--max-tokens", 4, "--json"]
    done = run(*ask, "How long is river 7?")
    assert json.loads(done.stdout)["passages"][0]["name"] == "rivers.txt"
    assert run(*ask, document, "How long is river 7?").returncode == 2
    assert run(*ask, "How long?", "--no-keep").returncode == 2


@pytest.mark.parametrize(
    ("question", "offered"),
    [
        ("Summarize the rivers.", "localctx summarize"),
        ("How many rivers are there?", "--mode everywhere"),
        ("List all rivers.", "--mode everywhere"),
        ("How long is the river in each land?", "--mode everywhere"),
        ("Compare the two rivers.", "--mode everywhere"),
        ("Does anyone ever mention the mill?", "--mode everywhere"),
    ],
)
def test_a_question_about_everything_is_told_that_passages_were_read(open_session, lands, question, offered):
    with open_session() as s:
        notes = [n.text for n in Heard(s.stream(question, [str(lands)])).of(Note)]
    assert any(n.startswith(f"{MAY_ASK_ABOUT_WHOLE}: {offered}") for n in notes)


def test_nothing_like_the_question_in_the_library_is_said(open_session, lands):
    with open_session() as s:
        s.workflows.store([str(lands)])
        with pytest.raises(DocumentError, match="no passage of the documents matches"):
            list(s.stream("xyzzy plugh", [], library=True))


def test_a_question_like_nothing_in_a_named_document_is_put_to_the_model(open_session, lands):
    with open_session(mode="retrieve") as s:
        assert Heard(s.stream("xyzzy plugh", [str(lands)])).report.to_json()["passages"]


def test_an_embedder_that_cannot_be_had_costs_only_the_vectors(open_session, lands, tmp_path):
    with open_session(embedder=str(tmp_path / "nowhere")) as s:
        heard = Heard(s.stream(QUESTION, [str(lands)]))
    assert any("searched by their words alone" in n.text for n in heard.of(Note))
    assert heard.report.to_json()["passages"]


def test_cancelled_while_ranking_keeps_what_was_read(open_session, lands):
    with open_session() as s:
        events = s.stream(QUESTION, [str(lands)])
        next(e for e in events if isinstance(e, Planned))
        s.cancel()
        with pytest.raises(Cancelled):
            list(events)
        assert Heard(s.stream(QUESTION, [str(lands)])).report.to_json()["passages"], "the session goes on"


def test_the_likelihood_is_that_of_the_question_alone(open_session):
    with open_session() as s:
        model = s.model
        prompt = make_prompt(model.tokenizer, ["The river Quell is 196 km long."], QUESTION)
        cache, whole = (CachePlan("f32").new_cache(model) for _ in range(2))
        model.forward(prompt.tokens[: prompt.shared - 1], cache)
        found = run_to_end(likelihood(cache, prompt.tokens, prompt.question), compute_alone(model))
        logits = model.forward(prompt.tokens, whole, len(prompt.tokens))
    rest = torch.tensor(prompt.tokens[prompt.question :])
    wanted = logits[prompt.question - 1 : -1].log_softmax(-1).gather(1, rest[:, None]).sum()
    assert found == pytest.approx(float(wanted), rel=1e-4)
