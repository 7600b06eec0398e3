"""The Python API: every example of its page runs, answers are typed, and importing it is quick."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ask_in_process import PLAIN
from repository import ROOT

import localctx
from localctx.docs import page
from localctx.errors import DocumentError, UsageError

pytestmark = pytest.mark.process

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUESTION = "How long is river 7?"


@pytest.fixture
def settings(home, tiny_model, monkeypatch) -> None:
    """The settings of small tests, where the examples name none."""
    for name, value in {**PLAIN, "max_tokens": 8, "model": tiny_model}.items():
        monkeypatch.setenv(f"LOCALCTX_{name.upper()}", str(value))


@pytest.fixture
def docs(settings, document):
    with localctx.open(document) as docs:
        yield docs


@pytest.fixture
def report(settings, document, tmp_path, monkeypatch) -> None:
    """The document of the examples, in the current folder; a text goes by that name as well."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.txt").write_text(document.read_text() + "It was signed by Ada.\n")
    (tmp_path / "invoices").mkdir()
    (tmp_path / "invoices" / "ada.txt").write_text("Ada Ltd is the supplier. The total amount is EUR 12.50.\n")


def test_every_example_of_the_page_runs(report, capsys):
    examples = BLOCK.findall(page("python"))
    assert len(examples) >= 6
    names: dict = {}
    for example in examples:
        exec(example.replace("report.pdf", "report.txt"), names)
    assert "no-such-file.pdf" in capsys.readouterr().out


def test_the_example_of_the_readme_runs(report, capsys):
    (example,) = BLOCK.findall((ROOT / "README.md").read_text())
    exec(example.replace("report.pdf", "report.txt"), {})
    assert "tokens reused" in capsys.readouterr().out


def test_an_answer_says_where_it_is_from_and_what_it_cost(docs, document):
    first, second = docs.ask(QUESTION), docs.ask("And river 8?")
    assert isinstance(first, localctx.Answer)
    assert str(first) == first.text
    assert (first.stopped, first.mode, first.persist_error) == ("length", "full", None)
    assert first.stats.prompt == first.stats.reused + first.stats.prefilled
    assert first.stats.reused == 0 < second.stats.reused
    assert first.stats.generated == 8
    assert first.stats.seconds["first_token"] > 0
    text = document.read_text()
    for citation in first.citations:
        assert citation.quote == text[citation.start : citation.end]
        assert citation.name == document.name


def test_events_lead_to_the_same_answer(docs):
    events = list(docs.stream(QUESTION))
    assert [type(event).__name__ for event in events if isinstance(event, localctx.events.Planned)] == ["Planned"]
    text = "".join(event.text for event in events if isinstance(event, localctx.events.Token))
    assert isinstance(events[-1], localctx.events.Done)
    assert text.strip() == events[-1].report.answer == docs.ask(QUESTION).text


def test_without_persisting_nothing_is_left(docs, home):
    assert docs.ask(QUESTION, persist=False).text
    assert not home.exists()


def test_a_chat_outlives_its_session(settings, document):
    with localctx.open(document) as docs:
        chat = docs.chat()
        first = chat.ask(QUESTION)
        assert first.chat == chat.id
    with localctx.open() as docs:
        again = docs.chat(chat.id)
        again.ask("And river 8?")
        assert [m.role for m in again.messages] == ["user", "assistant", "user", "assistant"]
        again.edit("And river 9?")
        assert again.messages[-2].text == "And river 9?"
        with pytest.raises(UsageError):
            again.regenerate()
        assert again.regenerate(temperature=2).text is not None


def test_a_summary_of_each_document_under_its_own_settings(settings, document, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("The lake is deep.\n" * 20)
    with localctx.open(document, other) as docs:
        before = docs.settings
        summaries = docs.summarize(length="10")
        assert docs.settings == before
    assert [s.name for s in summaries] == [document.name, "other.txt"]
    assert all(s.text and s.tokens["generated"] for s in summaries)


def test_a_table_has_a_row_for_each_file_and_a_cell_for_each_column(settings, document, tmp_path):
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.7\nbroken")
    columns = [QUESTION, localctx.TableColumn("length", QUESTION, "number")]
    good, broken = sorted(localctx.table(document, tmp_path / "broken.pdf", columns=columns), key=lambda row: row.why)
    assert [cell.column for cell in good.cells] == ["How long is river 7", "length"]
    assert all((cell.state == "found") == bool(cell.quote) for cell in good.cells)
    assert (broken.cells, "broken.pdf" in broken.why) == ((), True)
    with pytest.raises(UsageError, match="no column"):
        localctx.table(document, columns=[])


def test_two_versions_are_compared_without_a_model_or_a_store(home, document, tmp_path):
    new = tmp_path / "new.txt"
    new.write_text(document.read_text().replace("is 37 km", "is 38 km"))
    (change,) = localctx.compare(document, str(new)).changes
    assert isinstance(change, localctx.ClauseChange)
    assert (change.meaning, change.lines) == ("number", ("37 -> 38",))
    assert localctx.compare(document, document).summary == "No clause has changed."
    assert not home.exists()


def test_the_library_adds_finds_and_removes(settings, document):
    with localctx.Library() as library:
        (added,) = library.add(document)
        assert library.search("river 7", top=3)[0].document == added.id
        assert [d.id for d in library.documents] == [added.id]
        assert library.ask(QUESTION).mode == "retrieve"
        library.remove(added.id)
        assert library.documents == []
        with pytest.raises(DocumentError):
            library.remove(added.id)


def test_a_plan_loads_nothing(settings):
    plan = localctx.plan(context=4096, device_memory="8GiB")
    assert plan.context == 4096
    assert plan.fits["int4"] > plan.fits["int8"] > plan.fits["f32"]
    assert plan.to_json()["kv"]["bytes"] == plan.kv["bytes"]


def test_names_are_typed_and_found():
    assert set(localctx.__all__) <= {*dir(localctx)}
    assert all(getattr(localctx, name) is not None for name in localctx.__all__)
    with pytest.raises(AttributeError):
        localctx.no_such_name  # noqa: B018
    assert (Path(localctx.__file__).parent / "py.typed").exists()


def test_importing_it_imports_nothing_heavy():
    code = "import sys, localctx; print([m for m in ('torch', 'numpy', 'sqlite_utils', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
