"""Several documents in one prompt: what was read of one is reused, whichever order they are named in."""

import json
from pathlib import Path

import pytest
from ask_in_process import session

from localctx.engine.blending import DEFAULT_BLENDING
from localctx.engine.events import Done, Planned, Token
from localctx.engine.prompt import make_prompt
from localctx.shape import PAGE

pytestmark = pytest.mark.slow

QUESTION = "Which lake is the deepest?"


@pytest.fixture
def lakes(tmp_path) -> list[Path]:
    """Three texts of 500 to 900 characters, which are as many tokens."""
    found = []
    for name, count in (("north", 20), ("south", 26), ("east", 14)):
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"Lake {i} of the {name} is {i * 37} m deep.\n" for i in range(count)))
        found.append(path)
    return found


@pytest.fixture
def opened(home, sharp_model):
    return lambda **settings: session(home, sharp_model, **{"max_tokens": 12, **settings})


def ask(s, *files: Path, question: str = QUESTION):
    """(plan, token ids, report) of a question."""
    events = list(s.stream(question, [str(f) for f in files]))
    assert isinstance(events[-1], Done)
    plan = next(e for e in events if isinstance(e, Planned))
    return plan, [e.id for e in events if isinstance(e, Token)], events[-1].report


def pages_of(*files: Path) -> int:
    """The characters, which are tokens, of whole pages that texts fill together."""
    return sum(len(file.read_text()) for file in files) // PAGE * PAGE


def read(s, *files: Path) -> None:
    for file in files:
        list(s.prepare(str(file)))


def test_the_first_of_two_documents_reuses_what_was_read_of_it_alone(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        read(s, north)
        plan, _, report = ask(s, north, south)
    assert report.tokens.reused == plan.reused >= pages_of(north)


def test_the_document_that_was_read_comes_first_and_the_plan_says_so(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        read(s, south)
        plan, _, report = ask(s, north, south)
    assert report.tokens.reused >= pages_of(south)
    assert "south.txt comes first, because it was read before" in plan.reason
    assert plan.unusual, "so that a terminal shows it"


def test_what_was_read_alone_and_stands_behind_is_read_again_and_the_plan_says_why(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        read(s, north, south)
        plan, _, _ = ask(s, north, south)
    assert plan.reused >= pages_of(south), "the longer one comes first"
    assert "read again after south.txt, because what is read depends on what stands before it: north.txt" in plan.reason


def test_the_order_stays_once_both_were_read_together(opened, lakes):
    north, south, east = lakes
    with opened() as s:
        read(s, north)
        first, _, _ = ask(s, south, north)
        again, _, report = ask(s, north, south, question="And which is deeper?")
        with_third, _, _ = ask(s, east, south, north)
    assert again.reused == report.tokens.reused > first.reused
    assert again.reused >= pages_of(north, south)
    assert with_third.reused >= pages_of(north, south)


def test_nothing_kept_leaves_the_order_as_it_was_given(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        plan, _, _ = ask(s, south, north)
        again, _, _ = ask(s, south, north)
    assert (plan.reused, plan.unusual) == (0, False)
    assert again.reused > 1000
    assert "comes first" not in again.reason


def test_an_answer_from_reused_pages_is_that_of_a_cold_reading(opened, lakes, tmp_path, sharp_model):
    north, south, _ = lakes
    with opened() as s:
        read(s, north)
        plan, warm, _ = ask(s, south, north)
    with session(tmp_path / "cold", sharp_model, max_tokens=12) as s:
        cold_plan, cold, _ = ask(s, north, south)
    assert plan.reused > 0 == cold_plan.reused
    assert warm == cold


def test_citations_name_the_document_that_has_the_words(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        read(s, south)
        _, _, report = ask(s, north, south)
    texts = {"north.txt": north.read_text(), "south.txt": south.read_text()}
    assert report.citations
    assert all(texts[c["name"]][c["start"] : c["end"]] == c["quote"] for c in report.citations)


def test_a_chat_keeps_the_order_it_began_with(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        read(s, south)
        chat = s.workflows.chats.start([str(north), str(south)]).id
        *_, first = s.run(s.workflows.chats.ask(chat, QUESTION))
        assert [d.name for d in s.store.chats.get(chat).documents] == ["south.txt", "north.txt"]
        read(s, north)  # more of it is kept now
        *_, second = s.run(s.workflows.chats.ask(chat, "And why?"))
    assert first.report.tokens.reused >= pages_of(south)
    assert second.report.tokens.reused >= first.report.tokens.prompt - len(QUESTION) - 200


def test_a_document_added_to_a_chat_is_read_after_what_was_read(opened, lakes):
    north, south, _ = lakes
    with opened() as s:
        chat = s.workflows.chats.start([str(north)]).id
        list(s.run(s.workflows.chats.ask(chat, QUESTION)))
        s.workflows.chats.add_documents(chat, [str(south)])
        *_, done = s.run(s.workflows.chats.ask(chat, "And now?"))
    assert done.report.tokens.reused >= pages_of(north)


def test_pages_of_both_are_put_together_where_that_was_measured_to_be_good(opened, lakes):
    north, south, east = lakes
    with opened(blend="auto") as s:
        read(s, north, south, east)
        plain, _, _ = ask(s, north, east)
        key = DEFAULT_BLENDING.key(s.workflows.questions._builder.fingerprint)
        s.store.quality_results.note(key, s.settings.model, "int8", True, {})
        plan, _, report = ask(s, north, south)
    assert plain.reused < len(north.read_text())
    both = len(north.read_text()) + len(south.read_text())
    assert report.tokens.reused >= both - DEFAULT_BLENDING.recompute - PAGE
    assert plan.reused == pytest.approx(report.tokens.reused, abs=PAGE)
    assert report.tokens.reused + report.tokens.prefilled == report.tokens.prompt
    assert "what was read of each document alone is put together" in plan.reason


def test_the_command_reuses_a_document_named_second(run, lakes, sharp_model):
    north, south, _ = lakes
    own = ["--model", sharp_model, "--max-tokens", 4]
    run("prepare", south, *own[:2])
    done = run("ask", north, south, QUESTION, *own, "--json")
    assert json.loads(done.stdout)["tokens"]["reused"] >= pages_of(south)


def test_where_each_document_ends_is_the_end_of_the_prompt_of_those_before(opened, lakes):
    texts = [path.read_text() for path in lakes]
    with opened() as s:
        builder = s.workflows.questions._builder
        documents = [s.workflows.read(str(path)) for path in lakes]
        request = builder.build(documents, texts, QUESTION, persist=False)
        request.cache.drop()
        one = make_prompt(s.model.tokenizer, texts[:1], QUESTION)
    assert request.prompt.tokens[: request.prompt.document_ends[0]] == one.tokens[: request.prompt.document_ends[0]]
    assert list(request.prompt.document_ends) == sorted(request.prompt.document_ends)
    assert 0 < request.prompt.document_ends[-1] < request.prompt.boundary
