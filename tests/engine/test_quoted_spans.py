"""Quoted spans: every answer is in the text word for word, its place is known, and it is the likeliest of all."""

import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.engine.coroutine import logits_for, requests_of, run_to_end
from localctx.engine.decoding import span_search
from localctx.engine.decoding.span_index import MAX_SPAN, SpanIndex, _possible_ends, _starts
from localctx.engine.decoding.span_search import SEPARATORS, QuotedAnswer, SpanSearch, likelihood_of

VOCABULARY = 384
STOP = 0
LIMIT = 10


class _Past:
    """What a fake model has read: stands for a cache."""

    def fork(self, **how) -> "_Past":
        return _Past()

    def drop(self) -> None:
        pass


class RandomModel:
    """Logits that depend on the tokens alone, at random; sharper where ``sharpness`` is higher."""

    def __init__(self, seed: int, sharpness: float) -> None:
        self.seed, self.sharpness = seed, sharpness

    def logits(self, tokens: tuple[int, ...]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(hash((self.seed, tokens)) % (1 << 40))
        return self.sharpness * torch.randn(VOCABULARY, generator=generator)

    def compute(self, forward) -> torch.Tensor | list[torch.Tensor]:
        return logits_for(forward, [self._rows(request) for request in requests_of(forward)])

    def _rows(self, request) -> torch.Tensor:
        tokens, count = tuple(request.tokens), len(request.tokens)
        return torch.stack([self.logits(tokens[: i + 1]) for i in range(count - request.num_logits, count)])

    def search(
        self, tokenizer, texts: list[str], max_runs: int = 3, limit: int = LIMIT
    ) -> tuple[SpanIndex, list[QuotedAnswer]]:
        index = SpanIndex(tokenizer, texts)
        search = SpanSearch(index, frozenset({STOP}), limit=limit, max_runs=max_runs)
        return index, run_to_end(search.run(_Past(), self.logits(())), self.compute)

    def likelihood(self, tokens: tuple[int, ...]) -> float:
        logs = [self.logits(tokens[:i]).log_softmax(-1) for i in range(len(tokens) + 1)]
        return float(sum(row[token] for row, token in zip(logs, (*tokens, STOP), strict=True)))


@pytest.fixture(scope="module")
def tokenizer(prose):
    """A byte-level tokenizer with a hundred merges: words of one and of several tokens, characters of several."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from localctx.models.tokenizer.chat_tokenizer import ChatTokenizer

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<s>"], initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([prose], trainer)
    return ChatTokenizer(backend, stop_ids=frozenset({STOP}))


def decoded(tokenizer, tokens) -> str:
    text_of = tokenizer.stream()
    return "".join(map(text_of, tokens))


def spelled(index: SpanIndex, answer: QuotedAnswer) -> Iterator[str]:
    """Yields what an answer reads at every combination of its first and its last places."""
    between = [f"{separator} ".replace("\n ", "\n") for separator in answer.separators]
    for which in (0, -1):
        words = [" ".join(index.words_at(places[which]).split()) for places in answer.places]
        yield "".join(part for pair in zip(words, [*between, ""], strict=True) for part in pair)


PIECES = (
    "the of and model pages The Denver Broncos, (TCR) U.S. 1,000 3.5% don't Denver's well-known “quoted” naïve café "
    "北京大学 Ελλάδα 😀 ... — $50m [12] A. x"
)
WORDS = st.sampled_from(PIECES.split(" "))
TEXTS = st.lists(
    st.builds(str.__add__, WORDS, st.sampled_from([" ", " ", " ", "\n", "  \n\n"])), min_size=1, max_size=12
)


@pytest.mark.slow
def test_every_quoted_answer_is_in_the_text_word_for_word(tokenizer, monkeypatch):
    monkeypatch.setattr(span_search, "MAX_PASSES", 3)
    checked = 0

    @settings(max_examples=1_500)
    @given(words=TEXTS, seed=st.integers(0, 1 << 30), sharpness=st.sampled_from([0.1, 1.0, 4.0]))
    def check(words, seed, sharpness):
        nonlocal checked
        text = "".join(words)
        index, found = RandomModel(seed, sharpness).search(tokenizer, [text])
        for answer in found:
            read = decoded(tokenizer, answer.tokens).strip()
            assert all(read == at for at in spelled(index, answer))
            assert all(is_of_words(text, start, end) for places in answer.places for _, start, end in places)
        checked += len(found)

    check()
    assert checked > 10_000


def is_of_words(text: str, start: int, end: int) -> bool:
    """Return True if a range begins where a word does, ends where one does, and has no white space around."""
    cut = [text[at - 1 : at + 1] for at in (start, end) if at]
    inside = any(len(two) == 2 and two.isascii() and two.isalnum() for two in cut)
    return bool(text[start:end].strip()) and text[start:end] == text[start:end].strip() and not inside


def test_the_likeliest_of_all_runs_is_found(tokenizer):
    chance = random.Random(5)
    vocabulary = ["the", "of", "and", "model", "pages", "Denver", "Broncos,", "(TCR)", "U.S.", "1,000", "don't"]
    for seed in range(60):
        text = " ".join(chance.choices(vocabulary, k=8))
        model = RandomModel(seed, 3.0)
        index, (best, *others) = model.search(tokenizer, [text], max_runs=1)
        assert best.likelihood == pytest.approx(model.likelihood(best.tokens), abs=1e-4)
        assert all(best.likelihood >= other.likelihood for other in others)
        assert best.likelihood == pytest.approx(max(map(model.likelihood, all_runs(index))), abs=1e-4)


def all_runs(index: SpanIndex) -> Iterator[tuple[int, ...]]:
    """Yields the tokens of every run of at most LIMIT tokens."""
    waiting = [((), index.begin("bare", "spaced"))]
    while waiting:
        tokens, state = waiting.pop()
        if index.places(state):
            yield tokens
        if len(tokens) < LIMIT:
            waiting += [((*tokens, int(t)), index.choose(state, int(t))) for t in index.next_tokens(state)]


def test_a_list_is_made_of_several_runs(tokenizer):
    class Scripted(RandomModel):
        def logits(self, tokens):
            wanted = (*tokenizer.encode("red, blue and green"), STOP)
            logits = torch.zeros(VOCABULARY)
            if tokens == wanted[: len(tokens)]:
                logits[wanted[len(tokens)]] = 20
            return logits

    text = "The blue one is new. It was green before, and red at first."
    index, (best, *_) = Scripted(0, 1).search(tokenizer, [text], limit=40)
    assert decoded(tokenizer, best.tokens) == "red, blue and green"
    assert [index.words_at(places[0]) for places in best.places] == ["red", "blue", "green"]
    assert best.separators == (",", " and")
    _, (alone, *_) = Scripted(0, 1).search(tokenizer, [text], max_runs=1, limit=40)
    assert len(alone.places) == 1


def test_no_run_goes_on_in_another_text(tokenizer):
    index = SpanIndex(tokenizer, ["one two", "three"])
    runs = {decoded(tokenizer, tokens).strip() for tokens in all_runs(index)}
    assert runs == {"one", "two", "one two", "three"}


def test_white_space_counts_as_one_space_and_places_are_of_the_text(tokenizer):
    text = "  Denver \n Broncos\tand the Denver Broncos"
    index = SpanIndex(tokenizer, [text])
    state = index.begin("bare")
    for token in tokenizer.encode("Denver Broncos"):
        state = index.choose(state, token)
    assert [index.words_at(place) for place in index.places(state)] == ["Denver \n Broncos", "Denver Broncos"]


@pytest.mark.parametrize("text", ["天地玄黄宇宙洪荒" * 500, "a=b;c(d,e);" * 400, "$" * 4_000, "x" * 4_000])
def test_a_text_without_spaces_takes_memory_linear_in_it(tokenizer, text):
    index = SpanIndex(tokenizer, [text])
    assert len(index._firsts[0]) <= 2 * len(text) * (4 * MAX_SPAN)  # forms, starts, bytes of a run
    _, found = RandomModel(1, 1.0).search(tokenizer, [text], max_runs=1)
    assert all(decoded(tokenizer, a.tokens).strip() == index.words_at(p) for a in found for (p, *_) in a.places)
    assert bool(found) == text.startswith(("天", "a"))


def test_a_text_without_words_has_no_answer(tokenizer):
    assert RandomModel(0, 1.0).search(tokenizer, [" \n "])[1] == []


@pytest.mark.parametrize(
    ("word", "starts", "ends"),
    [
        ("Denver,", {0}, {6}),
        ("1,000", {0}, {5}),
        ("don't", {0}, {5}),
        ("Denver's", {0}, {6, 8}),
        ("(TCR)", {0, 1}, {4, 5}),
        ("well-known", {0, 5}, {4, 10}),
        ("U.S.", {0}, {3, 4}),
        ("$50m.", {0, 1}, {4, 5}),
        ("北京", {0, 1}, {1, 2}),
    ],
)
def test_where_runs_begin_and_end(word, starts, ends):
    assert set(_starts(word)) == starts
    assert _possible_ends(word) == ends


def test_the_likelihood_of_an_answer_counts_its_end(tokenizer):
    model, tokens = RandomModel(3, 2.0), (7, 8, 9)
    found = run_to_end(likelihood_of(_Past(), model.logits(()), tokens, frozenset({STOP})), model.compute)
    assert found == pytest.approx(model.likelihood(tokens), abs=1e-4)


def test_separators_are_what_answers_have_between_runs():
    assert set(SEPARATORS) == {",", " and", "\n"}
