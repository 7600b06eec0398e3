"""Asking everywhere: every passage is asked as it would be alone, once; what was said is grouped, counted and cited."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from ask_in_process import session
from tiny_adapters import save_adapter

from localctx.cli.printing import visible
from localctx.engine.events import Done, Note, PassageAnswered, Planned, Progress, Token
from localctx.engine.prompt_wording import ASK, NOT_SAID
from localctx.errors import Cancelled, NothingFound
from localctx.library.read_document import read_document
from localctx.store.passage_answers import PassageAnswers
from localctx.store.store import Store
from localctx.workflows.answer import everywhere, passage_question, question_likelihood
from localctx.workflows.answer.every_passage import MAY_ASK_ABOUT_WHOLE

pytestmark = pytest.mark.slow

QUESTION = "How long is the river?"
NAMES = ("Avon", "Brue", "Cam", "Dee", "Esk", "Quell", "Frome", "Goyt", "Hull", "Irk", "Kent", "Lea")


@pytest.fixture
def lands(tmp_path) -> Path:
    """A text of twelve passages, some 200 characters each."""
    paragraphs = [
        f"The river {name} rises in county {i} among hills of slate, and it is {i * 37 + 11} km long in all. Its banks "
        f"are lined with alder and willow, and every spring of year {1900 + i} it floods the meadows by the mill."
        for i, name in enumerate(NAMES)
    ]
    path = tmp_path / "lands.txt"
    path.write_text("\n\n".join(paragraphs))
    return path


@pytest.fixture
def open_session(home, sharp_model) -> Callable:
    return lambda **settings: session(home, sharp_model, **{"mode": "everywhere", "max_tokens": 6, **settings})


def heard(events) -> tuple[list, dict]:
    """The events of one question, and its report as JSON."""
    events = list(events)
    assert isinstance(events[-1], Done)
    return events, events[-1].report.to_json()


def kinds(events, kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def test_every_passage_is_asked_and_cited_in_order(open_session, lands):
    with open_session() as s:
        events, report = heard(s.stream(QUESTION, [str(lands)]))
    text, found = lands.read_text(), report["everywhere"]
    assert (report["mode"], report["stopped"], found["passages"], found["asked"]) == ("everywhere", "eos", 12, 12)
    starts = [c["start"] for c in report["citations"]]
    assert starts == sorted(starts)
    assert all(text[c["start"] : c["end"]] == c["quote"] for c in report["citations"])
    counted = sorted(i for group in found["groups"] for i in group["citations"])
    assert counted == list(range(len(report["citations"])))
    assert all(group["count"] == len(group["citations"]) for group in found["groups"])
    assert "".join(e.text for e in kinds(events, Token)) == report["answer"]
    assert f"{len(starts)} of 12 passages answer this" in report["answer"]
    assert all(" ".join(group["answer"].split()) in report["answer"] for group in found["groups"])
    assert found["tokens"]["prompt"] == found["tokens"]["reused"] + found["tokens"]["prefilled"]
    assert report["tokens"]["generated"] == found["tokens"]["generated"] > 0


def test_side_by_side_passages_answer_as_each_alone(open_session, lands, monkeypatch):
    with open_session() as s:
        _, together = heard(s.stream(QUESTION, [str(lands)], persist=False))
        monkeypatch.setattr(everywhere, "MAX_SIDE_BY_SIDE", 1)
        _, alone = heard(s.stream(QUESTION, [str(lands)], persist=False))
    assert len({group["answer"] for group in together["everywhere"]["groups"]}) > 1
    assert together["everywhere"]["groups"] == alone["everywhere"]["groups"]
    assert together["citations"] == alone["citations"]


def test_events_come_as_passages_answer(open_session, lands):
    with open_session() as s:
        events, report = heard(s.stream(QUESTION, [str(lands)]))
    (plan,) = kinds(events, Planned)
    assert (plan.mode, plan.unusual) == ("everywhere", True)
    assert "every passage is asked: 12 passages" in plan.reason
    asked = [e for e in kinds(events, Progress) if e.phase == "asking passages"]
    assert [e.done for e in asked] == list(range(13))
    assert {(e.total, e.unit) for e in asked} == {(12, "passages")}
    answered = kinds(events, PassageAnswered)
    assert sorted(e.citation["start"] for e in answered) == [c["start"] for c in report["citations"]]
    assert events.index(answered[0]) < events.index(asked[-1]) < events.index(kinds(events, Token)[0])


def test_asked_again_nothing_is_read_and_another_question_reads_only_itself(open_session, lands):
    with open_session() as s:
        _, first = heard(s.stream(QUESTION, [str(lands)]))
        _, again = heard(s.stream(QUESTION, [str(lands)]))
    with open_session() as s:
        events, other = heard(s.stream("Who owns the mill?", [str(lands)]))
    assert again["answer"] == first["answer"]
    assert again["everywhere"]["reused_answers"] == 12
    assert again["everywhere"]["tokens"] == dict.fromkeys(("prompt", "reused", "prefilled", "generated"), 0)
    assert first["everywhere"]["tokens"]["reused"] == other["everywhere"]["reused_answers"] == 0
    tokens = other["everywhere"]["tokens"]
    suffix = len(ASK.format(s="", question="Who owns the mill?") + "</s>\n<s>assistant\n") + 8  # letters are tokens
    assert tokens["prefilled"] <= 12 * suffix
    (plan,) = kinds(events, Planned)
    assert abs(plan.reused - tokens["reused"]) <= 12
    assert plan.reused < plan.tokens <= tokens["prompt"], "the plan is for passages that do not answer"


def test_kept_pages_that_are_asked_count_as_used(open_session, lands):
    with open_session() as s:
        heard(s.stream(QUESTION, [str(lands)]))
        s.store.db.execute("UPDATE caches SET used = 1")
        _, report = heard(s.stream("Who owns the mill?", [str(lands)]))
        used = [row["used"] for row in s.store.db["caches"].rows]
    assert report["everywhere"]["tokens"]["reused"] > 0
    assert len(used) == 12
    assert min(used) > 1, "or a small disk would evict what was just asked"


def test_pages_are_those_of_retrieval(open_session, lands):
    with open_session() as s:
        heard(s.stream(QUESTION, [str(lands)]))
    with open_session(mode="retrieve") as s:
        ranking = heard(s.stream("Who owns the mill?", [str(lands)]))[1]["ranking"]
    assert ranking["reused"] > 0.8 * ranking["tokens"]


def test_stopped_in_the_middle_it_goes_on(open_session, lands, monkeypatch):
    monkeypatch.setattr(everywhere, "MAX_SIDE_BY_SIDE", 2)
    with open_session() as s:
        _, whole = heard(s.stream(QUESTION, [str(lands)], persist=False))
        events = s.stream(QUESTION, [str(lands)])
        next(e for e in events if isinstance(e, Progress) and e.phase == "asking passages" and e.done == 5)
        events.close()  # as when the process ends
        events = s.stream("Who?", [str(lands)])
        next(e for e in events if isinstance(e, Progress) and e.phase == "asking passages" and e.done == 5)
        s.cancel()
        _, cancelled = heard(events)
    with open_session() as s:
        _, resumed = heard(s.stream(QUESTION, [str(lands)]))
    assert 5 <= resumed["everywhere"]["reused_answers"] <= 6
    assert resumed["answer"] == whole["answer"]
    assert cancelled["stopped"] == "cancelled"
    assert 5 <= cancelled["everywhere"]["asked"] <= 6
    assert f"Stopped after {cancelled['everywhere']['asked']} of 12 passages." in cancelled["answer"]


def test_killed_it_has_lost_no_answer_that_was_saved(open_session, lands, monkeypatch):
    monkeypatch.setattr(everywhere, "MAX_SIDE_BY_SIDE", 1)
    monkeypatch.setattr(everywhere, "SAVE_EVERY", 0.0)
    with open_session() as s:
        events = s.stream(QUESTION, [str(lands)])
        next(e for e in events if isinstance(e, Progress) and e.phase == "asking passages" and e.done == 7)
        monkeypatch.setattr(everywhere._PassageLoop, "_save", lambda self: None)  # a killed process saves nothing
        events.close()
    monkeypatch.undo()
    with open_session() as s:
        assert heard(s.stream(QUESTION, [str(lands)]))[1]["everywhere"]["reused_answers"] == 7


def test_a_store_that_is_full_costs_no_answer(open_session, lands, monkeypatch):
    def put(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(PassageAnswers, "put", put)
    with open_session() as s:
        events, report = heard(s.stream(QUESTION, [str(lands)]))
    assert (report["everywhere"]["asked"], report["stopped"]) == (12, "eos")
    (note,) = [n.text for n in kinds(events, Note) if "disk is full" in n.text]
    assert "free some disk space" in note


def test_without_keeping_nothing_is_left(open_session, lands, home):
    with open_session() as s:
        _, report = heard(s.stream(QUESTION, [str(lands)], persist=False))
    assert report["everywhere"]["asked"] == 12
    assert not Store.is_at(home)


def test_answers_go_with_the_document(open_session, lands, home):
    with open_session() as s:
        heard(s.stream(QUESTION, [str(lands)]))
        s.store.remove_document(s.store.documents.find("lands.txt").id)
        assert s.store.db.table("passage_answers").count == s.store.db.table("pages").count == 0


def test_the_whole_library_is_asked(open_session, lands, document, home):
    with closing(Store(home)) as store:
        for path in (lands, document):
            d = read_document(str(path))
            store.documents.add(d.row, d.text, d.spans)
    with open_session() as s:
        _, report = heard(s.stream(QUESTION, [], library=True))
    assert {c["name"] for c in report["citations"]} == {"lands.txt", "rivers.txt"}
    assert report["everywhere"]["passages"] > 12
    assert "rivers.txt, " in report["answer"]


def test_up_to_a_mark_only_what_comes_before_is_asked(open_session, lands):
    end = lands.read_text().index("Quell")
    with open_session() as s:
        _, report = heard(s.stream(QUESTION, [str(lands)], until="river Quell"))
    assert report["everywhere"]["passages"] == 6
    assert all(c["end"] <= end + len("Quell") for c in report["citations"])
    assert report["until"]["characters"] <= end + len("Quell")


def test_an_empty_library_is_told(open_session, home):
    Store(home).close()
    with open_session() as s, pytest.raises(NothingFound, match="no text to answer from"):
        heard(s.stream(QUESTION, [], library=True))


def test_passages_that_say_nothing_are_dropped(open_session, lands, monkeypatch):
    with open_session(careful="auto") as s:  # random models find no question likelier after any passage
        events, report = heard(s.stream("Whose cat sleeps?", [str(lands)]))
    assert report["stopped"] == "unanswered"
    assert report["answer"] == "None of the 12 passages answers this question."
    assert (report["citations"], report["everywhere"]["groups"]) == ([], [])
    monkeypatch.setattr(question_likelihood, "MIN_GAIN", -1e9)
    with open_session(careful="auto") as s:
        _, stored = heard(s.stream("Whose cat sleeps?", [str(lands)]))
        events, report = heard(s.stream("Whose dog sleeps?", [str(lands)]))
    assert stored["everywhere"]["reused_answers"] == 12, "that nothing was said is stored, too"
    assert len(kinds(events, PassageAnswered)) == len(report["citations"]) > 0


def test_a_passage_with_most_of_the_questions_words_may_answer(open_session, lands):
    with open_session(careful="auto") as s:
        _, report = heard(s.stream("List every word on the river Quell and county 5.", [str(lands)]))
    (citation,) = report["citations"]
    assert "Quell" in lands.read_text()[citation["start"] - 120 : citation["end"] + 220]


def test_a_question_about_everything_is_offered_it_with_its_cost(open_session, lands):
    with open_session(mode="retrieve") as s:
        notes = [n.text for n in kinds(s.stream("How many rivers are there?", [str(lands)]), Note)]
    (note,) = [n for n in notes if n.startswith(MAY_ASK_ABOUT_WHOLE)]
    assert ": --mode everywhere asks each of 12 passages, " in note
    assert "tokens to read" in note


def test_the_command_prints_the_report_and_json(run, sharp_model, lands):
    ask = ["ask", lands, QUESTION, "--model", sharp_model, "--mode", "everywhere", "--max-tokens", 6]
    plain, as_json = run(*ask), run(*ask, "--json")
    report = json.loads(as_json.stdout)
    assert plain.stdout.strip() == visible(report["answer"]).strip()
    assert report["everywhere"]["reused_answers"] == 12
    assert {"groups", "passages", "asked", "tokens", "seconds", "persist"} <= set(report["everywhere"])


def test_a_chat_asks_everywhere_too(open_session, lands):
    with open_session() as s:
        chat = s.chat(s.workflows.chats.start([str(lands)]).id)
        answer = chat.ask(QUESTION)
        assert answer.mode == "everywhere"
        assert chat.messages[-1].text == answer.text
        assert chat.messages[-1].stats["mode"] == "everywhere"
        assert [g.count for g in answer.groups]
        assert chat.ask(QUESTION).text == answer.text


def test_cancelled_before_it_began_it_raises(open_session, lands):
    with open_session() as s:
        s.ask(QUESTION, [str(lands)])
        events = s.stream("Who?", [str(lands)])
        next(e for e in events if isinstance(e, Planned))
        s.cancel()
        _, report = heard(events)
        assert (report["stopped"], report["everywhere"]["asked"]) == ("cancelled", 0)
        with pytest.raises(Cancelled):
            s.runtime.check_cancelled()


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, sharp_model):
    return save_adapter(tmp_path_factory.mktemp("adapters") / "reader", sharp_model)


def write_reader(adapter, **more) -> None:
    (adapter / "reader.json").write_text(json.dumps({"form": "Question: {question}", "not_said": NOT_SAID, **more}))


@pytest.mark.parametrize("changed", [{"form": "Question: {question} Say it briefly."}, {"not_said": "Nothing."}])
def test_an_answer_depends_on_what_the_adapters_file_says(open_session, lands, adapter, changed):
    write_reader(adapter)
    with open_session(adapter=str(adapter)) as s:
        heard(s.stream(QUESTION, [str(lands)]))
    write_reader(adapter, **changed)
    with open_session(adapter=str(adapter)) as s:
        _, report = heard(s.stream(QUESTION, [str(lands)]))
    assert report["everywhere"]["reused_answers"] == 0


@pytest.mark.parametrize("answers", ["free", "quote"])
@pytest.mark.parametrize("adapted", [True, False])
def test_passages_answer_the_same_whether_they_are_read_now_or_kept(
    open_session, lands, adapter, answers, adapted, monkeypatch
):
    how = {"adapter": str(adapter) if adapted else "none", "answers": answers, "dtype": "f32", "kv": "f32"}
    with open_session(**how) as s:
        _, now = heard(s.stream(QUESTION, [str(lands)]))
        monkeypatch.setattr(passage_question, "RECIPE", "everywhere of another version")
        _, kept = heard(s.stream(QUESTION, [str(lands)]))
    assert (now["tokens"]["reused"], kept["everywhere"]["reused_answers"]) == (0, 0)
    assert kept["tokens"]["reused"] > 0
    assert kept["everywhere"]["groups"] == now["everywhere"]["groups"] != []


@pytest.mark.parametrize("answers", ["free", "quote"])
def test_an_adapter_answers_where_it_does_not_say_that_nothing_does(open_session, lands, adapter, answers):
    how = {"adapter": str(adapter), "careful": "auto", "answers": answers, "dtype": "f32"}
    write_reader(adapter)
    with open_session(dtype="f32") as s:
        heard(s.stream(QUESTION, [str(lands)]))
    with open_session(**how) as s:
        _, report = heard(s.stream(QUESTION, [str(lands)]))
    assert report["adapter"] == adapter.name
    assert len(report["citations"]) > 6
    assert report["everywhere"]["reused_answers"] == 0, "the adapter is part of what an answer depends on"
    assert report["everywhere"]["tokens"]["reused"] > 12 * 128, "pages are the same with and without"
    if answers == "quote":
        quotes = [" ".join(c["quote"].split()) for c in report["citations"]]
        assert all(any(g["answer"] in quote for quote in quotes) for g in report["everywhere"]["groups"])


def test_passages_of_which_an_adapter_says_that_they_do_not_say_are_dropped(open_session, lands, adapter, monkeypatch):
    write_reader(adapter)
    monkeypatch.setattr(passage_question, "MIN_NOT_SAID", 1e-300)
    with open_session(adapter=str(adapter), careful="auto") as s:
        _, report = heard(s.stream(QUESTION, [str(lands)]))
    tokens = report["everywhere"]["tokens"]
    assert (report["stopped"], tokens["generated"]) == ("unanswered", 0)
    read_twice = 12 * len(NOT_SAID)  # letters are tokens
    assert tokens["prefilled"] > len(lands.read_text()) + read_twice
    assert tokens["prompt"] == tokens["reused"] + tokens["prefilled"]
