"""A document read up to a mark: kept pages serve it, it is answered as a file cut there, and nothing after is told."""

import json
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from ask_in_process import session
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_files import pdf
from promises import Recorder
from tiny_models import make_tokenizer

from localctx.engine.coroutine import drive
from localctx.engine.prompt import common
from localctx.engine.prompt_prefix import cut_at_token
from localctx.engine.prompt_wording import ASK, content
from localctx.errors import UsageError
from localctx.library.read_document import read_document
from localctx.library.reading_mark import find_mark, mark_at
from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer, chat_tokenizer_of
from localctx.shape import PAGE
from localctx.store.documents import DocumentRow, Span, StoredDocument
from localctx.store.store import Store

pytestmark = pytest.mark.slow

QUESTION = "How long is river 7?"


def document_of(text: str, *spans: Span) -> StoredDocument:
    row = DocumentRow("id", "tale.txt", "/tale.txt", "utf-8", len(text), len(text), 0.0, 0.0)
    return StoredDocument(row, text, spans)


TALE = document_of("Once upon a time\nthere lived a King. \u201cCome,\u201d said he. Once more.")


# Marks


@pytest.mark.parametrize(
    ("mark", "end"),
    [
        ("50%", len(TALE.text) // 2),
        ("100 %", len(TALE.text)),
        ("12.5%", int(len(TALE.text) * 0.125)),
        ("TIME  there\nlived", TALE.text.index(" a King")),
        ("once", 4),
        ('"Come," said', TALE.text.index(" he.")),
        ('"a king."', TALE.text.index(" \u201c")),
    ],
)
def test_a_mark_is_a_share_or_words_whatever_their_case_and_white_space(mark, end):
    assert find_mark(TALE, mark) == end


def test_a_page_is_read_to_its_end():
    document = document_of(
        "First.\nSecond.\nThird 2.", *[Span(i * 7, i * 7 + 7, "page", p) for i, p in enumerate("i12")]
    )
    assert [find_mark(document, mark) for mark in ("page I", "1", "Page 2")] == [7, 14, 21]
    assert find_mark(document, '"2"') == len("First.\nSecond.\nThird 2")
    with pytest.raises(UsageError, match=r"has no page 40; its pages are called i to 2"):
        find_mark(document, "page 40")


TWICE = document_of(
    "Pre.\nA one.\nA two.\nB one.\nB two.",
    *(Span(a, b, "page", label) for a, b, label in
      ((0, 5, "i"), (5, 12, "1"), (12, 19, "2"), (19, 26, "1 (sheet 4)"), (26, 32, "2 (sheet 5)"))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("mark", "end"),
    [("page 2 (sheet 3)", 19), ("2 (Sheet 5)", 32), ("page 1(sheet 2)", 12), ("page i", 5), ("page i (sheet 1)", 5)],
)
def test_pages_of_one_label_are_named_with_their_sheets(mark, end):
    assert find_mark(TWICE, mark) == end


@pytest.mark.parametrize("mark", ["2", "page 2"])
def test_a_label_of_several_pages_takes_none_of_them(mark):
    choices = r'has 2 pages called 2; name one: "page 2 \(sheet 3\)" or "page 2 \(sheet 5\)"'
    with pytest.raises(UsageError, match=choices):
        find_mark(TWICE, mark)
    with pytest.raises(UsageError, match=r"has no page 2 \(sheet 4\)"):
        find_mark(TWICE, "2 (sheet 4)")


def test_labels_that_were_stored_alike_are_told_apart_too():
    stored = document_of("One.\nTwo.\nEnd.", *[Span(i * 5, i * 5 + 5, "page", "1") for i in range(3)])
    with pytest.raises(UsageError, match=r"3 pages called 1; name one: .*sheet 3"):
        find_mark(stored, "1")
    assert find_mark(stored, "page 1 (sheet 2)") == 10
    appendix = document_of("One.\nTwo.\n", Span(0, 5, "page", "A-1"), Span(5, 10, "page", "A-2"))
    assert find_mark(appendix, "Page a-1") == 5
    rows = document_of("a\nb\n", Span(0, 2, "row", "1"), Span(2, 4, "row", "1"))
    with pytest.raises(UsageError, match="2 rows called 1; give the words"):
        find_mark(rows, "row 1")


@pytest.mark.parametrize("end", [5, 12, 19, 26, 32])
def test_a_mark_at_a_pages_end_names_that_page_alone(end):
    mark = mark_at(TWICE, end)
    assert mark.startswith("page ")
    assert find_mark(TWICE, mark) == end


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("7", "tale.txt has no pages; give a share of it"),
        ("page 3", "tale.txt has no pages"),
        ("a queen", '"a queen" does not occur in tale.txt; copy a few words'),
        ("0%", "0% is not a share"),
        ("130%", "130% is not a share"),
        ("  ", "does not occur"),
    ],
)
def test_a_mark_that_is_not_there_is_refused_with_a_remedy(mark, message):
    with pytest.raises(UsageError, match=message):
        find_mark(TALE, mark)


def test_a_heading_that_is_cut_in_two_is_not_told():
    text = "# The death of the King\nHe died."
    document = document_of(text, Span(0, len(text), "heading", "The death of the King"))
    assert document.beginning(len("# The death")).spans == []
    (span,) = document.beginning(len(text) - 3).spans
    assert (span.label, span.end) == ("The death of the King", len(text) - 3)


# The cut at a token


@cache
def merging_tokenizer() -> ChatTokenizer:
    """A tokenizer with merges, in which a sign and the line breaks after it are one token, as in Qwen and Llama 3."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    pieces = Regex(r"[^\s\w]+\n*|\s?\w+|\s+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pieces, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator(["there lived a King in the North.\n\nHe lived there in the end.\n\n"] * 9, trainer)
    return ChatTokenizer(backend, "{% for m in messages %}{{ m['content'] }}{% endfor %}")


WORDS = st.lists(st.sampled_from(["there ", "lived", ". ", ".\n\n", "in", "\n", "é", "🦊", "King", "</s>"]), min_size=1)


@given(WORDS.map("".join), st.integers(0, 200), st.booleans())
def test_the_tokens_before_a_cut_are_the_first_of_the_whole(text, end, merges):
    tokenizer = merging_tokenizer() if merges else chat_tokenizer_of(make_tokenizer(), 257)
    cut = cut_at_token(tokenizer, text, end)
    assert cut.characters <= max(0, end)
    beginning = text[: cut.characters]
    assert beginning == beginning.rstrip()
    whole, part = (
        tokenizer.encode_chat([{"role": "user", "content": content([t], QUESTION, ASK)}]) for t in (text, beginning)
    )
    same, decode = common(whole, part), tokenizer.stream()
    spelled = "".join(map(decode, whole[:same]))
    assert not beginning or f"Document:\n{beginning.lstrip()}" in spelled, "all of it is of tokens of the whole"
    assert cut.tokens <= same
    assert cut.tokens > 0 or not beginning


def test_a_cut_loses_no_more_than_a_token():
    tokenizer = merging_tokenizer()
    text = "there lived a King. He lived there"
    assert text[: cut_at_token(tokenizer, text, 15).characters] == "there lived a"
    assert text[: cut_at_token(tokenizer, text, 19).characters] == "there lived a King", "the point and the line break"


# Whole documents


def logits(s, file: Path, until: str = "", keep: bool = False) -> dict:
    """The logits after each position that was computed for one question."""
    recorder = Recorder(s)
    asked = s.workflows.questions.ask([str(file)], QUESTION, keep, until=until)
    list(drive(asked, lambda feed: recorder([feed])[0]))
    return list(recorder.of.values())[-1]


@pytest.fixture(scope="module", params=["llama", "gemma2"])
def model(request, sharp_model, tmp_path_factory) -> Path:
    """A model that attends to all, and one with layers that slide over fewer tokens than the document has."""
    if request.param == "llama":
        return sharp_model
    from transformers import Gemma2Config, Gemma2ForCausalLM

    folder = tmp_path_factory.mktemp("models") / "gemma2"
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 260, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 70}
    config = Gemma2Config(**sizes, **heads, bos_token_id=256, eos_token_id=257, pad_token_id=0)
    Gemma2ForCausalLM(config).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("mark", ["30%", "71.3%", "river 11 is"])
def test_logits_are_those_of_a_file_cut_there_also_from_kept_pages(home, model, document, tmp_path, mark):
    text = document.read_text()
    with session(home, model, dtype="f32", kv="f32", draft=0) as s:
        characters = cut_at_token(s.model.tokenizer, text, find_mark(document_of(text), mark)).characters
        cut = tmp_path / "cut.txt"
        cut.write_text(text[:characters])
        of_file = logits(s, cut)
        list(s.prepare(str(document)))
        kept = logits(s, document, mark, keep=True)
    shared = kept.keys() & of_file.keys()
    assert len(shared) > 10
    assert max(kept) == max(of_file)
    assert all(torch.equal(kept[at], of_file[at]) for at in shared)
    if s.runtime.paged_model.shape.window is None:  # or it goes on where a window is kept: here at the end alone
        assert min(kept) >= (characters // PAGE - 1) * PAGE, "what was kept was read again"


def test_kept_pages_of_the_whole_are_those_of_its_beginning(home, sharp_model, document):
    with session(home, sharp_model, max_tokens=2) as s:
        list(s.prepare(str(document)))
        with closing(Store(home)) as store:
            before = {row["name"] for row in store.db.query("SELECT name FROM pages")}
        answer = s.ask(QUESTION, [str(document)], until="60%")
        again = s.ask(QUESTION, [str(document)], until="60%")
        whole = s.ask(QUESTION, [str(document)])
    read = answer.until
    assert answer.stats.reused >= read["tokens"] // PAGE * PAGE
    assert again.stats.reused >= answer.stats.reused
    assert whole.stats.reused > again.stats.reused, "its beginning took nothing from the whole"
    assert (read["mark"], read["of_characters"]) == ("60%", len(document.read_text()))
    assert document.read_text()[: read["characters"]].endswith(read["last_words"].split()[-1])
    with closing(Store(home)) as store:
        after = {row["name"] for row in store.db.query("SELECT name FROM pages")}
        (stored,) = store.documents.all()
        assert store.documents.text(stored.id) == document.read_text()
        assert not store.documents.damaged()
    assert before <= after
    assert len(after - before) <= 1, "the last page alone is another"


def test_a_document_asked_about_its_beginning_first_is_stored_whole(home, sharp_model, document):
    for mode in ("full", "retrieve"):
        with session(home / mode, sharp_model, max_tokens=2, mode=mode) as s:
            s.ask(QUESTION, [str(document)], until="30%")
        with closing(Store(home / mode)) as store:
            (row,) = store.documents.all()
            assert store.documents.text(row.id) == document.read_text()


# What is told


@pytest.fixture(scope="module")
def rivers(tmp_path_factory) -> Path:
    """Numbered paragraphs, so that all that is told says where it stands."""
    path = tmp_path_factory.mktemp("texts") / "rivers.md"
    paragraph = (
        "The river n{0} rises among the hills of slate near mark{0}, and it is {0}7 km long in all, as n{0} says.\n"
    )
    path.write_text("\n".join(f"# Part p{i}\n\n" + paragraph.format(i) * 3 for i in range(12)))
    return path


@pytest.fixture(scope="module")
def sessions(sharp_model, tmp_path_factory):
    """A session that reads whole documents, and one that reads passages."""
    home = tmp_path_factory.mktemp("home")
    how = {"max_tokens": 8, "mode": "retrieve"}
    with session(home, sharp_model, **how) as passages, session(home, sharp_model, **how | {"mode": "full"}) as whole:
        yield passages, whole


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(2, 100), st.integers(0, 11), st.booleans(), st.integers(1, 3))
def test_nothing_after_the_mark_is_cited_quoted_or_listed(sessions, rivers, percent, asked, whole, passages):
    s, text = sessions[whole], read_document(str(rivers)).text
    s.change(s.settings.__class__(**{**vars(s.settings), "passages": passages}))
    events = list(s.stream(f"What is told of the river n{asked} near mark{asked}?", [str(rivers)], until=f"{percent}%"))
    report = events[-1].report.to_json()
    end = report["until"]["characters"]
    assert end <= len(text) * percent / 100
    for place in (*report["citations"], *report["passages"]):
        assert place["end"] <= end
        assert text[place["start"] : place["end"]] == place.get("quote", place.get("text"))
    unread = {f"n{i}" for i in range(12)} - set(text[:end].replace(",", " ").split()) - {f"n{asked}"}
    told = json.dumps([report["citations"], report["passages"], report["until"]])
    assert not unread & set(told.replace(",", " ").replace("\\n", " ").split())


def test_of_what_lies_before_the_mark_as_many_passages_are_found_as_of_a_whole_document(sessions, rivers):
    """What comes after it takes no place among the candidates."""
    report = list(sessions[0].stream("What is near mark11, mark10 and mark9?", [str(rivers)], until="70%"))[-1].report
    assert len(report.passages) == 5


# Chats, the command


def test_a_chat_may_read_on_and_forgets_what_is_further_on_where_it_goes_back(home, sharp_model, document):
    with session(home, sharp_model, max_tokens=4, mode="full", draft=0) as s:
        chat = s.workflows.chats.start([str(document)]).id

        def ask(until: str) -> tuple[dict, list[str]]:
            *events, done = s.run(s.workflows.chats.ask(chat, QUESTION, until))
            return done.report.to_json(), [e.text for e in events if hasattr(e, "text") and not hasattr(e, "id")]

        first, notes = ask("30%")
        second, _ = ask("60%")
        third, _ = ask("")
        back, told = ask("30%")
        messages = s.store.chats.messages(chat)
        with pytest.raises(UsageError, match="does not occur"):
            ask("nowhere")
        assert len(s.store.chats.messages(chat)) == len(messages), "a mark that is not there stores no question"
    assert any(note.startswith("read up to") for note in notes)
    assert "until" not in third
    history = len(QUESTION) + 4
    assert second["tokens"]["prompt"] > first["tokens"]["prompt"] + 0.3 * 700 * 0.9 + history
    assert any("a later place of the document are not used" in note for note in told)
    # of the four answers before it only the first was given from so little
    assert first["tokens"]["prompt"] < back["tokens"]["prompt"] < second["tokens"]["prompt"]
    marks = [m.stats.get("until", {}).get("mark") for m in messages if m.role == "assistant"]
    assert marks == ["30%", "60%", None, "30%"]


def test_the_command_tells_where_it_stopped_and_refuses_several_documents(run, tiny_model, document, tmp_path):
    how = ("--model", tiny_model, "--max-tokens", "2", "--until")
    done = run("ask", document, QUESTION, "--json", *how, "River 3 is 111 km")
    until = json.loads(done.stdout)["until"]
    assert document.read_text()[: until["characters"]].endswith("River 3 is 111 km")
    assert 'read up to "… 74 km long. River 3 is 111 km" (13 % of the document)' in done.stderr
    other = tmp_path / "other.txt"
    other.write_text("Lakes.")
    for arguments in ((document, other, QUESTION), ("--library", QUESTION)):
        done = run("ask", *arguments, *how, "40%")
        assert done.returncode == 2
        assert done.stderr == "localctx: --until needs exactly one document; ask one file, or leave out --until\n"
    done = run("ask", document, QUESTION, *how, "page 2")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "rivers.txt has no pages; give a share of it (--until 40%)" in done.stderr


def test_a_pdf_is_read_to_the_end_of_a_page(run, tiny_model, tmp_path):
    file = tmp_path / "book.pdf"
    file.write_bytes(pdf(["The first page is about rivers.", "The second is about lakes.", "The third is about seas."]))
    done = run("ask", file, QUESTION, "--model", tiny_model, "--max-tokens", "2", "--until", "2", "--json")
    assert json.loads(done.stdout)["until"]["last_words"].endswith("The second is about lakes.")


def test_chat_takes_a_place_and_a_command_that_changes_it(run, tiny_model, document):
    how = ("--model", tiny_model, "--max-tokens", "2", "--json", "--until", "30%")
    done = run("chat", document, *how, stdin=b"Why?\n/until 60%\nWhy?\n/until\nWhy?\n")
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report.get("until", {}).get("mark") for report in reports] == ["30%", "60%", None]
    tokens = np.array([report["tokens"]["prompt"] for report in reports])
    assert (np.diff(tokens) > 150).all()
