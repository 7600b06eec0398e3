"""Answers that are computed over a table: right whatever the model is, with the query and the rows; else said."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from ask_in_process import session

from localctx.engine.events import Done, Note, Planned
from localctx.workflows.answer.computed_answer import NOT_COMPUTED


@pytest.fixture
def open_session(home, sharp_model) -> Callable:
    return lambda **settings: session(home, sharp_model, **{"max_tokens": 8, **settings})


@pytest.fixture
def rents(tmp_path) -> Path:
    """A table of 300 tenants."""
    path = tmp_path / "rents.csv"
    rows = (f"{4000 + i},Tenant {i},{10 + i * 37 % 90},{100 + i * 53 % 700}" for i in range(300))
    path.write_text("contract,tenant,square_metres,rent_crowns\n" + "\n".join(rows))
    return path


def asked(opened, question: str, *files: Path, **how) -> tuple[list, dict]:
    """The events of a question, and its report as JSON."""
    events = list(opened.stream(question, [str(file) for file in files], **how))
    assert isinstance(events[-1], Done)
    return events, json.loads(json.dumps(events[-1].report.to_json()))


def test_a_sum_is_computed_and_shown_with_its_query_and_rows(open_session, rents):
    with open_session() as opened:
        events, report = asked(opened, "What is the total rent?", rents)
    total = sum(100 + i * 53 % 700 for i in range(300))
    assert report["answer"] == f"Total rent_crowns: {total:,} (all 300 rows)."
    assert report["query"] == 'SELECT SUM("rent_crowns") FROM t'
    assert (report["mode"], report["stopped"]) == ("table", "eos")
    assert [c["page"] for c in report["citations"]] == [f"row {number}" for number in range(2, 12)]
    assert report["citations"][0]["quote"] == "contract: 4000; tenant: Tenant 0; square_metres: 10; rent_crowns: 100"
    assert [e.mode for e in events if isinstance(e, Planned)] == ["table"]


def test_the_model_chooses_among_the_queries_that_may_be_meant(open_session, rents):
    with open_session() as opened:
        _, report = asked(opened, "Which tenant is the largest?", rents)
    best = {
        'SELECT "tenant", "square_metres" FROM t ORDER BY "square_metres" DESC LIMIT 1',
        'SELECT "tenant", "rent_crowns" FROM t ORDER BY "rent_crowns" DESC LIMIT 1',
    }
    assert report["query"] in best
    assert 0 < len(report["citations"]) <= 10


def test_a_cell_that_the_question_names_is_looked_up(open_session, rents):
    with open_session() as opened:
        _, report = asked(opened, "What is the rent_crowns of Tenant 7?", rents)
    assert report["answer"] == "rent_crowns: 471."
    assert (report["mode"], report["stopped"], report["tokens"]["prefilled"]) == ("table", "eos", 0)
    assert [c["quote"] for c in report["citations"]] == [
        "contract: 4007; tenant: Tenant 7; square_metres: 89; rent_crowns: 471"
    ]


def test_nothing_that_matches_is_said(open_session, rents):
    with open_session() as opened:
        _, report = asked(opened, "How many tenants pay a rent over 2000?", rents)
    assert report["answer"].startswith("No row of the table matches (0 of 300 rows).")
    assert (report["stopped"], report["citations"]) == ("unanswered", [])


@pytest.mark.parametrize(
    ("question", "word"),
    [("How many tenants are behind with their rent?", "behind"), ("Who is the best tenant?", "best")],
)
def test_a_question_with_a_word_that_is_not_used_is_said_not_to_be_computed(open_session, rents, question, word):
    with open_session() as opened:
        _, report = asked(opened, question, rents)
    assert report["answer"] == (
        f"I did not compute this, because I could not relate “{word}” to the table. "
        "Its columns are: contract, tenant, square_metres, rent_crowns."
    )
    assert (report["mode"], report["stopped"], report["citations"]) == ("table", "unanswered", [])


def test_a_question_that_is_not_computed_is_put_to_the_other_documents(open_session, rents, tmp_path):
    lease = tmp_path / "lease.txt"
    lease.write_text("The tenant must pay for small repairs up to a maximum amount of 120 crowns.")
    with open_session() as opened:
        _, report = asked(opened, "What is the maximum amount the tenant must pay for repairs?", rents, lease)
    assert report["mode"] != "table"
    assert "I did not compute this" not in report["answer"]


@pytest.mark.slow
def test_a_question_about_one_row_is_answered_from_passages(open_session, rents):
    with open_session() as opened:
        _, report = asked(opened, "What is the best thing that Tenant 7 has?", rents)
    assert report["mode"] != "table"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "settings"),
    [("What is the total rent?", {"mode": "retrieve"}), ("What rent does Tenant 7 pay?", {})],
)
def test_other_questions_and_modes_are_answered_as_before(open_session, rents, question, settings):
    with open_session(**settings) as opened:
        _, report = asked(opened, question, rents)
    assert report["mode"] != "table"
    assert "query" not in report


@pytest.mark.slow
def test_rows_of_several_tables_are_said_not_to_be_computed(open_session, rents, tmp_path):
    other = tmp_path / "older.csv"
    other.write_text(rents.read_text().replace("Tenant", "Guest"))
    with open_session() as opened:
        events, report = asked(opened, "What is the total rent of all tenants?", rents, other)
    assert report["mode"] != "table"
    assert (NOT_COMPUTED in [e.text for e in events if isinstance(e, Note)]) == (report["mode"] == "retrieve")


def test_a_chat_computes_and_keeps_the_query(open_session, rents):
    with open_session() as opened:
        chats = opened.workflows.chats
        chat = chats.start([str(rents)]).id
        *_, done = opened.run(chats.ask(chat, "What is the average rent?"))
        (_, answer) = opened.store.chats.messages(chat)
    assert done.report.query == 'SELECT AVG("rent_crowns") FROM t'
    assert (answer.text, answer.stats["query"]) == (done.report.answer, done.report.query)
    assert answer.stats["rows"] == 300
