"""The embedder of many languages: its tokenizer is read without transformers, and its prefixes are the catalogue's."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_bert import save_multilingual_bert

from localctx.models import embedder
from localctx.models.catalog import load_catalog
from localctx.models.embedder import TransformerEmbedder, load_embedder

ENTRY = load_catalog()["multilingual-e5-small"]
TEXTS = ["a query: abc", "passage: der mieter", "租金", "", "<mask> </s>", "  two   blanks ", "x" * 300]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_multilingual_bert(tmp_path_factory.mktemp("encoders") / "tiny")


def test_its_vectors_are_those_of_transformers(folder):
    ours = embedder._bert_encoding(folder, torch.device("cpu"), torch.float32)
    theirs = embedder._transformers_encoding(folder, torch.device("cpu"), torch.float32)
    assert ours
    with torch.inference_mode():
        (hidden, mask), (expected, other_mask) = ours.encode(TEXTS), theirs.encode(TEXTS)
    assert torch.equal(mask, other_mask.to(mask.dtype))
    seen = mask.bool()
    torch.testing.assert_close(hidden[seen], expected[seen], rtol=0, atol=1e-5)


def test_questions_and_texts_get_their_prefixes_and_texts_as_they_are_none(folder):
    made = TransformerEmbedder(folder, "tiny", "query: ", "passage: ")
    plain = TransformerEmbedder(folder, "tiny")
    np.testing.assert_array_equal(made.embed_query("abc"), plain.embed(["query: abc"])[0])
    np.testing.assert_array_equal(made.embed(["abc"]), plain.embed(["passage: abc"]))
    np.testing.assert_array_equal(made.embed_and_count(["abc"])[0], plain.embed(["abc"]))
    assert made.name != plain.name  # vectors of the one are never compared with the other's


def test_the_prefixes_are_those_of_the_catalogue(folder, tmp_path, monkeypatch):
    entry = replace(ENTRY, query_prefix="ask ", passage_prefix="tell ")
    monkeypatch.setattr(embedder, "load_catalog", lambda: {entry.name: entry})
    monkeypatch.setattr(
        embedder, "resolve_model", lambda *args: Path(shutil.copytree(folder, tmp_path / "e5", dirs_exist_ok=True))
    )
    for name in (entry.name, "intfloat/multilingual-e5-small"):
        made, plain = load_embedder(name, tmp_path, lambda *p: None), TransformerEmbedder(folder, "tiny")
        np.testing.assert_array_equal(made.embed_query("abc"), plain.embed(["ask abc"])[0])
        np.testing.assert_array_equal(made.embed(["abc"]), plain.embed(["tell abc"]))


def test_its_entry_says_what_it_was_trained_with():
    assert (ENTRY.query_prefix, ENTRY.passage_prefix) == ("query: ", "passage: ")
    assert {"de", "en", "es", "fr", "zh"} <= ENTRY.languages
