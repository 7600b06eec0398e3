"""Documents that are made ready before a question: what is read then, what it saves, and what is said of it."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from ask_in_process import session
from tiny_adapters import save_adapter

from localctx.engine.events import Done, Planned, Progress
from localctx.engine.prompt_wording import NOT_SAID
from localctx.engine.runtime import Runtime
from localctx.errors import Cancelled, TooLong
from localctx.workflows.ahead import model_questions, readiness
from localctx.workflows.ahead.model_questions import parse_questions, rule_questions
from localctx.workflows.ahead.readiness import Readiness
from localctx.workflows.ahead.suggested_questions import Candidates

pytestmark = pytest.mark.slow

PLACES = ("journey", "letter", "wedding", "harvest")


@pytest.fixture
def opened(home, sharp_model):
    return lambda **settings: session(home, sharp_model, **{"max_tokens": 12, **settings})


@pytest.fixture
def long_text(tmp_path) -> Path:
    path = tmp_path / "long.txt"
    path.write_text("".join(f"Bridge {i} crosses the river at mile {i * 3}.\n" for i in range(150)))
    return path


def make_ready(s, *files: Path, until: str = "") -> tuple[list, Readiness]:
    ids = s.workflows.store([str(file) for file in files])
    events = []
    run = s.run(s.workflows.readiness.make_ready(ids, until))
    while True:
        try:
            events.append(next(run))
        except StopIteration as end:
            return events, end.value


def test_a_question_starts_where_the_reading_ended(opened, document):
    with opened() as s:
        events, ready = make_ready(s, document)
        *_, done = s.stream("How long is river 7?", [str(document)])
    assert isinstance(done, Done)
    assert ready.whole
    assert ready.read > 0
    assert [e for e in events if isinstance(e, Progress)]
    assert done.report.tokens.reused >= 640


def test_what_was_read_before_is_not_read_again_and_still_said_to_be_saved(opened, document):
    with opened() as s:
        _, first = make_ready(s, document)
        _, again = make_ready(s, document)
    assert again.read == 0 < first.read
    assert again.saved is not None
    assert again.saved > 0
    assert 0 < again.starts < 60


def test_figures_are_those_of_the_plan_at_the_measured_rate(opened, document):
    with opened() as s:
        make_ready(s, document)
        s.store.caches.note_rate(s.workflows.questions._builder.fingerprint, 100.0)
        _, ready = make_ready(s, document)
        plan = next(e for e in s.stream("How long is river 7, and why?", [str(document)]) if isinstance(e, Planned))
    assert ready.saved == pytest.approx(plan.reused / 100)
    assert ready.starts > 0.3, "the question's own tokens are read at that rate"


def test_before_anything_was_measured_no_figure_is_claimed(opened, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("The ferry sails at noon.")  # too short to measure by
    with opened() as s:
        _, ready = make_ready(s, short)
    assert (ready.whole, ready.starts, ready.saved) == (True, None, None)


def test_what_is_answered_from_passages_is_made_searchable_and_that_is_said(opened, long_text):
    with opened() as s:
        events, ready = make_ready(s, long_text)
        assert (ready.whole, ready.starts, ready.saved, ready.read) == (False, None, None, 0.0)
        assert s.store.index.of_document(s.store.documents.find("long.txt").id)
        chat = s.workflows.chats.start([str(long_text)]).id
        *_, done = s.run(s.workflows.chats.ask(chat, "Where does bridge 7 cross the river?"))
        _, later = make_ready(s, long_text)
    assert not [e for e in events if isinstance(e, Planned)]
    assert later.starts == pytest.approx(done.report.seconds["first_token"], abs=0.1), "it was measured meanwhile"


def test_a_document_that_must_be_read_whole_and_does_not_fit_is_refused(opened, long_text):
    with opened(mode="full") as s, pytest.raises(TooLong):
        make_ready(s, long_text)


def test_several_are_read_together_in_the_order_a_question_reads_them(opened, document, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("".join(f"Hill {i} is {i * 11} m high.\n" for i in range(20)))
    with opened() as s:
        make_ready(s, other)
        _, ready = make_ready(s, document, other)
        *_, done = s.stream("Which is the highest hill?", [str(document), str(other)])
    assert ready.whole
    assert done.report.tokens.reused >= 1024


def test_documents_that_are_alike_are_read_one_by_one_as_a_plain_question_reads_them(opened, tmp_path):
    files = [tmp_path / f"lease-{name}.txt" for name in "ab"]
    for file, rent in zip(files, (940, 880), strict=True):
        clauses = (f"Clause {i}. The tenant pays the landlord a rent of {rent + i} euros.\n" for i in range(20))
        file.write_text("".join(clauses))
    with opened() as s:
        events, ready = make_ready(s, *files)
        *_, done = s.stream("What is the rent?", list(map(str, files)))
    assert ready.whole
    assert done.report.mode == "compared"
    assert done.report.tokens.prefilled < done.report.tokens.prompt / 4
    shares = [event.done / event.total for event in events if isinstance(event, Progress) and event.total]
    assert shares == sorted(shares)
    assert max(shares) == 1


def test_only_what_comes_before_a_mark_is_read(opened, document):
    with opened() as s:
        _, ready = make_ready(s, document, until="50%")
        *_, done = s.stream("How long is river 7?", [str(document)], until="50%")
    assert ready.whole
    assert 250 < done.report.tokens.reused < 400


def test_a_reading_that_is_cancelled_keeps_its_pages(opened, long_text, home):
    with opened(rope="yarn:2", max_tokens=4) as s:
        ids = s.workflows.store([str(long_text)])
        run, heard = s.run(s.workflows.readiness.make_ready(ids)), 0

        def cancel_after_four() -> None:
            nonlocal heard
            for event in run:
                heard += isinstance(event, Progress)
                if heard == 4:
                    s.cancel()

        with pytest.raises(Cancelled):
            cancel_after_four()
        make_ready(s, long_text)
        assert s.store.caches.of_document(ids[0])[0].kept > 0


def test_a_model_that_is_able_to_suggests_questions_once(opened, document, monkeypatch):
    said = []

    def generate(builder, ask, document, whole):
        said.append(whole)
        yield from ()
        return "1. How long is river 7?\nNo question.\n- Which river is the longest?\n"

    monkeypatch.setattr(model_questions, "SMALL_MODEL", 1)
    monkeypatch.setattr(model_questions, "_generate", generate)
    with opened() as s:
        _, ready = make_ready(s, document)
        _, again = make_ready(s, document)
    assert ready.questions[:2] == ("How long is river 7?", "Which river is the longest?")
    assert again.questions == ready.questions
    assert said == [True]


def test_a_model_really_writes_what_questions_are_taken_from(opened, document, monkeypatch):
    monkeypatch.setattr(model_questions, "SMALL_MODEL", 1)
    with opened() as s:
        _, ready = make_ready(s, document)
        row = s.store.documents.find("rivers.txt")
        rules = rule_questions([s.workflows.read(str(document))])
    assert row.id
    assert list(ready.questions) == rules, "letters of a random model are no questions: rules fill up"


def found(s, document: Path, until: str = "") -> list[tuple[str, ...]]:
    """What is suggested about ``document`` once it is ready."""
    (stored,) = s.workflows.store([str(document)])
    _, ready = make_ready(s, document)
    made = s.workflows.readiness.candidates([stored], until)
    return [e.questions for e in s.run(s.workflows.readiness.suggest_found([stored], ready, made, until))]


@pytest.fixture(scope="module")
def reader(tmp_path_factory, tiny_model) -> Path:
    return save_adapter(tmp_path_factory.mktemp("adapters") / "reader", tiny_model)


@pytest.mark.parametrize(("threshold", "suggests"), [(0.0, True), (1.0, False)])
def test_with_a_reader_only_what_it_finds_is_suggested(
    home, tiny_model, document, reader, threshold, suggests, monkeypatch
):
    rated = {"weights": [0.0] * 6, "bias": 0.0, "threshold": threshold}
    told = {"form": "Question: {question}", "not_said": NOT_SAID, "confidence": {"free": rated, "quote": rated}}
    (reader / "reader.json").write_text(json.dumps(told))
    how = {"adapter": str(reader), "careful": "auto", "answers": "quote", "max_tokens": 12, "dtype": "f32"}
    words = "Millers Bakers Sailors Farmers Weavers"  # whatever a random model quotes has a meaning
    document.write_text("".join(f"## {word}\n\nWorking {word} {words.lower()}.\n\n" for word in words.split()))
    monkeypatch.setattr(readiness, "rule_questions", lambda documents, count: ["What does it say about bakers?"])
    with session(home, tiny_model, **how) as s:
        (stored,) = s.workflows.store([str(document)])
        assert s.workflows.readiness.candidates([stored]).tried
        assert bool(found(s, document)) == suggests


def test_without_a_reader_the_rules_are_believed(opened, tmp_path):
    mill = tmp_path / "mill.txt"
    mill.write_text("The mill of Port Marigold was built in 1893. It stands by the river. " * 4)
    with opened() as s:
        (stored,) = s.workflows.store([str(mill)])
        made = s.workflows.readiness.candidates([stored])
        assert made == Candidates(("When was the mill of Port Marigold built?",))
        assert found(s, mill) == [made.questions]


def test_nothing_is_tried_where_an_answer_starts_late(opened, document, monkeypatch):
    monkeypatch.setattr(readiness, "rates_answers", lambda settings: True)
    monkeypatch.setattr(Runtime, "adapter", SimpleNamespace(recipe=("",)))
    with opened() as s:
        (stored,) = s.workflows.store([str(document)])
        late = Readiness(True, starts=readiness.MAX_SECONDS + 1)
        made = Candidates(("What does it say about rivers?",), s.workflows.readiness.candidates([stored]).tried)
        assert made.tried
        assert list(s.workflows.readiness.suggest_found([stored], late, made)) == []


def test_a_small_model_suggests_nothing(opened, document):
    with opened() as s:
        assert make_ready(s, document)[1].questions == ()


def test_no_question_is_suggested_from_behind_the_mark(opened, tmp_path):
    story = tmp_path / "story.md"
    parts = [f"## The {name}\n\n{'It rains on the roof of the house and on the road. ' * 6}\n" for name in PLACES]
    story.write_text("\n".join(parts))
    with opened() as s:
        ids = s.workflows.store([str(story)])
        asked = s.workflows.readiness.suggest(ids)
        early = s.workflows.readiness.suggest(ids, "45%")
    assert any("harvest" in question for question in asked)
    assert early
    assert not any("harvest" in question or "wedding" in question for question in early)


@pytest.mark.parametrize(
    ("text", "questions"),
    [
        ("1. Who pays the rent?\n2) When is it due?\n", ["Who pays the rent?", "When is it due?"]),
        ("**Question 1:** Who pays the rent?", ["Who pays the rent?"]),
        ("Here are three questions:\n- Who pays?\n", []),  # too short to be about anything
        ("Who pays the rent?\nWho pays the rent?", ["Who pays the rent?"]),
        ("x" * 200 + "?", []),
        ("", []),
    ],
)
def test_questions_are_taken_from_the_lines_of_what_a_model_wrote(text, questions):
    assert parse_questions(text) == questions
