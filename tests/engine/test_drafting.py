"""Guessing what comes next: the answer is the same, to the token, and what was guessed wrong leaves nothing."""

from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_models import plain

from localctx.engine.coroutine import compute_alone, drive, run_to_end
from localctx.engine.decoding.drafting import NGRAM, PromptLookup
from localctx.engine.decoding.prefill_decode import decode, prefill
from localctx.engine.events import Token
from localctx.errors import Cancelled
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.quantized.blocked_linear import block_linears
from localctx.models.sampling import Sampler
from localctx.shape import PAGE

pytestmark = pytest.mark.slow


class Tokens:
    """A tokenizer of numbers; an answer stops at one of ``stop_ids``."""

    def __init__(self, *stops):
        self.stop_ids = frozenset(stops)

    def stream(self):
        return lambda token: f"{token} "


@pytest.fixture(scope="module", params=["plain", "modules"])
def model(request):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 40}
    module = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, head_dim=16))
    if request.param == "plain":
        return plain(module)
    block_linears(module)
    return TransformersModel(module)


def answered(model, tokens, lookup=None, *, codec="int8", keep="full", limit=120, stops=(), sampler=None):
    """The answer's tokens, the cache after it, and the last digits of what it holds."""
    cache = Cache(Pool(model.shape, codec, rope=model.rope), model.dtype, make_keeper(keep, len(tokens)), 4096)
    logits = run_to_end(prefill(cache, tokens, chunk=256), compute_alone(model))
    steps = decode(cache, logits, tokenizer=Tokens(*stops), sampler=sampler or Sampler(), limit=limit, lookup=lookup)
    said = [event.id for event in drive(steps, compute_alone(model)) if isinstance(event, Token)]
    return said, cache


@pytest.mark.parametrize("keep", ["full", "sink-window:256", "select:1/2"])
@pytest.mark.parametrize("codec", ["int8", "int4", "f32"])
def test_an_answer_is_the_same_with_guesses(model, codec, keep):
    tokens = torch.randint(3, 40, (300,), generator=torch.Generator().manual_seed(2)).tolist() * 2
    plain, cache = answered(model, tokens, codec=codec, keep=keep)
    lookup = PromptLookup(tokens, 8)
    guessed, other = answered(model, tokens, lookup, codec=codec, keep=keep)
    assert guessed == plain
    assert (other.length, other.tail, other.position) == (cache.length, cache.tail, cache.position)
    assert (other.tail_payload() == cache.tail_payload()).all(), "to the last bit"
    if keep != "select:1/2":  # a query that selects pages is computed alone
        assert lookup.accepted > 20, "a tiny model repeats itself"
    assert lookup.accepted <= lookup.drafted


def test_it_ends_where_it_would_end(model):
    tokens = list(range(3, 40)) * 3
    whole, _ = answered(model, tokens, limit=60)
    for limit in (1, 2, 7, 33):
        said, cache = answered(model, tokens, PromptLookup(tokens, 8), limit=limit)
        assert said == whole[:limit]
        assert cache.length == len(tokens) + limit - 1, "the last token was not fed"
    stop = whole[40]
    said, cache = answered(model, tokens, PromptLookup(tokens, 8), stops=(stop,))
    assert said == whole[: whole.index(stop)]
    assert cache.length == len(tokens) + len(said)


def test_a_sampled_answer_is_not_guessed(model):
    tokens = list(range(3, 40)) * 3
    lookup = PromptLookup(tokens, 8)
    answered(model, tokens, lookup, sampler=Sampler(1.0, seed=1))
    assert lookup.drafted == 0


def test_cancelled_between_guesses_nothing_is_left(model):
    tokens = list(range(3, 40)) * 3
    cache = Cache(Pool(model.shape, "int8", rope=model.rope), model.dtype)
    logits = run_to_end(prefill(cache, tokens, chunk=256), compute_alone(model))
    steps = decode(cache, logits, tokenizer=Tokens(), sampler=Sampler(), limit=90, lookup=PromptLookup(tokens, 8))
    said, asked = 0, 0

    def compute(feed):
        nonlocal asked
        asked += 1
        if asked > 20:
            raise Cancelled
        return model.forward_each([feed])[0]

    with suppress(Cancelled):
        for event in drive(steps, compute):
            said += isinstance(event, Token)
    assert asked == 21, "it was cancelled"
    assert cache.length == len(tokens) + said - 1, "all that was said but the last, and no guess"


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 8))
@settings(max_examples=200, deadline=None)
def test_what_is_guessed_followed_the_same_tokens_before(tokens, most):
    lookup = PromptLookup(tokens, 8)
    guess = lookup.draft(most)
    assert len(guess) <= most
    if guess:
        ends = [i for i in range(NGRAM, len(tokens)) if tokens[i - NGRAM : i] == tokens[-NGRAM:]]
        assert tokens[ends[-1] : ends[-1] + len(guess)] == guess, "where they came last"


def test_guesses_grow_and_shrink():
    lookup = PromptLookup(list(range(PAGE)) * 2 + [0, 1, 2], 8)
    sizes = []
    for accepted in (2, 4, 8, 8, 3, 0, 1):
        sizes.append(len(lookup.draft(15)))
        lookup.record(sizes[-1], min(accepted, sizes[-1]))
    assert sizes == [2, 4, 8, 8, 8, 3, 1]
    assert (lookup.drafted, lookup.accepted) == (34, 26)
