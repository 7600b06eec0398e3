"""Answers that compare documents: each is asked and cited, and a verdict is given only where it is safe."""

import json
from collections.abc import Callable

import pytest
from ask_in_process import session

from localctx.cli.ask import print_notes
from localctx.cli.terminal import Terminal
from localctx.engine.event_json import event_from_line, event_to_line
from localctx.engine.events import Planned, Progress, SentenceChecked, Token
from localctx.engine.run_request import emit_text
from localctx.library.citations.cite import cite_words
from localctx.results import answer_of
from localctx.workflows.answer import answer_strategies
from localctx.workflows.answer.ask import AskWorkflow

WHICH = "Which of the two leases has the lower rent?"
A = "A lease of a flat.\n\nThe tenant pays a rent of 950 euros a month.\n\nThe tenancy is fixed for 24 months.\n"
B = "Another lease.\n\nThe monthly rent is EUR 880.\n\nIt lasts 12 months, and the deposit is 1,760 euros.\n"
SAYS = {"a.txt": "950 euros a month", "b.txt": "EUR 880"}


@pytest.fixture
def open_session(home, sharp_model) -> Callable:
    return lambda **settings: session(home, sharp_model, **{"max_tokens": 8, **settings})


@pytest.fixture
def script(monkeypatch) -> Callable[[dict[str, str]], list[str]]:
    """Makes every document answer what is given for its name, and returns the questions that are asked."""
    asked: list[str] = []

    def says(answers: dict[str, str]) -> list[str]:
        def make_answer(case):
            request, (document,) = case.request, case.request.prompt.documents
            asked.append(case.question)
            answer = answers[document.name]
            yield from emit_text(request, answer)
            request.result.stopped = "eos" if answer else "unanswered"
            request.result.citations = cite_words(answer, case.question, [document]) if answer else []

        assert AskWorkflow.answer, "its module has the real one"
        monkeypatch.setattr(answer_strategies, "make_answer", make_answer)
        return asked

    return says


@pytest.fixture
def leases(tmp_path) -> Callable[..., list[str]]:
    """Writes texts as a.txt, b.txt and so on."""

    def write(*texts: str) -> list[str]:
        files = [tmp_path / f"{letter}.txt" for letter, _ in zip("abcdefg", texts, strict=False)]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        return [str(file) for file in files]

    return write


def report_of(opened, question: str, files: list[str], **how) -> dict:
    *_, done = opened.stream(question, files, **how)
    return json.loads(json.dumps(done.report.to_json()))


def test_each_document_is_asked_cited_and_compared(open_session, script, leases):
    asked = script(SAYS)
    with open_session() as opened:
        events = list(opened.stream(WHICH, leases(A, B)))
    report = events[-1].report.to_json()
    assert asked == ["What is the rent?"] * 2
    assert report["answer"] == "a.txt: 950 euros a month.\nb.txt: EUR 880 a month.\nLower: b.txt."
    assert (report["mode"], report["stopped"]) == ("compared", "eos")
    quotes = ["The tenant pays a rent of 950 euros a month.", "The monthly rent is EUR 880."]
    assert [(c["name"], c["quote"]) for c in report["citations"]] == list(zip(("a.txt", "b.txt"), quotes, strict=True))
    compared = report["compared"]
    assert [(v["state"], v["value"], v["unit"], v["period"]) for v in compared["values"]] == [
        ("said", 950, "EUR", "month"),
        ("said", 880, "EUR", "month"),
    ]
    assert compared["best"] == [report["citations"][1]["document"]]
    assert [e.mode for e in events if isinstance(e, Planned)] == ["compared"]
    assert [(e.done, e.unit) for e in events if isinstance(e, Progress)] == [(n, "documents") for n in (0, 1, 2)]
    assert "".join(e.text for e in events if isinstance(e, Token)) == report["answer"]
    told = [e.sentence for e in events if isinstance(e, SentenceChecked)]
    assert told == report["sentences"]
    assert [s["number"] for s in told] == [1, 2, None]
    assert event_from_line(event_to_line(events[-1])) == events[-1]


@pytest.mark.parametrize(
    ("question", "texts", "says", "answer"),
    [
        (
            "Welcher der beiden Verträge hat die höhere Miete?",
            (A, B),
            SAYS,
            "a.txt: 950 euros a month.\nb.txt: EUR 880 im Monat.\nHöher: a.txt.",
        ),
        ("两份合同哪份租金更低?", (A, B), SAYS, "a.txt：950 euros a month。\nb.txt：EUR 880/月。\n更低：b.txt。"),  # noqa: RUF001
        (
            "Compare the rents.",
            (A, B),
            SAYS,
            "a.txt: 950 euros a month.\nb.txt: EUR 880 a month.",
        ),
        (
            "Which is longer?",
            (A, B),
            {"a.txt": "24 months", "b.txt": "12 months"},
            "a.txt: 24 months.\nb.txt: 12 months.\nLonger: a.txt.",
        ),
        (
            "Which landlord gives more time for notice?",
            ("Either party gives two months' notice.\n", "Either party gives three months' notice.\n"),
            {"a.txt": "two months' notice", "b.txt": "three months' notice"},
            "a.txt: two months' notice.\nb.txt: three months' notice.\nLonger: b.txt.",
        ),
        (
            WHICH,
            (A, A + "Signed."),
            {"a.txt": "950 euros a month", "b.txt": "950 euros a month"},
            "a.txt: 950 euros a month.\nb.txt: 950 euros a month.\nThe two are equal.",
        ),
        (
            WHICH,
            (A, "A lease.\n\nThe rent is 9,000 euros a year.\n"),
            {"a.txt": "950 euros a month", "b.txt": "9,000 euros a year"},
            "a.txt: 950 euros a month.\nb.txt: 9,000 euros a year.\nNot compared: the values are not in the same unit.",
        ),
        (
            WHICH,
            (A, "A lease.\n\nThe rent is 900 euros a month in 2024, then 990 euros a month.\n"),
            {"a.txt": "950 euros a month", "b.txt": "900 euros a month"},
            "a.txt: 950 euros a month.\nb.txt: 900 euros a month.\nNot compared: a document gives more than one value.",
        ),
        (
            "Which lease has the longer warranty on the inverter?",
            (
                "Warranty: 12 years on modules, 5 years on the inverter, 9 years on the battery.\n",
                "Warranty: 15 years on modules, 8 years on the inverter, 9 years on the battery.\n",
            ),
            {"a.txt": "5 years", "b.txt": "8 years"},
            "a.txt: 5 years.\nb.txt: 8 years.\nLonger: b.txt.",
        ),
        (
            "Which lease has the longer warranty on the inverter?",
            (
                "Warranty: 12 years on modules, 5 years on the inverter.\n",
                "Warranty: 15 years on modules, 8 years on the inverter.\n",
            ),
            {"a.txt": "12 years", "b.txt": "8 years"},  # of the modules
            "a.txt: 12 years.\nb.txt: 8 years.\nNot compared: a document gives more than one value.",
        ),
        (
            "Which offer is cheaper?",
            ("We offer 24 modules for 15,840 euros.\n", "We offer 26 modules for 17,250 euros.\n"),
            {"a.txt": "15,840 euros", "b.txt": "17,250 euros"},
            "a.txt: 15,840 euros.\nb.txt: 17,250 euros.\nLower: a.txt.",
        ),
        (WHICH, (A, B), {**SAYS, "b.txt": ""}, "a.txt: 950 euros a month.\nNot found in b.txt."),
        (WHICH, (A, B), {**SAYS, "b.txt": "EUR 700"}, "a.txt: 950 euros a month.\nb.txt: no sure answer."),
        (
            "Which lease has the higher deposit?",
            (A, B),
            {"a.txt": "950 euros a month", "b.txt": "1,760 euros"},
            "Not found in a.txt.\nb.txt: 1,760 euros.",
        ),
        (
            "Which of the three leases has the lowest rent?",
            (A, B, "A third lease.\n\nThe rent is 880 euros per month.\n"),
            {**SAYS, "c.txt": "880 euros per month"},
            "a.txt: 950 euros a month.\nb.txt: EUR 880 a month.\nc.txt: 880 euros per month.\nLowest: b.txt and c.txt.",
        ),
    ],
)
def test_a_verdict_is_given_only_where_it_is_safe(open_session, script, leases, question, texts, says, answer):
    script(says)
    with open_session() as opened:
        assert report_of(opened, question, leases(*texts))["answer"] == answer


@pytest.mark.parametrize("question", [WHICH, "Which lease has the lower rent?", "What is the rent?"])
def test_documents_that_all_say_nothing_leave_the_question_unanswered(open_session, script, leases, question):
    script({"a.txt": "", "b.txt": ""})
    with open_session() as opened:
        report = report_of(opened, question, leases(A, B))
    assert (report["stopped"], report["citations"]) == ("unanswered", [])
    assert report["answer"] == "Not found in a.txt.\nNot found in b.txt."


def test_a_plain_question_is_asked_of_each_document_that_is_about_it(open_session, script, leases):
    script(SAYS | {"c.txt": ""})
    with open_session() as opened:
        report = report_of(opened, "What is the rent?", leases(A, B, "A report on salmon.\n"))
    assert report["answer"] == "a.txt: 950 euros a month.\nb.txt: EUR 880 a month.\nNot found in c.txt."


def test_documents_are_compared_in_several_subjects(open_session, script, leases):
    asked = script(SAYS)
    with open_session() as opened:
        report = report_of(opened, "Compare the two leases on rent and term", leases(A, B))
    assert asked == ["What is the rent?"] * 2 + ["How long does it last?"] * 2
    assert report["answer"].splitlines() == [
        "| | a.txt | b.txt |",
        "|---|---|---|",
        "| Rent | 950 euros a month | EUR 880 a month |",
        "| Term | not sure | not sure |",
    ]
    cells = [report["answer"][s["start"] : s["end"]] for s in report["sentences"]]
    assert cells == ["950 euros a month", "EUR 880 a month", "not sure", "not sure"]
    assert [s["support"] for s in report["sentences"]] == ["supported"] * 2 + ["unchecked"] * 2
    assert [value["question"] for value in report["compared"]["values"]] == asked
    assert report["compared"]["best"] == []


def test_which_of_the_two_is_told_beside_a_third_document_that_does_not_say(open_session, script, leases):
    script(SAYS | {"c.txt": ""})
    with open_session() as opened:
        report = report_of(opened, "Which of the two has the lower rent?", leases(A, B, "A report on salmon.\n"))
    assert report["answer"].splitlines()[2:] == ["Not found in c.txt.", "Lower: b.txt."]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "retrieve"])
def test_documents_are_asked_whole_or_by_passages_and_their_pages_are_kept(open_session, leases, mode):
    files = leases(A * 40, B * 40)
    with open_session(mode=mode) as opened:
        first, again = (report_of(opened, WHICH, files) for _ in range(2))
    assert first["mode"] == again["mode"] == "compared"
    assert first["tokens"]["prefilled"] > 500
    assert again["tokens"]["reused"] > again["tokens"]["prefilled"]
    assert first["answer"].startswith("a.txt")


@pytest.mark.parametrize(
    ("question", "count", "settings"),
    [
        ("Which of the tenants may keep a dog?", 2, {}),
        (WHICH, 1, {}),
        ("What is the deposit in b.txt?", 2, {}),  # names a document
        (WHICH, 2, {"mode": "everywhere"}),
    ],
)
def test_other_questions_are_answered_as_before(open_session, leases, question, count, settings):
    with open_session(**settings) as opened:
        report = report_of(opened, question, leases(*(A, B)[:count]))
    assert report["mode"] == settings.get("mode", "full")
    assert "compared" not in report


def test_a_plain_question_is_put_to_each_of_two_documents_that_are_alike(open_session, script, leases):
    asked = script({"a.txt": "", "b.txt": "1,760 euros"})
    with open_session() as opened:
        report = report_of(opened, "What is the deposit?", leases(A, B))
    assert asked == ["What is the deposit?"] * 2
    assert report["answer"] == "Not found in a.txt.\nb.txt: 1,760 euros."


def test_a_plain_answer_is_given_as_the_document_gives_it(open_session, script, leases):
    script({"a.txt": "Yes, for 24 months", "b.txt": "It lasts 12 months"})
    with open_session() as opened:
        report = report_of(opened, "Is the tenancy fixed?", leases(A, B))
    assert report["answer"] == "a.txt: Yes, for 24 months.\nb.txt: It lasts 12 months."
    assert report["compared"]["best"] == []


def test_differences_leave_out_what_no_document_says(open_session, script, leases):
    asked = script({"a.txt": "", "b.txt": ""})
    with open_session() as opened:
        report = report_of(opened, "What are the main differences?", leases(A + "A deposit.", B))
    assert asked[:2] == ["What is the rent?"] * 2
    assert len(asked) > 3
    assert (report["answer"], report["stopped"]) == ("I found no clear answer.", "unanswered")


def test_differences_leave_out_what_is_the_same_in_all(open_session, script, leases):
    rent, deposit = "Another lease.\n\nThe monthly rent is EUR 880.\n\n", "The deposit is 800 euros.\n"
    script({"a.txt": "800 euros", "b.txt": "EUR 800"})
    with open_session() as opened:
        report = report_of(opened, "What are the main differences?", leases(A + deposit, rent + deposit))
    assert report["answer"] == "The same in all: deposit 800 euros"
    assert [citation["quote"] for citation in report["citations"]] == [deposit.strip()]


def test_a_document_given_twice_is_one_document(open_session, leases):
    files = leases(A)
    with open_session() as opened:
        assert report_of(opened, WHICH, files * 2)["mode"] == "full"


def test_documents_of_the_same_name_are_told_apart(open_session, script, tmp_path):
    files = [tmp_path / folder / "a.txt" for folder in ("first", "second")]
    for file, text in zip(files, (A, A.replace("950", "990")), strict=True):
        file.parent.mkdir()
        file.write_text(text)
    script({"a.txt": "a month"})
    with open_session() as opened:
        report = report_of(opened, WHICH, list(map(str, files)))
    assert [value["name"] for value in report["compared"]["values"]] == ["a.txt (1)", "a.txt (2)"]
    assert report["answer"].startswith("a.txt (1): a month.\na.txt (2): a month.")


def test_a_cancel_keeps_what_was_answered(open_session, script, leases):
    script(SAYS)
    with open_session() as opened:
        events = []
        for event in opened.stream(WHICH, leases(A, B)):
            events.append(event)
            if isinstance(event, SentenceChecked) and len(events) < 10:
                opened.cancel()
    report = events[-1].report
    assert report.stopped == "cancelled"
    assert report.answer == "a.txt: 950 euros a month.\nStopped after 1 of 2 answers."


def test_a_chat_compares_its_documents_and_keeps_their_citations(open_session, script, leases):
    script(SAYS)
    with open_session() as opened:
        chats = opened.workflows.chats
        chat = chats.start(leases(A, B)).id
        *_, done = opened.run(chats.ask(chat, WHICH))
        (_, answer) = opened.store.chats.messages(chat)
    assert (answer.text, answer.stats["mode"]) == (done.report.answer, "compared")
    assert [c["name"] for c in answer.citations] == ["a.txt", "b.txt"]


def test_a_stopped_comparison_is_not_continued_from_one_prompt_but_asked_again(open_session, script, leases):
    script(SAYS)
    with open_session() as opened:
        chats = opened.workflows.chats
        chat = chats.start(leases(A, B)).id
        for event in opened.run(chats.ask(chat, WHICH)):
            if isinstance(event, SentenceChecked):
                opened.cancel()
        assert not opened.store.chats.messages(chat)[-1].unfinished
        *_, done = opened.run(chats.ask(chat, WHICH))
        (*_, answer) = opened.store.chats.messages(chat)
    assert answer.text == done.report.answer == "a.txt: 950 euros a month.\nb.txt: EUR 880 a month.\nLower: b.txt."
    assert len(answer.citations) == 2


def test_nothing_is_kept_without_persisting(open_session, script, leases):
    script(SAYS)
    with open_session() as opened:
        report = report_of(opened, WHICH, leases(A, B), persist=False)
        assert report["answer"].endswith("Lower: b.txt.")
        assert not opened.store.documents.all()


def test_the_api_and_a_pipe_have_the_sources_of_all_documents(open_session, script, leases, capsys):
    script(SAYS)
    with open_session() as opened:
        answer = answer_of(opened.stream(WHICH, leases(A, B)))
        report = report_of(opened, WHICH, leases(A, B))
    assert [source.name for source in answer.citations] == ["a.txt", "b.txt"]
    assert answer.mode == "compared"
    print_notes(report, 8, Terminal())
    printed = capsys.readouterr().out
    assert "rent of 950 euros" in printed
    assert "monthly rent is EUR 880" in printed
