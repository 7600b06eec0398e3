"""Pages under an adapter: those of documents are the model's own, those of questions and answers the adapter's."""

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_adapters import save_adapter
from tiny_models import KEPT

from localctx.engine.events import Done, Event
from localctx.kv.pages import Activation, page_names
from localctx.session import Session
from localctx.settings import load_settings
from localctx.shape import PAGE
from localctx.store.store import Store

pytestmark = pytest.mark.slow

ABOUT = b"a model and all that"


@given(
    st.lists(st.integers(0, 300), max_size=400),
    st.integers(0, 500),
    st.tuples(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32)),
)
def test_names_differ_from_the_first_page_with_an_adapted_token_on(tokens, start, fingerprints):
    plain = [name for name, _ in page_names(ABOUT, tokens)]
    adapted = [[name for name, _ in page_names(ABOUT, tokens, Activation(f, start))] for f in fingerprints]
    same = sum(min(end + PAGE, len(tokens)) <= start for end in range(0, len(tokens), PAGE))
    for names in adapted:
        assert names[:same] == plain[:same]
        assert not {*names[same:]} & {*plain}
    assert fingerprints[0] == fingerprints[1] or not {*adapted[0][same:]} & {*adapted[1]}


@given(st.lists(st.integers(0, 300), min_size=1, max_size=200), st.integers(0, 150), st.integers(1, 200))
def test_names_of_a_longer_sequence_begin_with_those_of_its_full_pages(tokens, start, more):
    activation = Activation(b"f" * 32, start)
    whole = list(page_names(ABOUT, [*tokens, *range(more)], activation))
    full = len(tokens) // PAGE
    assert whole[:full] == list(page_names(ABOUT, tokens, activation))[:full]


# --- What a session stores


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapters") / "made", tiny_model)


@pytest.fixture
def open_session(home, tiny_model, adapter) -> Callable[..., Session]:
    def open_session(**how):
        how = {"home": home, "adapter": str(adapter), "max_tokens": 40, "dtype": "f32", "kv": "f32", **how}
        settings = load_settings(model=str(tiny_model), embedder="none", **how)
        return closing(Session(settings, lambda event: None))

    return open_session


def last(events) -> dict:
    """What Done reports."""
    found: list[Event] = list(events)
    assert isinstance(found[-1], Done)
    assert not found[-1].failed
    return found[-1].report.to_json()


def names(home: Path) -> set[bytes]:
    with closing(Store(home)) as store:
        return {row["name"] for row in store.db.query("SELECT name FROM pages")}


def test_documents_have_the_same_pages_with_and_without_an_adapter_and_in_every_form(open_session, home, document):
    with open_session(adapter="none") as s:
        plain = last(s.stream("How long is river 7?", [str(document)]))
    kept = names(home)
    with open_session() as s:
        adapted = last(s.stream("How long is river 7?", [str(document)]))
        whole = last(s.stream("Summarize it.", [str(document)]))
    assert names(home) == kept
    assert (plain["adapter"], adapted["adapter"], whole["adapter"]) == (None, "made", None)
    assert plain["answer"] != adapted["answer"]
    assert plain["tokens"]["prefilled"] == plain["tokens"]["prompt"]
    for again in (adapted, whole):
        assert again["tokens"]["reused"] == KEPT


@pytest.mark.parametrize("how", [{}, {"chunk": 48}, {"draft": 0}, {"dtype": "bf16"}, {"kv": "int8"}])
def test_a_chat_goes_on_from_kept_pages_as_if_everything_were_read_anew(open_session, home, document, tmp_path, how):
    questions = ("How long is river 7?", "And river 9?", "And the others?")

    with open_session(**how) as s:
        chat = s.workflows.chats.start([str(document)]).id
        answers = [last(s.run(s.workflows.chats.ask(chat, question))) for question in questions]
    assert [a["adapter"] for a in answers] == ["made"] * 3
    assert answers[0]["tokens"]["reused"] == 0
    for before, after in pairwise(answers):
        assert after["tokens"]["reused"] >= before["tokens"]["prompt"], "question and answer are kept"
    if how.get("kv") == "int8" or how.get("dtype") == "bf16":
        return  # a page that is sealed while it is read is attended to in full precision
    with closing(Store(home)) as store:
        exchanges = [(m.role, m.text) for m in store.chats.messages(store.chats.all()[0].id)]
    fresh = tmp_path / "fresh"
    with open_session(home=fresh, **how) as s:
        chat, parent = s.workflows.chats.start([str(document)]).id, None
        for role, text in exchanges[:4]:
            parent = s.store.chats.append(chat, parent, role, text).id
        anew = last(s.run(s.workflows.chats.ask(chat, questions[2])))
    assert anew["tokens"]["reused"] == 0
    assert (anew["answer"], anew["tokens"]["prompt"]) == (answers[2]["answer"], answers[2]["tokens"]["prompt"])


def test_pages_that_an_adapter_computed_are_of_no_use_to_others(open_session, document, adapter, tiny_model, tmp_path):
    other = save_adapter(tmp_path / "other", tiny_model, seed=9)
    with open_session() as s:
        chat = s.workflows.chats.start([str(document)]).id
        first = last(s.run(s.workflows.chats.ask(chat, "How long is river 7?")))
    reused = list[int]()
    for setting in ("none", str(other), str(adapter)):
        with open_session(adapter=setting) as s:
            reused.append(last(s.run(s.workflows.chats.ask(chat, "And river 9?")))["tokens"]["reused"])
            s.store.chats.select(s.store.chats.message(first["message"]))  # and forget what was said since
    assert reused[0] // PAGE == reused[1] // PAGE < reused[2] // PAGE


def test_several_answers_and_beams_are_computed_with_the_adapter(open_session, document):
    with open_session(temperature=0.8, n=2, seed=3) as s:
        assert last(s.stream("How long is river 7?", [str(document)]))["adapter"] == "made"
    with open_session(beams=2) as s:
        assert last(s.stream("How long is river 7?", [str(document)]))["adapter"] == "made"


def test_passages_are_ranked_by_the_model_itself_and_answered_with_the_adapter(open_session, document):
    with open_session(adapter="none", mode="retrieve") as s:
        plain = last(s.stream("How long is river 7?", [str(document)]))
    with open_session(mode="retrieve") as s:
        adapted = last(s.stream("How long is river 7?", [str(document)]))
        again = last(s.stream("How long is river 7?", [str(document)]))
        unkept = last(s.stream("How long is river 7?", [str(document)], persist=False))
    likelihoods = [[p["likelihood"] for p in report["passages"]] for report in (plain, adapted, again, unkept)]
    for found in likelihoods:
        assert found == pytest.approx(likelihoods[0], abs=1e-3)
    assert plain["answer"] != adapted["answer"] == again["answer"] == unkept["answer"]
    assert adapted["ranking"]["reused"] >= adapted["ranking"]["tokens"] - 100 * adapted["ranking"]["passages"]
