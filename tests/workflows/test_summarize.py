"""What is made of one document: its sections, and summaries of them; what was said is not said again."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from ask_in_process import session
from batch_texts import SMALL, long_text
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.engine.coroutine import consume
from localctx.engine.events import Note, Progress, Token
from localctx.errors import UsageError
from localctx.library.citations.false_sentences import FalseSentenceFilter, FilteredSummary
from localctx.library.read_document import read_document
from localctx.library.search.sections import Section, sections
from localctx.library.wording.sentences import trim_to_sentence
from localctx.models.base import ForwardRequest
from localctx.session import Session
from localctx.settings import load_settings
from localctx.store.documents import Span, StoredDocument
from localctx.store.store import Store
from localctx.workflows import text_generator
from localctx.workflows.summarize import summarize
from localctx.workflows.summarize.summarize import _SectionSummary, cite_summary
from localctx.workflows.summary_task import LENGTHS, SummaryTask

pytestmark = pytest.mark.slow

# Sections


def words(text: str) -> int:
    return len(text.split())


@settings(max_examples=30, deadline=None)
@given(st.integers(70, 400), st.integers(0, 6), st.integers(1, 9))
def test_sections_hold_all_that_is_visible_in_order_and_fit(most, headings, paragraphs):
    text = long_text(headings, paragraphs) or "Nothing but this."
    spans = spans_of(text)
    found = sections(text, spans, words, most)
    assert [a.end <= b.start for a, b in pairwise(found)] == [True] * (len(found) - 1)
    left_out = text[: found[0].start] + "".join(text[a.end : b.start] for a, b in pairwise(found))
    assert not (left_out + text[found[-1].end :]).strip()
    assert all(words(text[s.start : s.end]) <= most for s in found)
    if headings > 1 and all(words(text[s.start : s.end]) * 4 >= most for s in spans):
        cuts = {s.start for s in found}
        assert all(s.start in cuts for s in spans), "a section goes on past a heading"


def spans_of(text: str) -> list[Span]:
    starts = [*(i for i in range(len(text)) if text.startswith("# Part", i)), len(text)]
    return [Span(a, b, "heading", text[a + 2 : a + 8]) for a, b in pairwise(starts)]


def test_a_section_knows_its_heading_and_pages():
    text = long_text(3, 4)
    at = [s.start for s in spans_of(text)]
    spans = [Span(0, at[1] + 10, "page", "iv"), Span(at[1] + 10, len(text), "page", "5"), *spans_of(text)]
    one, two, three = sections(text, sorted(spans, key=lambda s: s.start), words, 100)
    assert [(s.heading, s.pages) for s in (one, two, three)] == [("Part 0", "iv"), ("Part 1", "iv-5"), ("Part 2", "5")]
    (joined,) = sections(text, spans_of(text), words, 10_000)
    assert (joined.heading, joined.pages) == ("Part 0 … Part 2", None)


# One document


@pytest.fixture
def as_written(monkeypatch):
    """Keeps the sentences of a random model, whose names no document has."""
    monkeypatch.setattr(FalseSentenceFilter, "filter", lambda self, summary: FilteredSummary(summary, []))


def result(
    path: Path, *, home: Path, model: Path, task: SummaryTask, keep: bool = False, heard: list | None = None, **more
):
    """What a task makes of a file; its events are ``heard``."""
    with session(home, model, **{**SMALL, **more, "max_tokens": task.tokens}) as s, s.workflows.summaries() as at_work:
        events = s.run(at_work.summarize(s.workflows.read(str(path)), task, keep))
        while True:
            try:
                event = next(events)
                if heard is not None:
                    heard.append(event)
            except StopIteration as end:
                return end.value


@pytest.mark.usefixtures("as_written")
def test_a_document_that_fits_is_read_whole_and_what_is_kept_of_it_is_used(home, document, tiny_model):
    how = {"home": home, "model": tiny_model, "task": SummaryTask("short")}
    first = result(document, **how)
    assert (first["mode"], first["tokens"]["reused"]) == ("whole", 0)
    assert first["tokens"]["prefilled"] == first["tokens"]["prompt"] > 700
    with closing(Store(home)) as store:
        assert not store.pages.live(), "pages that nobody asked to keep are kept"
    kept = result(document, keep=True, **how)
    again = result(document, **how)
    assert kept["summary"] == again["summary"] == first["summary"]
    assert again["tokens"]["reused"] > 640
    with session(home, tiny_model, **SMALL) as s:
        *_, done = s.stream("How long is river 7?", [str(document)])
    assert done.report.to_json()["tokens"]["reused"] >= 640, "the document's pages are shared with questions"


@pytest.mark.usefixtures("as_written")
def test_a_long_document_is_summarized_by_its_sections(home, tmp_path, tiny_model):
    long = tmp_path / "long.md"
    long.write_text(long_text(6, 12))
    found = result(long, home=home, model=tiny_model, task=SummaryTask(length="20"))
    assert found["mode"] == "sections"
    assert [s["heading"] for s in found["sections"]] == [f"Part {h}" for h in range(6)]
    text = read_document(str(long)).text
    assert all(text[s["start"] : s["end"]].startswith("# Part") for s in found["sections"])
    assert all(s["summary"] for s in found["sections"])
    assert found["tokens"]["prompt"] > len(text)
    assert found["tokens"]["generated"] > 6
    with closing(Store(home)) as store:
        assert not store.pages.live(), "the sections' pages fill the disk"


@pytest.mark.usefixtures("as_written")
def test_many_summaries_are_summarized_on_several_levels(home, tmp_path, tiny_model, monkeypatch):
    monkeypatch.setattr(summarize, "MAX_SECTION", 256)
    long, heard = tmp_path / "long.md", []
    long.write_text(long_text(9, 5))
    found = result(long, home=home, model=tiny_model, task=SummaryTask("short"), heard=heard)
    levels = [e.total for e in heard if isinstance(e, Progress) and (e.phase, e.done) == ("summaries", 0)]
    assert len(levels) > 1
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] == 1
    assert len(found["sections"]) > 9, "a heading's text that does not fit is divided"
    asked = len(found["sections"]) + sum(e.phase == "summaries" for e in heard if isinstance(e, Progress))
    assert found["tokens"]["prompt"] < asked * 800, "more was read at once than fits"


@pytest.mark.usefixtures("as_written")
def test_where_memory_is_small_sections_are(home, document, tiny_model):
    found = result(document, home=home, model=tiny_model, task=SummaryTask("short"), memory="128KiB", ram="0", disk="0")
    assert found["mode"] == "sections"
    assert len(found["sections"]) > 1


@pytest.mark.usefixtures("as_written")
def test_refining_carries_the_summary_along(home, tmp_path, tiny_model):
    long = tmp_path / "long.md"
    long.write_text(long_text(5, 12))
    found = result(long, home=home, model=tiny_model, task=SummaryTask("short", refine=True))
    assert found["mode"] == "refine"
    assert len(found["sections"]) == 5
    assert found["summary"] == found["sections"][-1]["summary"]


def test_every_sentence_of_a_summary_leads_to_the_words_and_the_page_it_stands_on(tmp_path):
    text = "The bridge was built in 1802.\n\nThe mill burned down in a storm.\n\nNobody knows who laid the road.\n"
    path = tmp_path / "town.txt"
    path.write_text(text)
    document, mill = read_document(str(path)), text.index("The mill")
    spans = [Span(0, mill, "page", "1"), Span(mill, len(text), "page", "2")]
    told = [
        _SectionSummary(Section(0, mill, None, "1"), "A bridge was built in 1802."),
        _SectionSummary(Section(mill, len(text), None, "2"), "The mill burned in a storm. The road is old."),
    ]
    summary = "The mill burned down in a storm. The bridge was built in 1802. Zebras sing."
    found = cite_summary(StoredDocument(document.row, document.text, spans), summary, told)
    assert [(c["page"], c["quote"]) for c in found] == [
        ("2", "The mill burned down in a storm."),
        ("1", "The bridge was built in 1802."),
    ]
    assert [summary[: c["at"]][-5:] for c in found] == ["torm.", "1802."]
    assert cite_summary(StoredDocument(document.row, document.text, spans), "", told) == []


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("One is here. Two is he", "One is here."),
        ("One is here. Two too.", "One is here. Two too."),
        ("One with no end", "One with no end"),
        ("", ""),
    ],
)
def test_a_summary_that_was_cut_ends_with_a_whole_sentence(text, kept):
    assert trim_to_sentence(text) == kept


def test_a_recipe_is_of_all_that_matters_and_nothing_else(home):
    s, plain = load_settings(summaries="write"), SummaryTask()
    assert plain.recipe(s) == SummaryTask("medium").recipe(s)
    others = [SummaryTask(length=name) for name in LENGTHS if name != "medium"] + [
        SummaryTask(length="50"),
        SummaryTask(style="bullets"),
    ]
    others += [
        SummaryTask(language="German"),
        SummaryTask(refine=True),
        SummaryTask(questions=("Why?",)),
        SummaryTask(questions=("Who?",)),
    ]
    assert len({t.recipe(s) for t in [plain, *others]}) == 1 + len(others)
    assert plain.recipe(replace(s, kv="int4")) != plain.recipe(s) == plain.recipe(replace(s, threads=2))
    for wrong in ({"length": "huge"}, {"length": "0"}, {"style": "rude"}, {"questions": (" ",)}):
        with pytest.raises(UsageError):
            SummaryTask(**wrong)


def test_what_was_said_of_sections_is_not_said_again(home, tiny_model, tmp_path):
    file = tmp_path / "long.md"
    file.write_text(long_text(5, 12))
    task, results = SummaryTask(length="20"), []
    for folder in (home, tmp_path / "other"):
        with session(folder, tiny_model, **{**SMALL, "max_tokens": 20}) as s, s.workflows.summaries() as summarize:
            held = s.workflows.read(str(file))
            if folder == home:
                with closing(s.run(summarize.summarize(held, task))) as cut:
                    next(e for e in cut if isinstance(e, Progress) and (e.phase, e.done) == ("sections", 3))
                kept = [row["recipe"] for row in s.store.db["results"].rows]
                assert len(kept) == 3
            results.append(consume(s.run(summarize.summarize(held, task)), lambda event: None))
    again, fresh = results
    assert again["summary"] == fresh["summary"]
    assert again["sections"] == fresh["sections"]
    assert again["tokens"]["prompt"] < fresh["tokens"]["prompt"] * 0.6


# Extracts


def test_an_extract_is_cited_sentence_by_sentence_and_loads_no_model(home, tmp_path):
    file = tmp_path / "long.md"
    file.write_text(long_text(5, 12))
    with Session(load_settings(home=home, model=str(tmp_path / "absent"), summaries="extract")) as s:
        document = s.workflows.read(str(file))
        for style, before in (("prose", ""), ("bullets", "- ")):
            with s.workflows.summaries() as summaries:
                found = consume(s.run(summaries.summarize(document, SummaryTask("50", style))), lambda event: None)
            assert found["mode"] == "extract"
            assert found["model"] == "sentences of the document"
            assert not any(found["tokens"].values())
            at = 0
            for citation in found["citations"]:
                quote = document.text[citation["start"] : citation["end"]]
                assert quote == citation["quote"]
                assert found["summary"][at : citation["at"]].strip() == before + " ".join(quote.split())
                at = citation["at"]
            assert at == len(found["summary"])
            assert 20 < len(found["summary"].split()) < 80


def test_who_makes_a_summary_goes_by_the_setting_the_measurement_and_the_options(home, tiny_model):
    default, other = load_settings(), load_settings(model=str(tiny_model))
    method = lambda settings, **task: SummaryTask(**task).method(settings)  # noqa: E731
    assert method(default).extracts
    assert "--summaries write" in method(default).why
    assert not method(other).extracts
    assert not method(replace(default, summaries="write")).extracts
    assert method(replace(other, summaries="extract")).extracts
    for options in ({"language": "German"}, {"style": "simple"}, {"refine": True}, {"questions": ("Why?",)}):
        assert not method(default, **options).extracts
    with pytest.raises(UsageError, match="own sentences cannot have --language"):
        SummaryTask(language="German").adapted(replace(default, summaries="extract"))
    assert SummaryTask().recipe(default) == SummaryTask().recipe(replace(other, summaries="extract"))
    assert SummaryTask().recipe(default) != SummaryTask().recipe(replace(default, summaries="write"))


class Saying:
    """A generator that writes what it is given, and counts what was asked of it."""

    model, window, token_counts = "saying", 200, Counter()

    def __init__(self, text: str) -> None:
        self._text = text

    def count(self, text: str) -> int:
        return len(text.split())

    def refuse_too_long(self, texts, instruction) -> None:
        pass

    def generate_from_whole(self, instruction, max_tokens, persist):
        yield Note("writing")
        return self._text


def test_a_written_summary_says_no_sentence_twice(home, document):
    kind = "The king is shown to be a loving and devoted father."
    text = f"{kind} He has a daughter. {kind.upper()} The king is a loving and devoted father. So it ends."
    generator = lambda document: Saying(text)  # noqa: E731
    with (
        Session(load_settings(home=home, summaries="write")) as s,
        s.workflows.summaries(generator) as summaries,
    ):
        read = s.workflows.read(str(document))
        found = consume(s.run(summaries.summarize(read, SummaryTask())), lambda event: None)
    assert found["summary"] == f"{kind} He has a daughter. So it ends."


def test_sentences_with_other_figures_are_left_out_and_named(home, document):
    told, heard = "River 7 is long. It has 98,765 mills.", list[object]()
    with (
        Session(load_settings(home=home, summaries="write")) as s,
        s.workflows.summaries(lambda document: Saying(told)) as summaries,
    ):
        read = s.workflows.read(str(document))
        found = consume(s.run(summaries.summarize(read, SummaryTask())), heard.append)
    assert (found["summary"], found["mode"]) == ("River 7 is long.", "whole")
    assert any("98,765 mills" in event.text for event in heard if isinstance(event, Note))


def test_where_all_that_is_written_is_left_out_sentences_of_the_document_are_shown(home, document):
    with (
        Session(load_settings(home=home, summaries="write")) as s,
        s.workflows.summaries(lambda document: Saying("It has 98,765 mills.")) as summaries,
    ):
        read = s.workflows.read(str(document))
        found = consume(s.run(summaries.summarize(read, SummaryTask())), lambda event: None)
    assert found["mode"] == "extract"
    assert all(citation["quote"] in read.text for citation in found["citations"])
    assert found["citations"]


def test_a_text_that_repeats_its_sentences_is_ended(monkeypatch):
    pieces = ["He ", "came. ", "She ", "left. ", "He came.", " She left.", " He came.", " She left."]

    request = SimpleNamespace(text="", result=SimpleNamespace(stopped="eos"))

    def writing():
        for i, piece in enumerate(pieces):
            request.text += piece
            yield Token(piece, i)

    assert len(list(text_generator._stop_at_repeats(request, writing()))) == 6
    assert request.result.stopped == "repeated"


def test_a_text_that_is_watched_for_repeats_hears_of_memory_that_ran_out():
    heard = []

    def writing():
        try:
            yield ForwardRequest([1], None)
        except MemoryError as e:
            heard.append(e)
        yield Token("It went on.", 0)

    coroutine = text_generator._stop_at_repeats(SimpleNamespace(text="It went on."), writing())
    next(coroutine)
    assert coroutine.throw(MemoryError()) == Token("It went on.", 0)
    assert len(heard) == 1
