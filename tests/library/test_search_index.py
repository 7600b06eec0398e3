"""Chunks respect structure, the index follows its documents, and search finds what it should, vectors or not."""

import hashlib
import itertools
import json
import random
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localctx.cli.printing import print_marked
from localctx.errors import ModelError
from localctx.library.search.chunk import MAX_CHUNK, TARGET, VIEW, chunks, views
from localctx.library.search.indexing import WORDS_AT_ONCE, index, index_steps, unindexed, unsearchable
from localctx.library.search.search import fuse, join_adjacent, query_pattern, search, search_library
from localctx.models.embedder import TransformerEmbedder, load_embedder
from localctx.models.hub.resolve import resolve_model
from localctx.settings.table import EMBEDDER
from localctx.store.documents import DocumentRow, Span
from localctx.store.store import Store

pytestmark = pytest.mark.slow

# --- Chunks

WORDS = st.text("ab. \n\t\u3000。é", max_size=60) | st.sampled_from(
    ["word " * 600, "x" * 3000, "A line.\n" * 400, "\n\n"]
)
TEXTS = st.lists(WORDS, max_size=12).map("".join)


@given(TEXTS, st.lists(st.integers(0, 5000), max_size=4), st.booleans())
@settings(deadline=None, max_examples=200)
def test_chunks_hold_all_that_is_visible_once_in_order_and_within_bounds(text, edges, lines):
    edges = sorted({min(e, len(text)) for e in edges})
    spans = [Span(a, b, "heading", "") for a, b in pairwise([*edges, len(text)]) if a < b]
    found = list(chunks(text, spans, lines))
    at = 0
    for c in found:
        assert not text[at : c.start].strip()
        assert 0 < c.end - c.start <= MAX_CHUNK
        assert text[c.start : c.end] == text[c.start : c.end].strip()
        assert not any(c.start < e < c.end for e in edges)
        parts = list(views(text, c, lines))
        assert all(v.end - v.start <= VIEW for v in parts)
        assert [ch for v in parts for ch in text[slice(*v)] if not ch.isspace()] == [
            ch for ch in text[slice(*c)] if not ch.isspace()
        ]
        at = c.end
    assert not text[at:].strip()


def paragraph(words: int, seed: int = 0) -> str:
    return " ".join(random.Random(seed).choices(["river", "stone", "cloud", "field", "grass", "night"], k=words)) + "."


def cut(text: str, *args, **how) -> list[str]:
    return [text[slice(*c)] for c in chunks(text, *args, **how)]


def test_a_paragraph_is_a_chunk():
    paragraphs = [paragraph(n) for n in (30, 120, 150, 300)]
    assert cut("\n\n".join(paragraphs)) == paragraphs


def test_short_neighbours_join_but_not_across_a_heading():
    lines = [f"- point {i} is short" for i in range(6)]
    text = "\n\n".join(["# One", *lines[:3], "# Two", *lines[3:]])
    two = text.index("# Two")
    spans = [Span(0, two, "heading", "One"), Span(two, len(text), "heading", "Two")]
    assert cut(text, spans) == [text[:two].strip(), text[two:]]
    assert cut(text) == [text]


def test_a_long_paragraph_is_divided_at_sentence_ends():
    sentences = [paragraph(40, i) for i in range(30)]
    parts = cut(" ".join(sentences))
    assert " ".join(parts) == " ".join(sentences)
    assert all(p.endswith(".") and TARGET - 300 < len(p) <= TARGET for p in parts[:-1])


def test_a_table_is_divided_at_line_ends():
    rows = [f"{i},no. {i}. of many,{i * 7}" for i in range(300)]
    parts = cut("\n".join(rows), lines=True)
    assert len(parts) > 4
    assert "\n".join(parts).split("\n") == rows


# --- The index


def add(store: Store, name: str, text: str, spans: Sequence[Span] = ()) -> DocumentRow:
    now = time.time()
    row = DocumentRow(hashlib.sha256(text.encode()).hexdigest(), name, f"/t/{name}", "utf-8", 0, len(text), now, now)
    store.documents.add(row, text, spans)
    return row


class Letters:
    """An embedder without a model: a text's letters, counted."""

    def __init__(self, name: str = "letters") -> None:
        self.name, self.texts = name, list[str]()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += texts
        counts = np.array(
            [[t.lower().count(c) + 0.01 for c in "abcdefghijklmnopqrstuvwxyz"] for t in texts], np.float32
        )
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    def embed_query(self, query: str) -> np.ndarray:
        return self.embed([query])[0]


ZEBRAS = "Zebras graze near Zanzibar.\n\n" + paragraph(100)
TAXES = "# Taxes\n\n" + paragraph(90, 1) + "\n\nThe taxes were raised in Quito.\n\n" + paragraph(95, 2)


@pytest.fixture
def library(store) -> tuple[DocumentRow, DocumentRow]:
    rows = add(store, "zebras.txt", ZEBRAS), add(store, "money.md", TAXES, [Span(0, len(TAXES), "heading", "Taxes")])
    for row in rows:
        index(store, row, None)
    return rows


def words_kept(store: Store) -> set[tuple]:
    """Every word of the full-text index, and in how many chunks it is."""
    store.db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab(main, chunk_words, row)")
    store.db.execute("INSERT INTO chunk_words (chunk_words) VALUES ('integrity-check')")
    return set(store.db.execute("SELECT * FROM temp.vocabulary").fetchall())


def test_what_is_found_is_the_text_where_it_is(store, library):
    (first, *_) = search(store, "tax raises?", None).passages
    assert TAXES[first.start : first.end] == first.text
    assert "raised in Quito" in first.text
    assert (first.name, first.heading, first.page, first.ranks) == ("money.md", "Taxes", None, {"words": 1})


def test_a_page_is_told(store):
    text = paragraph(100) + "\n\n" + "The comet came back. " + paragraph(100, 3)
    half = text.index("The comet")
    row = add(store, "book.pdf", text, [Span(0, half, "page", "1"), Span(half, len(text), "page", "2")])
    index(store, row, None)
    assert search(store, "comet", None).passages[0].page == "2"


def test_a_search_may_be_of_some_documents(store, library):
    zebras, money = library
    assert {p.document for p in search(store, "river", None).passages} == {zebras.id, money.id}
    assert {p.document for p in search(store, "river", None, [money.id]).passages} == {money.id}
    assert search(store, "zebras", None, [money.id]).passages == []
    assert len(search(store, "river", None, top=1).passages) == 1


def test_a_name_and_a_heading_are_searched_too(store, library):
    assert {p.name for p in search(store, "money", None).passages} == {"money.md"}
    assert len(search(store, "money", None).passages) == store.index.coverage(None, [library[1].id])[0]


def test_removing_a_document_leaves_nothing_of_it_in_the_index(store, library):
    index(store, library[1], Letters())
    kept = words_kept(store)
    other = add(store, "other.txt", "Something else entirely.\n\nZebras.")
    index(store, other, Letters())
    store.remove_document(other.id)
    assert words_kept(store) == kept
    for row in library:
        store.remove_document(row.id)
    assert words_kept(store) == set()
    assert store.db.table("chunks").count == store.db.table("vectors").count == 0
    assert search(store, "zebras", Letters()).passages == []


def test_a_document_removed_by_another_process_is_no_longer_found_by_its_vectors(home, store, library):
    embedder = Letters()
    for row in library:
        index(store, row, embedder)
    assert search(store, "zebra", embedder).passages
    with closing(Store(home)) as other:
        other.remove_document(library[0].id)
    assert {p.document for p in search(store, "zebra zigzag", embedder).passages} == {library[1].id}


def test_vectors_made_for_a_chunk_that_went_meanwhile_are_not_given_to_another(store, library):
    _, money = library
    stale = store.index.of_document(money.id)
    store.remove_document(money.id)
    again = add(store, "new.txt", paragraph(80, 5))
    index(store, again, None)
    assert {c.id for c in store.index.of_document(again.id)} & {c.id for c in stale}
    store.index.put_vectors("letters", stale, [np.ones((1, 26))] * len(stale))
    assert store.index.coverage("letters") == (store.db.table("chunks").count, 0)


ANY = st.text() | st.text("\"*^:(){}-+.,\\' ANDORNEAR", max_size=30)


@given(ANY)
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_typed_is_a_query(store, text):
    if not store.documents.all():
        index(store, add(store, "a.txt", ZEBRAS), None)
    search(store, text, None)


@pytest.mark.parametrize(
    "text", ["x\0y", "\udcff zebras", " ".join(map(str, range(5000))), "a" * 100_000, "AND", "the"]
)
def test_an_odd_query_does_no_harm(store, library, text):
    found = search(store, text, Letters()).passages
    assert bool(found) == (text in ("\udcff zebras", "the"))


def test_common_words_count_where_there_are_no_others(store):
    index(store, add(store, "a.txt", "To be or not to be."), None)
    assert search(store, "to be", None).passages
    assert search(store, "to walk", None).passages == []


# --- Vectors


def test_vectors_find_what_words_do_not(store, library):
    embedder = Letters()
    zebras, money = library
    assert unindexed(store, None) == []
    for row in unindexed(store, embedder):
        index(store, row, embedder)
    found = search(store, "zzzeb", embedder)
    assert found.passages[0].document == zebras.id
    assert found.passages[0].ranks == {"vectors": 1}
    assert found.words_only == 0
    assert {p.document for p in search(store, "zzzeb", embedder, [money.id]).passages} == {money.id}


def test_without_vectors_words_decide_and_that_is_told(store, library):
    zebras, money = library
    total = store.index.coverage(None)[0]
    assert search(store, "zebras", None).words_only == total
    index(store, zebras, Letters())
    found = search(store, "taxes", Letters())
    assert money.id in {p.document for p in found.passages}
    assert 0 < found.words_only == store.index.coverage(None, [money.id])[0] < found.chunks == total


def test_vectors_of_another_embedder_are_not_used_and_are_made_again(store, library):
    zebras, _ = library
    index(store, zebras, Letters())
    other = Letters("other")
    assert search(store, "zzz", other).passages == []
    assert other.texts == []  # there is nothing to compare with
    index(store, zebras, other)
    assert store.index.coverage("other", [zebras.id]) == store.index.coverage(None, [zebras.id])[:1] * 2
    assert store.index.coverage("letters") == (store.db.table("chunks").count, 0)


def test_indexing_again_does_nothing(store, library):
    embedder = Letters()
    index(store, library[0], embedder)
    before, asked = store.db.conn.total_changes, len(embedder.texts)
    index(store, library[0], embedder)
    assert (store.db.conn.total_changes, len(embedder.texts)) == (before, asked)


def test_an_indexing_that_is_left_goes_on_where_it_ended(store):
    row = add(store, "long.txt", "\n\n".join(paragraph(90, i) for i in range(3 * WORDS_AT_ONCE)))
    next(index_steps(store, [row], None))
    assert not store.index.has(row.id)
    assert unsearchable(store)[0].share == pytest.approx(1 / 3, rel=0.01)
    assert search(store, "river", None).chunks == WORDS_AT_ONCE
    embedder = Letters()
    for step in index_steps(store, [row], embedder):
        if step.done > 0.4 * step.total:
            break
    total, done = store.index.coverage("letters", [row.id])
    assert total == 3 * WORDS_AT_ONCE
    assert 0 < done < total
    assert (unindexed(store, embedder), unsearchable(store)) == ([row], [])
    asked = len(embedder.texts)
    index(store, row, embedder)
    assert store.index.coverage("letters", [row.id]) == (total, total)
    assert len(set(embedder.texts[:asked]) & set(embedder.texts[asked:])) == 0


def test_progress_never_goes_back_and_tells_the_time_left(store):
    rows = [add(store, f"{i}.txt", "\n\n".join(paragraph(90, 40 * i + j) for j in range(40))) for i in range(3)]
    now = itertools.count()
    steps = list(index_steps(store, rows, Letters(), clock=lambda: float(next(now))))
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[0] < 0.02 * steps[0].total
    assert steps[-1].done > 0.99 * steps[-1].total
    left = [step.eta for step in steps]
    assert left[:3] == [None] * 3  # words say nothing about vectors
    assert left[-1] == pytest.approx(0, abs=1)
    halfway = left[len(left) // 2]
    assert halfway == pytest.approx(len(left) / 2, rel=0.2)  # a step takes one second of this clock


def test_a_run_that_goes_on_begins_with_the_progress_of_the_last(store):
    row = add(store, "long.txt", "\n\n".join(paragraph(90, i) for i in range(2 * WORDS_AT_ONCE)))
    last = list(itertools.islice(index_steps(store, [row], Letters()), 10))[-1]
    again = next(index_steps(store, [row], Letters()))
    assert last.done <= again.done


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_document_that_is_removed_meanwhile_ends_the_indexing(store, steps):
    row = add(store, "long.txt", "\n\n".join(paragraph(90, i) for i in range(2 * WORDS_AT_ONCE)))
    running = index_steps(store, [row], Letters())
    for _ in range(steps):
        next(running)
    store.remove_document(row.id)
    assert list(running) == []
    assert words_kept(store) == set()
    assert store.db.table("chunks").count == store.db.table("indexed").count == 0


def test_two_processes_that_index_at_once_index_everything_once(home, store):
    row = add(store, "long.txt", "\n\n".join(paragraph(90, i) for i in range(3 * WORDS_AT_ONCE)))
    with closing(Store(home)) as other:
        running = [index_steps(s, [row], None) for s in (store, other)]
        next(running[0])
        for one in running:
            list(one)
        for _ in index_steps(other, [row], None):
            pass
    assert store.index.coverage(None) == (3 * WORDS_AT_ONCE, 0)
    assert store.index.has(row.id)


def test_a_long_document_is_removed_in_short_transactions(home, store, monkeypatch):
    monkeypatch.setattr("localctx.store.store.CHUNKS_AT_ONCE", 16)
    row = add(store, "long.txt", "\n\n".join(paragraph(90, i) for i in range(100)))
    index(store, row, Letters())
    seen = []
    remove = store.index.remove

    def watched(*args: object) -> bool:
        with closing(Store(home)) as other:
            seen.append(other.index.count(row.id))
        return remove(*args)

    monkeypatch.setattr(store.index, "remove", watched)
    store.delete("document", row.id)
    assert seen == [100, 84, 68, 52, 36, 20, 4]
    assert words_kept(store) == set()
    assert store.db.table("vectors").count == 0


def test_vectors_added_after_a_search_are_found_by_the_next(home, store, library):
    zebras, money = library
    embedder = Letters()
    index(store, money, embedder)
    assert search(store, "zzz", embedder).words_only > 0
    with closing(Store(home)) as other:
        index(other, zebras, embedder)
    assert search(store, "zzzeb", embedder).passages[0].document == zebras.id
    other_row = add(store, "zoo.txt", "zzz zzz zzz")
    index(store, other_row, embedder)
    assert search(store, "zzz", embedder).passages[0].document == other_row.id
    store.erase()  # renumbers rows
    index(store, add(store, "more.txt", "zzzy zzzy"), embedder)
    assert {"more.txt", "zoo.txt"} <= {p.name for p in search(store, "zzzy", embedder).passages}


def test_older_versions_are_marked_and_come_last(store):
    old, new = "The rent of the mill is 1200 crowns a month.", "Rent review: from now on it is 1450 crowns."
    for text in (old, new):
        index(store, add(store, "lease.txt", text), None)
    other = add(store, "mill.txt", "A mill by the river.")
    index(store, other, None)
    found = search_library(store, "rent of the mill", None).passages
    assert [(p.name, bool(p.superseded)) for p in found][-1] == ("lease.txt", True)
    assert [bool(p.superseded) for p in found] == [False] * (len(found) - 1) + [True]
    assert [p.text for p in search_library(store, "rent of the mill", None, top=1).passages] != [old]


def test_fusion_prefers_what_both_lists_found():
    scores = fuse({"words": [1, 2, 3], "vectors": [4, 2, 5]})
    assert sorted(scores, key=scores.__getitem__) == [5, 4, 3, 1, 2]


def test_neighbours_are_joined_and_strangers_are_not(store):
    paragraphs = [f"Comet {i}. " + paragraph(80, i) for i in range(5)]
    text = "\n\n".join(paragraphs)
    index(store, add(store, "sky.txt", text), None)
    found = {p.text: p for p in search(store, "comet", None).passages}
    picked = [found[paragraphs[i]] for i in (4, 1, 0)]
    joined = join_adjacent(store, picked)
    assert {p.text for p in joined} == {paragraphs[4], "\n\n".join(paragraphs[:2])}
    assert all(text[p.start : p.end] == p.text for p in joined)
    assert joined[0].score == max(p.score for p in picked)


# --- Embedders


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory) -> Path:
    """A random BERT of two layers whose tokens are letters."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("encoders") / "tiny"
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz"]
    backend = Tokenizer(models.WordLevel({n: i for i, n in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(names), max_position_embeddings=64, **sizes)).save_pretrained(folder)
    return folder


def test_a_vector_does_not_hang_on_the_texts_beside_it(tiny_encoder, tmp_path):
    encoder = load_embedder(str(tiny_encoder), tmp_path, lambda *p: None)
    together = encoder.embed(["abc", "a much longer text than that"])
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(together[0], encoder.embed(["abc"])[0], atol=0.02)  # bf16 on some machines
    assert together[0] @ together[1] < 0.999
    long = encoder.embed(["abcdefgh" * 100, "abcdefgh" * 200])  # past the window of 64
    np.testing.assert_allclose(long[0], long[1], atol=0.02)


def test_a_vector_is_the_mean_of_the_tokens(tiny_encoder):
    import torch
    from transformers import AutoModel, AutoTokenizer

    batch = AutoTokenizer.from_pretrained(tiny_encoder)("abc", return_tensors="pt")
    with torch.inference_mode():
        mean = AutoModel.from_pretrained(tiny_encoder)(**batch).last_hidden_state[0].mean(0).numpy()
    np.testing.assert_allclose(
        TransformerEmbedder(tiny_encoder, "t").embed(["abc"])[0], mean / np.linalg.norm(mean), atol=0.02
    )


def test_other_weights_are_another_embedder(tiny_encoder, tmp_path):
    copy = shutil.copytree(tiny_encoder, tmp_path / "copy")
    assert TransformerEmbedder(copy, "tiny").name == TransformerEmbedder(tiny_encoder, "tiny").name
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\1")
    assert TransformerEmbedder(copy, "tiny").name != TransformerEmbedder(tiny_encoder, "tiny").name


def test_no_embedder_is_none_and_a_wrong_one_is_refused(tmp_path, tiny_model):
    assert load_embedder("none", tmp_path, lambda *p: None) is None
    with pytest.raises(ModelError, match="not a model that makes vectors"):
        load_embedder("smollm2-135m-instruct", tmp_path, lambda *p: None)
    with pytest.raises(ModelError, match="not a model that answers"):
        resolve_model(EMBEDDER, tmp_path, lambda *p: None)


# --- The command


@pytest.fixture
def shelf(store, library, tiny_encoder, monkeypatch) -> None:
    monkeypatch.setenv("LOCALCTX_EMBEDDER", str(tiny_encoder))
    add(store, "late.txt", "A quasar was seen.")


def test_the_command_indexes_and_finds(shelf, run):
    done = run("library", "search", "quasar", "--json", "--top", 2, "--embedder", "all-minilm-l6-v2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["words_only"] == 0
    assert found["passages"][0]["name"] == "late.txt"
    assert found["passages"][0]["ranks"].keys() == {"words", "vectors"}
    assert len(found["passages"]) == 2


def test_the_command_without_vectors_says_so_and_colours_nothing_in_a_pipe(shelf, run):
    done = run("library", "search", "taxes in Quito", "--embedder", "none", "--document", "money.md")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("money.md, “Taxes”, characters ")
    assert "\nThe taxes were raised in Quito." in done.stdout
    assert "\x1b" not in done.stdout
    assert "searched by their words alone" in done.stderr


def test_an_embedder_that_cannot_be_had_costs_only_the_vectors(shelf, run, tmp_path):
    done = run("library", "search", "taxes", "--embedder", tmp_path / "nowhere")
    assert done.returncode == 0
    assert "Taxes" in done.stdout
    assert "nowhere" in done.stderr
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "config.json").write_text("{}")
    (tmp_path / "nowhere" / "model.safetensors").write_bytes(b"no weights")
    done = run("library", "search", "taxes", "--embedder", tmp_path / "nowhere")
    assert done.returncode == 0
    assert "model.safetensors is not a complete" in done.stderr
    assert "Taxes" in done.stdout


def test_nothing_and_an_unknown_document(run, home):
    done = run("library", "search", "taxes", "--embedder", "none")
    assert (done.returncode, done.stdout) == (0, "")
    assert "empty" in done.stderr
    assert run("library", "search", "taxes", "--document", "x.txt").returncode == 1


def test_matching_words_are_marked(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    print_marked("Animals", "The Zebra, the zebras.", query_pattern("zebra ("))
    assert "The \x1b[33mZebra\x1b[0m, the zebras.\n" in capsys.readouterr().out
    print_marked("Animals", "Is it the zebra?", query_pattern("How is the zebra?"))
    assert "Is it the \x1b[33mzebra\x1b[0m?\n" in capsys.readouterr().out, "as 'is' and 'the' are everywhere"
    print_marked("Sums", "a+b", query_pattern("?!"))
    assert capsys.readouterr().out.endswith("\na+b\n")


# --- The real one


def test_the_default_embedder_knows_what_words_mean(pull, store):
    """Fetched as a first search would, or the user's own copy."""
    embedder = load_embedder(EMBEDDER, pull(EMBEDDER), lambda *p: None)
    texts = ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "Interest rates rose by a quarter point."]
    a, b, c = embedder.embed(texts)
    assert a @ b > 0.55 > 0.25 > a @ c
    row = add(store, "notes.txt", "\n\n".join(text + " " + paragraph(30, i) for i, text in enumerate(texts)))
    index(store, row, embedder)
    assert search(store, "What did the central bank do?", embedder).passages[0].text.startswith("Interest")
