"""Embedding models in GGUF: vectors as transformers computes them, and what is no embedding model."""

import numpy as np
import pytest
from required_extras import needs_llama
from tiny_bert import tiny_bert, write_bert_gguf
from tiny_ggufs import write_tiny_gguf

from localctx.errors import ModelError
from localctx.models.embedder import LlamaEmbedder, load_embedder

TEXTS = ["a b c", "the river is long and the lake is deep", "q", *(f"{letter} lamp" for letter in "abcdefgh")]

pytestmark = needs_llama


@pytest.fixture(scope="module")
def module():
    return tiny_bert()


@pytest.fixture(scope="module")
def path(module, tmp_path_factory):
    return write_bert_gguf(tmp_path_factory.mktemp("models") / "tiny-bert.gguf", module)


@pytest.fixture(scope="module")
def embedder(path):
    return load_embedder(str(path), path.parent / "models", lambda *p: None, path.parent / "tried")


@pytest.mark.parametrize("text", TEXTS[:3])
def test_a_vector_is_that_of_transformers(embedder, module, text):
    import torch

    _, tokenizer = embedder._loaded
    tokens = tokenizer.encode_text(text)
    assert (tokens[0], tokens[-1]) == (2, 3), "between [CLS] and [SEP]"
    with torch.inference_mode():
        mean = module(torch.tensor([tokens])).last_hidden_state[0].mean(0).numpy()
    (vector,) = embedder.embed([text])
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=0.01)


def test_a_vector_does_not_hang_on_the_texts_beside_it(embedder):
    together = embedder.embed(TEXTS)
    assert together.shape == (len(TEXTS), 32)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embedder.embed([text])[0], vector, atol=1e-3)
    assert together[0] @ together[1] < 0.999


def test_a_long_text_is_cut_and_an_empty_one_has_a_vector(embedder):
    one, other = embedder.embed(["river " * 100, "river " * 200])  # past the window of 64
    np.testing.assert_allclose(one, other, atol=1e-3)
    assert np.isfinite(embedder.embed(["", "?"])).all()


def test_a_file_is_tried_once_and_its_content_names_it(path, module, tmp_path, monkeypatch):
    tried, trials = tmp_path / "tried", []
    from localctx.models.llama_cpp import embeddings as llama_embeddings

    run_trial = llama_embeddings.run_trial
    monkeypatch.setattr(llama_embeddings, "run_trial", lambda *a: trials.append(a) or run_trial(*a))
    first, second = LlamaEmbedder(path, "tiny", tried), LlamaEmbedder(path, "tiny", tried)
    assert len(trials) == 1
    assert first.name == second.name
    other = write_bert_gguf(tmp_path / "other.gguf", module, pooling=2)
    assert LlamaEmbedder(other, "tiny", tried).name != first.name
    assert len(trials) == 2


def test_what_makes_no_vectors_is_refused(module, tmp_path):
    chat = write_tiny_gguf(tmp_path / "chat.gguf", "llama")
    silent = write_bert_gguf(tmp_path / "silent.gguf", module, pooling=None)
    ranks = write_bert_gguf(tmp_path / "ranks.gguf", module, pooling=4)
    for path in (chat, silent, ranks):
        with pytest.raises(ModelError, match=r"cannot make vectors.*--embedder none"):
            load_embedder(str(path), tmp_path, lambda *p: None)
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(ModelError, match="not a complete GGUF"):
        load_embedder(str(tmp_path / "text.gguf"), tmp_path, lambda *p: None)


@pytest.mark.slow
def test_search_takes_it(run, path, tmp_path, monkeypatch):
    document = tmp_path / "lamps.txt"
    document.write_text("\n\n".join(f"lamp {letter} is lit by keeper {letter}" for letter in "abcdefgh"))
    monkeypatch.setenv("LOCALCTX_EMBEDDER", str(path))
    assert run("library", "add", document).returncode == 0
    done = run("library", "search", "who lights lamp c", "--json")
    assert done.returncode == 0, done.stderr
    assert '"vectors"' in done.stdout
