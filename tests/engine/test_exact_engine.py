"""The engine's exactness: against transformers' own cache, across chunk sizes, and across a restore."""

import json

import pytest
import torch
from ask_in_process import said, start
from command_checks import elsewhere
from native_models import plain
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from localctx.engine.coroutine import compute_alone, drive, never_cancelled
from localctx.engine.decoding.prefill_decode import decode, prefill
from localctx.errors import Cancelled
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.decoder.forward_batch import ForwardBatch
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.load import load_model
from localctx.models.sampling import Sampler

pytestmark = pytest.mark.process

CHUNKS = [1, 63, 64, 65, 512]


def follow(model, steps, cancelled=never_cancelled):
    """The events of steps, and what they return."""
    events, driven = [], drive(steps, compute_alone(model, cancelled))
    while True:
        try:
            events.append(next(driven))
        except StopIteration as end:
            return events, end.value


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=192,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def reference(module):
    """700 tokens, the logits transformers gives for each, and the 128 greedy tokens that follow."""
    tokens = torch.randint(3, 300, (700,), generator=torch.Generator().manual_seed(1)).tolist()
    cache, answer = DynamicCache(config=module.config), []
    with torch.inference_mode():
        logits = module(torch.tensor([tokens]), past_key_values=cache).logits[0]
        last = logits[-1]
        for _ in range(128):
            answer.append(int(last.argmax()))
            last = module(torch.tensor([answer[-1:]]), past_key_values=cache).logits[0, -1]
    return tokens, logits, answer


@pytest.fixture(scope="module", params=["plain", "modules"])
def model(request, module, reference):
    return plain(module) if request.param == "plain" else TransformersModel(module)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_full_precision_is_what_transformers_computes(model, reference, chunk):
    tokens, expected, answer = reference
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    pieces = [tokens[i : i + chunk] for i in range(0, len(tokens), chunk)]
    logits = torch.cat([model.forward(piece, cache, num_logits=len(piece)) for piece in pieces])
    assert (logits - expected).abs().max() < 1e-3
    greedy, last = [], logits[-1]
    for _ in answer:
        greedy.append(int(last.argmax()))
        last = model.forward(greedy[-1:], cache)[-1]
    assert greedy == answer


@pytest.mark.parametrize("codec", ["f32", "int8"])
def test_prefill_does_not_depend_on_what_was_read_before(model, reference, codec):
    """Reading that starts where kept pages end gives the very logits of reading everything."""
    tokens, boundary = reference[0], 640
    whole = Cache(Pool(model.shape, codec), torch.float32)
    _, cold = follow(model, prefill(whole, tokens, chunk=200, cuts=[boundary]))
    kept = Cache(Pool(model.shape, codec), torch.float32)
    follow(model, prefill(kept, tokens[:boundary], chunk=200, cuts=[boundary]))
    again = Cache(Pool(model.shape, codec), torch.float32)
    again.adopt([kept.pool.payload(page).numpy() for page in kept.pages])
    events, warm = follow(model, prefill(again, tokens, chunk=200, cuts=[boundary]))
    assert torch.equal(cold, warm)
    assert (events[0].done, events[-1].done, events[-1].total) == (640, 700, 700)


@pytest.mark.parametrize("codec", ["f32", "int8"])
def test_a_restore_in_a_new_process_answers_as_before_it_was_stored(tiny_model, document, home, codec):
    def ask(folder):
        how = ("--json", "--model", tiny_model, "--kv", codec, "--dtype", "f32", "--max-tokens", 128)
        done = elsewhere(folder, "ask", document, "How long is river 3?", *how)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    cold, warm, fresh = ask(home), ask(home), ask(home.with_name("fresh"))
    assert cold["tokens"]["reused"] == 0
    assert warm["tokens"]["reused"] >= 640
    assert warm["tokens"]["generated"] == 128
    assert cold["answer"] == warm["answer"] == fresh["answer"]


def restored(say, folder, pages, tokens) -> None:
    """Say the last logits of ``tokens`` after the pages in a file."""
    model = load_model(folder, "tiny", dtype="f32")
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    cache.adopt([page.numpy() for page in torch.load(pages)])
    say(model.forward(tokens, cache)[-1].tolist())


def test_restored_logits_are_those_before_storing_bit_for_bit(tiny_model, tmp_path):
    """Through a file and in a new process."""
    model = load_model(tiny_model, "tiny", dtype="f32")
    tokens = torch.randint(3, 250, (300,), generator=torch.Generator().manual_seed(1)).tolist()
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    follow(model, prefill(cache, tokens[:256], chunk=100))
    torch.save([cache.pool.payload(page) for page in cache.pages], tmp_path / "pages")
    _, before = follow(model, prefill(cache, tokens, chunk=100))
    process, connection = start(restored, tiny_model, tmp_path / "pages", tokens[256:])
    (logits,) = said(connection)
    process.join()
    assert logits == before.tolist()


def test_cancel_in_the_middle_of_a_chunk_leaves_the_chunks_before_it(model, reference):
    tokens, calls = reference[0], iter(range(10_000))
    cache = Cache(Pool(model.shape, "int8"), torch.float32)
    with pytest.raises(Cancelled):
        follow(model, prefill(cache, tokens, chunk=100), lambda: next(calls) > 7)  # in the third chunk
    assert cache.length == 200
    assert len(cache.pool.references) == len(cache.pages) == 3
    _, resumed = follow(model, prefill(cache, tokens, chunk=100))
    fresh = Cache(Pool(model.shape, "int8"), torch.float32)
    assert torch.equal(resumed, follow(model, prefill(fresh, tokens, chunk=100))[1])


def test_an_error_in_a_step_leaves_the_cache_as_it_was(model, reference, monkeypatch):
    attend, last = ForwardBatch.attend, len(model.shape.layers) - 1

    def fail(step, layer, *rest, **how):
        return 1 / 0 if layer == last else attend(step, layer, *rest, **how)

    cache = Cache(Pool(model.shape, "int8"), torch.float32)
    model.forward(reference[0][:100], cache)
    with monkeypatch.context() as broken:
        broken.setattr(ForwardBatch, "attend", fail)
        with pytest.raises(ZeroDivisionError):
            model.forward(reference[0][100:300], cache)
    assert cache.length == 100
    whole = Cache(Pool(model.shape, "int8"), torch.float32)
    model.forward(reference[0][:100], whole)
    assert torch.equal(model.forward([5], cache), model.forward([5], whole))


def test_answers_end_at_a_stop_token_or_the_limit(tiny_model):
    model = load_model(tiny_model, "tiny")
    cache = Cache(Pool(model.shape, "int8"), model.dtype)
    logits = model.forward([1, 2, 3], cache)[-1]
    how = {"tokenizer": model.tokenizer, "sampler": Sampler(), "limit": 7}
    assert len(follow(model, decode(cache.fork(), logits, **how))[0]) == 7
    stop = logits.new_zeros(len(logits))
    stop[next(iter(model.tokenizer.stop_ids))] = 9
    assert follow(model, decode(cache, stop, **how))[0] == []


def test_sampling_follows_its_seed_and_its_limits():
    logits = torch.tensor([0.0, 3.0, 2.0, -1.0])

    def draw(**how):
        sampler = Sampler(**how)
        return [sampler(logits) for _ in range(60)]

    assert draw() == [1] * 60
    assert draw(temperature=1, seed=4) == draw(temperature=1, seed=4) != draw(temperature=1, seed=5)
    assert set(draw(temperature=5, top_k=2, seed=1)) == {1, 2}
    assert set(draw(temperature=1, top_p=0.5, seed=1)) == {1}
    assert set(draw(temperature=5e-324, seed=1)) == set(draw(temperature=1e-5, seed=1)) == {1}
