"""The card above the question box: what is read before anything is asked, what is said of it, and what is offered."""

import json
import re
import threading
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest
from browser import Tab, Watch, launched, save_saying_model, served
from clock import PATIENCE, wait_until
from stored_documents import row
from tiny_adapters import save_adapter

from localctx.engine.events import Done, Progress
from localctx.errors import StoreError
from localctx.library import add
from localctx.library.read_document import read_document
from localctx.store.documents import StoredDocument
from localctx.store.store import Store
from localctx.ui.reading import ready_text
from localctx.ui.reading.chat_documents import ChatDocuments
from localctx.ui.reading.guide import MAX_DOCUMENTS, SUMMARIZE, guide
from localctx.ui.reading.ready_card import ReadyCard
from localctx.ui.running.read_documents import ReadDocument
from localctx.ui.running.tab_reading import ReadingState, ReadingTarget, TabReading
from localctx.workflows.ahead.document_guide import document_guide
from localctx.workflows.ahead.readiness import Readiness, ReadinessWorkflow
from localctx.workflows.ahead.suggested_questions import Candidates, SuggestedQuestions
from localctx.workflows.answer.question_kind import summary_of_all

pytestmark = pytest.mark.slow

LEASE = b"""1. Rent

The monthly rent is 940 euros. It is payable in advance on the first day of each month, and by bank transfer only.

2. Pets

One cat or one small dog may be kept with the consent of the landlord. Reptiles and birds are not allowed at all.
"""
RIVERS = b"".join(b"River %d is %d km long and has %d mills.\n" % (i, i * 37, i) for i in range(260))


@pytest.fixture
def reading(window) -> TabReading:
    return window.readings.of("a tab")


@pytest.fixture
def lease(tmp_path) -> str:
    path = tmp_path / "lease.txt"
    path.write_bytes(LEASE)
    return str(path)


@pytest.fixture
def rivers(tmp_path) -> str:
    path = tmp_path / "rivers.txt"
    path.write_bytes(RIVERS[:3000])
    return str(path)


def until(reading: TabReading, phase: str) -> ReadingState:
    wait_until(lambda: reading.state.phase == phase, phase)
    return reading.state


def test_a_file_in_the_question_box_is_parsed_read_and_asked_about_before_anybody_asks(reading, window, lease):
    reading.want(ReadingTarget((lease,)))
    state = until(reading, "ready")
    (document,) = state.documents
    assert (document.name, document.characters) == ("lease.txt", len(LEASE))
    assert state.ready.whole
    assert state.ready.read > 0
    assert "How much is the monthly rent?" in state.questions
    with window.store() as store:
        assert [c.kept > 200 for c in store.caches.of_document(document.document)] == [True]


def test_a_question_asked_meanwhile_does_not_parse_the_file_twice_and_comes_first(reading, window, rivers, monkeypatch):
    parsed, held, let_go = [], threading.Event(), threading.Event()
    read = add.read_document

    def slowly(source, *arguments):
        parsed.append(source)
        held.set()
        assert let_go.wait(PATIENCE)
        return read(source, *arguments)

    monkeypatch.setattr(add, "read_document", slowly)
    reading.want(ReadingTarget((rivers,)))
    assert held.wait(PATIENCE)
    ids = []

    def store(session):
        ids.extend(session.workflows.store([rivers]))
        yield from ()

    stored = window.library_worker.submit(store)  # as a question does
    let_go.set()
    list(stored)
    answer = list(window.answer_worker.submit(lambda s: s.workflows.questions.ask(ids, "How long is river 7?")))
    assert isinstance(answer[-1], Done)
    assert parsed == [rivers]
    assert until(reading, "ready").ready.whole


def test_what_was_read_before_a_question_came_is_used_by_it_and_reading_goes_on_after_it(reading, window, rivers):
    reading.want(ReadingTarget((rivers,)))
    wait_until(lambda: reading.state.progress and reading.state.progress.done > 1200, "reading")
    document = reading.state.documents[0].document
    question = window.answer_worker.submit(lambda s: s.workflows.questions.ask([document], "How long is river 7?"))
    *_, done = question
    assert done.report.tokens.reused >= 1024
    assert until(reading, "ready").ready.saved is not None


def test_a_file_that_is_taken_out_of_the_box_is_not_read_on(reading, window, rivers, lease):
    reading.want(ReadingTarget((rivers,)))
    wait_until(lambda: reading.state.progress and reading.state.phase == "reading", "reading")
    reading.want(ReadingTarget())
    assert (reading.state.phase, reading.state.documents) == ("", [])
    wait_until(lambda: not window.answer_worker.busy, "the end of its job")
    reading.want(ReadingTarget((lease,)))
    assert [d.name for d in until(reading, "ready").documents] == ["lease.txt"]


def test_a_sent_file_keeps_its_name_until_it_is_in_its_chat(reading, lease):
    reading.want(ReadingTarget((lease,)))
    id_ = until(reading, "ready").documents[0].document
    reading.want(ReadingTarget())
    reading.want(ReadingTarget(documents=(id_,), has_messages=True))
    assert [(d.name, d.characters) for d in reading.state.documents] == [("lease.txt", len(LEASE))]


def test_cancel_stops_and_what_was_read_stays(reading, window, rivers):
    reading.want(ReadingTarget((rivers,)))
    wait_until(lambda: reading.state.progress and reading.state.progress.done > 1200, "reading")
    reading.stop()
    assert reading.state.phase == "stopped"
    assert ready_text.STOPPED in ready_text.card(reading.state)
    wait_until(lambda: not window.answer_worker.busy, "the end of its job")
    with window.store() as store:
        assert store.caches.of_document(reading.state.documents[0].document)[0].kept >= 1024


def test_a_second_file_leaves_the_first_as_it_was_parsed(reading, rivers, lease, monkeypatch):
    parsed = []
    read = add.read_document
    monkeypatch.setattr(add, "read_document", lambda source, *more: parsed.append(source) or read(source, *more))
    reading.want(ReadingTarget((rivers,)))
    until(reading, "ready")
    reading.want(ReadingTarget((rivers, lease)))
    state = until(reading, "ready")
    assert parsed == [rivers, lease]
    assert [d.name for d in state.documents] == ["rivers.txt", "lease.txt"]


def test_a_file_that_cannot_be_read_is_named_without_its_folder_and_the_others_are_read(reading, tmp_path, lease):
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7 nothing")
    reading.want(ReadingTarget((str(broken), lease)))
    state = until(reading, "ready")
    html = ready_text.card(state)
    assert "broken.pdf" in html
    assert str(tmp_path) not in html
    assert 'role="alert"' in html
    assert "Ready. Ask anything." in html


def test_nothing_but_broken_files_is_no_success(reading, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    reading.want(ReadingTarget((str(tmp_path / "empty.txt"),)))
    assert "Ready" not in ready_text.card(until(reading, "failed"))


def test_without_a_model_it_waits_and_reads_once_there_is_one(window, lease, monkeypatch):
    reading, here = window.readings.of("another tab"), []
    monkeypatch.setattr(TabReading, "_has_model", lambda self: bool(here))
    reading.want(ReadingTarget((lease,)))
    assert "as soon as there is a model" in ready_text.card(until(reading, "no model"))
    here.append(True)
    until(reading, "ready")


def test_documents_are_read_again_for_other_settings(reading, window, lease):
    reading.want(ReadingTarget((lease,)))
    until(reading, "ready")
    reading.refresh()
    assert reading.state.phase == "ready", "nothing changed"
    window.save_settings({"mode": "retrieve"})
    reading.refresh()
    assert reading.state.phase != "ready"
    assert not until(reading, "ready").ready.whole


def test_a_closed_window_reads_nothing_more(window, rivers):
    reading = window.readings.of("a closed tab")
    reading.want(ReadingTarget((rivers,)))
    window.readings.close()
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "reading ahead"], "the end of the thread")


@pytest.mark.parametrize(
    ("ready", "sentence"),
    [
        (Readiness(True, 0.6, 34.2, 33.0), "Ready. Ask anything."),
        (Readiness(False, 13.0), "Ready"),
    ],
)
def test_the_sentence_is_short_and_promises_no_seconds(ready, sentence):
    state = ReadingState(ReadingTarget(documents=("id",)), [ReadDocument("id", "a.txt", "id")], "ready", ready=ready)
    assert f'role="status">{sentence}</p>' in ready_text.card(state)


def test_a_chat_with_messages_shows_the_state_on_the_chip_alone():
    documents, ready = [ReadDocument("id", "lease.pdf", "id", "page", 5, 900)], Readiness(True, 0.5, 30.0)
    begun = ReadingState(ReadingTarget(documents=("id",), has_messages=True), documents, "ready", ready=ready)
    shown = ready_text.card(begun)
    assert 'title="lease.pdf. 5 pages. Ready"' in shown
    assert 'aria-label="read"' in shown
    assert "Ask anything" not in shown
    new = ReadingState(ReadingTarget(documents=("id",)), documents, "ready", ready=ready)
    assert "Ask anything" in ready_text.card(new)


def test_a_new_chat_tells_what_its_only_document_is_about(reading, tmp_path):
    path = tmp_path / "house.md"
    windows = "The windows of room {0} were made by **Ann Marlow** of Wexcombe in the year 19{0:02}.\n\n"
    path.write_text("# House\n\n" + "".join(f"## {i}. <Room> {i}\n\n{windows.format(i)}" for i in range(1, 15)))
    reading.want(ReadingTarget((str(path),)))
    state = until(reading, "ready")
    (document,) = state.documents
    words = [path.read_text()[span.start : span.end] for span in document.guide.headings]
    assert words[0].startswith("1. <Room> 1\n")
    shown = guide(state)
    assert shown.count('aria-label="Contents of house.md"') == 1
    assert f'data-start="{document.guide.headings[9].start}"' in shown
    assert "12. &lt;Room&gt; 12" in shown
    assert "13. &lt;Room&gt;" not in shown
    assert "and 2 more" in shown
    assert "were made by Ann Marlow of Wexcombe" in shown
    assert SUMMARIZE[0] in shown
    assert not guide(replace(state, wanted=replace(state.wanted, has_messages=True)))


def sentences_of(text: str, name: str = "lease.txt") -> ReadDocument:
    told = document_guide(StoredDocument(row(name, text), text, []))
    return ReadDocument(name, name, name, characters=len(text), guide=told)


def test_a_table_is_told_by_its_columns_and_by_questions_that_are_computed(tmp_path):
    path = tmp_path / "bills.csv"
    path.write_text("Number,Town,Net amount\n1,Bath,120\n2,York,80\n3,Bath,40\n")
    read = read_document(str(path))
    document = StoredDocument(read.row, read.text, read.spans)
    told = document_guide(document)
    assert [list(table.columns) for table in told.tables] == [["Number", "Town", "Net amount"]]
    questions = told.tables[0].questions
    assert "What is the total net amount?" in questions
    assert "What is the total net amount per town?" in questions
    shown = guide(ReadingState(documents=[ReadDocument("bills.csv", "bills.csv", "id", part="row", guide=told)]))
    assert all(f'data-asks="{question}"' in shown for question in questions)
    first = document.text[told.tables[0].start : told.tables[0].end]
    assert "Bath" in first
    assert f'data-start="{told.tables[0].start}"' in shown


def test_a_file_that_was_dropped_twice_is_shown_once():
    once = ReadDocument("/tmp/1/lease.txt", "lease.txt", "id", characters=120)
    other = ReadDocument("/tmp/2/annex.txt", "annex.txt")
    twice = replace(once, source="/tmp/3/lease.txt")
    state = ReadingState(documents=[once, other, twice], phase="reading")
    assert state.distinct == {0: once, 1: other}
    shown = ready_text.card(state)
    assert shown.count("<li") == 2
    assert "Reading 20 words" in shown.replace("about ", "")
    assert "2 documents" in guide(state)


def test_of_many_documents_the_first_are_told_and_the_others_counted():
    documents = [sentences_of(LEASE.decode(), f"lease-{i}.txt") for i in range(5)]
    broken = ReadDocument("broken.pdf", "broken.pdf", error="it is damaged")
    shown = guide(ReadingState(ReadingTarget(), [broken, *documents], "reading"))
    assert [i for i in range(5) if f">lease-{i}.txt</button></h2>" in shown] == list(range(MAX_DOCUMENTS))
    assert "5 documents" in shown
    assert "broken.pdf" not in shown
    assert SUMMARIZE[1] in shown
    assert "The monthly rent is 940 euros." in shown or "One cat or one small dog may be kept" in shown


@pytest.mark.parametrize(("seconds", "told"), [(24.2, "about 24 s"), (0.3, ""), (None, "")])
def test_a_summary_is_offered_with_the_time_that_it_takes(seconds, told):
    state = ReadingState(
        documents=[sentences_of(LEASE.decode())], phase="ready", ready=Readiness(True, summary=seconds)
    )
    offer = re.search(r">Summarize(.*?)</button>", guide(state))[1]
    assert re.sub("<.*?>", "", offer).strip() == told


@pytest.mark.parametrize(
    ("part", "document", "offered"), [("page", "id", True), ("row", "id", False), ("page", "", False)]
)
def test_what_is_opened_and_no_table_can_be_summarized(part, document, offered):
    state = ReadingState(ReadingTarget(), [ReadDocument("x", "report.pdf", document, part, 5, 900)], "reading")
    assert ("Summarize" in guide(state)) == offered


@pytest.mark.parametrize("question", SUMMARIZE)
def test_the_buttons_ask_for_what_the_program_knows_as_a_summary(question):
    assert summary_of_all(question) == ("medium", "prose")


def test_nothing_after_the_mark_is_told(reading, tmp_path):
    path = tmp_path / "story.txt"
    path.write_text(
        "The miller bought the mill from the heirs of the old Duke. " * 9 + "\n\nThe butler is the murderer "
        "of the old Duke, whom the miller had seen in the house that night.\n"
    )
    reading.want(ReadingTarget((str(path),)))
    assert "butler" in guide(until(reading, "ready"))
    reading.want(replace(reading.state.wanted, until="60%"))
    assert "butler" not in guide(reading.state)
    assert "butler" not in guide(until(reading, "ready"))


def test_a_document_that_was_read_shows_no_sign_of_reading_while_another_is_opened(reading, rivers, lease):
    reading.want(ReadingTarget((lease,)))
    id_ = until(reading, "ready").documents[0].document
    for wanted in (ReadingTarget(documents=(id_,), has_messages=True), ReadingTarget((rivers,), (id_,))):
        reading.want(wanted)
        first = ready_text.card(reading.state).split("</li>")[len(wanted.files)]
        assert "lease.txt" in first
        assert 'aria-label="read"' in first
        until(reading, "ready")


def test_a_document_that_was_read_earlier_is_ready_in_another_tab_at_once(reading, window, lease, monkeypatch):
    reading.want(ReadingTarget((lease,)))
    id_ = until(reading, "ready").documents[0].document
    monkeypatch.setattr(TabReading, "_has_model", lambda self: False)
    other = window.readings.of("another tab")
    other.want(ReadingTarget(documents=(id_,)))
    shown = ready_text.card(until(other, "no model"))
    assert 'aria-label="read"' in shown
    assert ready_text.READ_WHOLE in shown


def test_what_was_asked_of_a_document_is_not_suggested_again(window):
    with window.store() as store:
        asked, new = (row(f"{name}.txt", name) for name in ("lease", "annex"))
        for document in (asked, new):
            store.documents.add(document, document.name, [])
        chat = store.chats.create("", [asked.id]).id
        store.chats.append(chat, None, "user", "How much is the rent?")
    about = ChatDocuments(window)
    card = ReadyCard(window, about)
    with gr.Blocks():
        about.build()
        card.build_guide()
        card.build()
    documents = [ReadDocument(d.id, d.name, d.id) for d in (asked, new)]
    questions = ["How much is the rent?", "What does the annex add?"]
    wanted = ReadingTarget(files=("annex.txt",), documents=(asked.id, new.id), has_messages=True)
    shown = card._show(ReadingState(wanted, documents, "ready", questions=questions), SimpleNamespace(session_hash="t"))
    assert re.findall('data-asks="(.*?)"', shown[card.suggestions]) == ["What does the annex add?"]


def test_what_is_suggested_has_its_answer_in_the_document(reading, lease, window):
    reading.want(ReadingTarget((lease,)))
    state = until(reading, "ready")
    with window.store() as store:
        text = " ".join(store.documents.text(state.documents[0].document).split())
    answers = {"How much is the monthly rent?": "rent is 940 euros", "When is the monthly rent due?": "first day"}
    about = [q for q in state.questions if q not in answers]
    assert any(q in answers for q in state.questions)
    assert all(answers[q] in text for q in state.questions if q in answers)
    assert all(q.rstrip("?").split()[-1].casefold() in text.casefold() for q in about)


@pytest.fixture
def trying(monkeypatch) -> list[int]:
    """Questions are tried until the first run is cancelled. A number for each run."""
    runs = []

    def slowly(workflow, documents, ready, candidates, until=""):
        runs.append(len(runs))
        yield SuggestedQuestions(("How much is the monthly rent?",))
        while len(runs) == 1:
            workflow._runtime.check_cancelled()
            yield Progress("trying", 0, 0)
            time.sleep(0.01)
        yield SuggestedQuestions(("How much is the monthly rent?", "What does it say about pets?"))

    monkeypatch.setattr(ReadinessWorkflow, "candidates", lambda workflow, documents, until: Candidates(tried=True))
    monkeypatch.setattr(ReadinessWorkflow, "suggest_found", slowly)
    return runs


def test_a_question_comes_before_questions_are_tried_and_trying_goes_on_after_it(reading, window, lease, trying):
    reading.want(ReadingTarget((lease,)))
    wait_until(lambda: reading.state.questions, "the first that is found")
    assert reading.state.ready, "the document is ready before any question is tried"
    document = reading.state.documents[0].document
    *_, done = window.answer_worker.submit(lambda s: s.workflows.questions.ask([document], "Are birds allowed?"))
    assert isinstance(done, Done)
    assert len(until(reading, "ready").questions) == 2
    assert len(trying) == 2


def test_trying_questions_stops_when_the_tab_is_left(reading, window, lease, trying):
    reading.want(ReadingTarget((lease,)))
    wait_until(lambda: reading.state.questions, "the first that is found")
    reading.stop()
    wait_until(lambda: not window.answer_worker.busy, "the end of its job")
    assert len(trying) == 1


def test_documents_are_ready_where_no_question_can_be_tried(reading, lease, monkeypatch):
    def fail(workflow, documents, ready, candidates, until=""):
        raise StoreError("the disk is full", "free some space")
        yield

    monkeypatch.setattr(ReadinessWorkflow, "suggest_found", fail)
    reading.want(ReadingTarget((lease,)))
    assert until(reading, "ready").error == ""


def test_no_question_is_tried_in_a_chat_that_shows_none(reading, lease, window, trying):
    ids = []

    def store(session):
        ids.extend(session.workflows.store([lease]))
        yield from ()

    list(window.library_worker.submit(store))
    reading.want(ReadingTarget(documents=tuple(ids), has_messages=True))
    until(reading, "ready")
    assert trying == []


def test_what_is_ready_shows_no_progress_of_further_reading():
    documents = [ReadDocument("id", "book.txt", "id", characters=90_000)]
    state = ReadingState(ReadingTarget(documents=("id",)), documents, "reading", ready=Readiness(False))
    state.advance(Progress("reading", 2, 23, eta=60.0))
    shown = ready_text.card(state)
    assert "left" not in shown
    assert "%" not in shown
    assert ">Ready<" in shown


def test_the_share_that_is_read_never_falls():
    state, shown = ReadingState(ReadingTarget(("x",)), [ReadDocument("x", "x.txt")], "reading"), []
    phases = [("pages of x.txt", 9, 10), ("loading the model", 1, 2), ("indexing", 5, 10), ("embedding", 1, 90)]
    for phase, done, total in [*phases, ("indexing", 9, 10), ("reading", 1, 100)]:
        state.advance(Progress(phase, done, total))
        shown.append(state.percent)
    assert shown == sorted(shown)
    assert shown[0] > 0
    assert shown[-1] < 100


def test_an_error_is_told_once_and_begins_with_the_name():
    files = [ReadDocument(f"{i}", "broken.pdf", error="broken.pdf is a damaged PDF; save it again") for i in range(2)]
    shown = ready_text.card(ReadingState(ReadingTarget(("0", "1")), files, "failed"))
    assert shown.count("is a damaged PDF") == 1
    assert "broken.pdf broken.pdf" not in re.sub("<.*?>", " ", shown)


def test_names_and_progress_are_shown_as_text():
    documents = [ReadDocument("x", "<img src=x onerror=alert(1)>.txt", "x", characters=6000)]
    html = ready_text.card(ReadingState(ReadingTarget(), documents, "reading", Progress("reading", 50, 100, eta=20.0)))
    assert "<img" not in html
    assert "about 1,000 words" in html
    assert "about 20 s left" in html


def test_dropping_reading_asking_a_suggestion_and_the_whole_document(tmp_path):
    words = [f"{word} " for word in ("the", "rent", "is", "940", "euros", "each", "month")]
    model = save_saying_model(tmp_path / "model", words)
    with (
        launched() as chromium,
        served(tmp_path / "home", "--model", model, "--max-tokens", 30, "--threads", 1) as window,
    ):
        watch, context = Watch(window.origin), chromium.new_context()
        tab = Tab(watch.over(context.new_page())).open(window.url)
        tab.drop("lease.txt", LEASE)
        tab.wait_for("Ready. Ask anything.", "#ready-card", PATIENCE)
        source = tab.page.locator("#attached li").inner_text()
        assert "lease.txt" in source
        assert "ready" in source
        assert not tab.page.get_by_text("Drop a document anywhere on this page").is_visible()
        suggestions = tab.page.locator("#suggestions button")
        assert "How much is the monthly rent?" in suggestions.all_inner_texts()
        suggestions.filter(has_text="How much is the monthly rent?").click()
        tab.read_share()
        assert "How much is the monthly rent?" in tab.conversation.inner_text()
        tab.answer()
        assert "Ask anything" not in tab.page.locator("#ready-card").inner_text()
        assert not suggestions.all_inner_texts() or not suggestions.first.is_visible()
        with closing(Store(window.home)) as store:
            (chat,) = store.chats.all()
            stats = store.chats.messages(chat.id)[-1].stats
        assert stats["tokens"]["reused"] >= len(LEASE) // 64 * 64

        tab.page.locator("#new-chat").click()
        tab.drop("rivers.txt", RIVERS * 15)
        tab.ask("List all rivers.")
        everywhere = tab.page.locator("[data-action=everywhere]")
        everywhere.wait_for(timeout=2 * PATIENCE * 1000)
        assert re.fullmatch(r"Search the whole text( \(about .*\))?", everywhere.inner_text())
        everywhere.click()
        tab.wait_for("Asking", "#status", PATIENCE)
        tab.stop.click()
        tab.answer()
        assert watch.seen == []
        context.close()


def test_what_the_model_does_not_find_is_not_suggested(tmp_path):
    model = save_saying_model(tmp_path / "model", ["nothing "])
    reader = save_adapter(tmp_path / "reader", model)
    rated = {"weights": [0.0] * 6, "bias": 0.0, "threshold": 1.0}
    told = {"form": "Question: {question}", "not_said": "Not stated.", "confidence": {"free": rated, "quote": rated}}
    (reader / "reader.json").write_text(json.dumps(told))
    how = ("--model", model, "--adapter", reader, "--careful", "auto", "--max-tokens", 4, "--threads", 1)
    with launched() as chromium, served(tmp_path / "home", *how) as window:
        tab = Tab(chromium.new_context().new_page()).open(window.url)
        tab.drop("lease.txt", LEASE)
        tab.wait_for("Ready. Ask anything.", "#ready-card", PATIENCE)
        with closing(Store(window.home)) as store:
            (document,) = (row.id for row in store.documents.all())
            tried = lambda: [r["tried"] for r in store.results.of(document) if "tried" in r]  # noqa: E731
            wait_until(tried, "the first try")
            assert not any(tried()[0].values())
        assert not tab.page.locator("#suggestions button:visible").all()
