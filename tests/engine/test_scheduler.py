"""The scheduler: several sequences in one pass of the model answer as each would alone, and none waits for long."""

import pytest
import torch
from native_models import plain
from transformers import LlamaConfig, LlamaForCausalLM

from localctx.budget import TierLimits
from localctx.engine.coroutine import compute_alone, drive
from localctx.engine.decoding.prefill_decode import decode, prefill
from localctx.engine.events import Token
from localctx.engine.scheduler import Scheduler
from localctx.errors import Cancelled, OutOfKVMemory
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.sampling import Sampler

pytestmark = pytest.mark.slow

CHUNK, ANSWER = 64, 24


class Speech:
    """What decode asks of a tokenizer."""

    stop_ids = frozenset({0})

    def stream(self):
        return str


@pytest.fixture(scope="module", params=["plain", "modules"])
def model(request):
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=96,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=4096,
        initializer_range=0.3,  # sharp enough that no two tokens are about as likely
    )
    module = LlamaForCausalLM(config).eval()
    return plain(module) if request.param == "plain" else TransformersModel(module)


def prompt(seed: int, length: int) -> list[int]:
    return torch.randint(1, 300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def steps(model, tokens, cache=None, limit=ANSWER):
    """Read a prompt and answer it."""
    cache = cache or Cache(Pool(model.shape, "int8"), torch.float32)
    logits = yield from prefill(cache, tokens, chunk=CHUNK)
    yield from decode(cache, logits, tokenizer=Speech(), sampler=Sampler(), limit=limit)
    return cache.length


def answer_alone(model, tokens, cache=None) -> list[int]:
    return [e.id for e in drive(steps(model, tokens, cache), compute_alone(model)) if isinstance(e, Token)]


PROMPTS = [prompt(i, n) for i, n in enumerate((300, 5, 64, 65, 700, 130))]


def test_answers_are_those_of_each_alone_whoever_joins_and_leaves(model):
    wanted = [answer_alone(model, p) for p in PROMPTS]
    scheduler, said = Scheduler(model.forward_each, max_prefill_tokens=CHUNK), {}
    seats = [scheduler.add(steps(model, p)) for p in PROMPTS[:2]]
    for seat, event in scheduler.run():
        if isinstance(event, Token):
            said.setdefault(seat, []).append(event.id)
            if len(seats) < len(PROMPTS):  # one more with each of the first tokens
                seats.append(scheduler.add(steps(model, PROMPTS[len(seats)])))
    assert [said[seat] for seat in seats] == wanted
    assert [seat.result for seat in seats] == [len(p) + ANSWER - 1 for p in PROMPTS]


def test_an_answer_waits_for_one_chunk_of_anothers_prompt_at_most(model):
    scheduler, passes = Scheduler(model.forward_each, max_prefill_tokens=CHUNK), []
    quick = scheduler.add(steps(model, PROMPTS[1]))
    readers = [scheduler.add(steps(model, prompt(9 + i, 1500))) for i in range(2)]
    while not quick.ended:
        heard = [event for seat, event in scheduler.step() if seat is quick and isinstance(event, Token)]
        passes.append(len(heard))
    assert sum(passes) == ANSWER
    assert all(n == 1 for n in passes[1 : ANSWER + 1]), "a token with every pass once its prompt is read"
    assert abs(readers[0].last_pass - readers[1].last_pass) <= 1, "who read take turns"
    for reader in readers:
        scheduler.remove(reader)
    assert scheduler.sequences == []


def test_a_cancel_reaches_only_who_it_is_meant_for(model):
    stop, scheduler, said = [], Scheduler(model.forward_each, max_prefill_tokens=CHUNK), []
    reader = scheduler.add(steps(model, prompt(7, 2000)), lambda: bool(stop))
    other = scheduler.add(steps(model, PROMPTS[3]))
    for seat, event in scheduler.run():
        if seat is other and isinstance(event, Token):
            said.append(event.id)
            stop.append(len(said) > 3)
            stop[:] = [s for s in stop if s]
    assert isinstance(reader.error, Cancelled)
    assert other.error is None
    assert said == answer_alone(model, PROMPTS[3])


def test_who_finds_no_room_fails_alone(model):
    page = model.shape.page_bytes("int8")
    small = Cache(Pool(model.shape, "int8", limits=TierLimits(3 * page, 0, 0)), torch.float32)
    scheduler, said = Scheduler(model.forward_each, max_prefill_tokens=4 * CHUNK), []
    poor = scheduler.add(steps(model, prompt(8, 500), small))
    other = scheduler.add(steps(model, PROMPTS[4]))
    for seat, event in scheduler.run():
        if seat is other and isinstance(event, Token):
            said.append(event.id)
    assert isinstance(poor.error, OutOfKVMemory)
    assert said == answer_alone(model, PROMPTS[4])


def test_steps_may_know_a_way_on_and_what_they_raise_is_theirs(model):
    def careful():
        try:
            yield from steps(
                model, prompt(8, 500), Cache(Pool(model.shape, "int8", limits=TierLimits(0, 0, 0)), torch.float32)
            )
        except OutOfKVMemory:
            return "went on"

    def careless():
        yield from ()
        raise ZeroDivisionError

    scheduler = Scheduler(model.forward_each)
    found, broken = scheduler.add(careful()), scheduler.add(careless())
    assert list(scheduler.run()) != []
    assert found.result == "went on"
    assert isinstance(broken.error, ZeroDivisionError)


def test_sequences_of_other_windows_share_the_weights_and_not_a_pass(model):
    views = [model.view() for _ in range(2)]
    views[1].scale_rope("yarn:2")
    assert [v.context for v in views] == [4096, 8192]

    def asked():
        caches = [Cache(Pool(v.shape, "int8", rope=v.rope), torch.float32) for v in views]
        return [steps(v, PROMPTS[4], cache) for v, cache in zip(views, caches, strict=True)]

    wanted = [
        [e.id for e in drive(a, compute_alone(v)) if isinstance(e, Token)] for v, a in zip(views, asked(), strict=True)
    ]
    assert wanted[0] != wanted[1], "a stretched window answers otherwise, or this shows nothing"
    scheduler, said = Scheduler(model.forward_each, max_prefill_tokens=CHUNK), {}
    seats = [scheduler.add(a) for a in asked()]
    for seat, event in scheduler.run():
        if isinstance(event, Token):
            said.setdefault(seat, []).append(event.id)
    assert [said[seat] for seat in seats] == wanted


def test_who_came_last_pauses_where_memory_is_short_and_nothing_is_read_twice(model, tmp_path):
    """Two sequences of 11 pages, their open pages included, in room for 13: one waits, its pages move to disk."""
    prompts, fed = [prompt(20 + i, 10 * 64 + 9) for i in range(2)], []
    new_pool = lambda limit: Pool(model.shape, "f32", limits=TierLimits(limit, 0, None), spill=tmp_path)  # noqa: E731
    wanted = [answer_alone(model, p, Cache(new_pool(None), torch.float32)) for p in prompts]
    pool = new_pool(13 * model.shape.page_bytes("f32"))
    caches = [Cache(pool, torch.float32) for _ in prompts]

    def compute(feeds, cancelled):
        fed.append(sum(len(feed.tokens) for feed in feeds))
        return model.forward_each(feeds, cancelled)

    scheduler, said, most, held = Scheduler(compute, max_prefill_tokens=2 * CHUNK), {}, 0, []
    seats = [scheduler.add(steps(model, p, c)) for p, c in zip(prompts, caches, strict=True)]
    while scheduler.sequences:
        for seat, event in scheduler.step():
            if isinstance(event, Token):
                said.setdefault(seat, []).append(event.id)
        most = max(most, pool.device_tier.nbytes)
        held.append((seats[0].ended, len(said.get(seats[1], [])), pool.counts(caches[1].pages)["disk"]))
    assert [said[seat] for seat in seats] == wanted
    assert sum(fed) == sum(seat.result for seat in seats), "nothing is computed twice"
    assert all(tokens == 0 for first_ended, tokens, _ in held if not first_ended), "who came last waits"
    assert any(disk for *_, disk in held), "and its pages make room"
    assert most <= pool.device_tier.limit


def test_nobody_joins_a_crowd(model):
    pool = Pool(model.shape, "int8", limits=TierLimits(None, 0, 0))
    caches = [Cache(pool, torch.float32) for _ in range(3)]
    pool.device_tier.limit = 2 * caches[0].bytes_with(64)
    scheduler, crowded = Scheduler(model.forward_each), []
    for i, cache in enumerate(caches):
        scheduler.add(steps(model, prompt(i, 64), cache, limit=2))
        list(scheduler.collect_events())
        crowded.append(scheduler.is_preempting)
    assert crowded == [False, False, True]
    assert all(seat.error is None for seat, _ in scheduler.run())


def test_in_order_who_came_first_is_read_first_and_ends_first(model):
    """Ten long prompts: one is read after the other, and none while eight answer."""
    served, ended = [], []

    def compute(feeds, cancelled):
        served.append([len(feed.tokens) for feed in feeds])
        return model.forward_each(feeds, cancelled)

    scheduler = Scheduler(compute, max_prefill_tokens=CHUNK, in_order=True)
    seats = [scheduler.add(steps(model, prompt(40 + i, 4 * CHUNK), limit=40)) for i in range(10)]
    for _ in scheduler.run():
        ended += [seat for seat in seats if seat.ended and seat not in ended]
    assert ended[:3] == seats[:3]
    assert all(CHUNK not in sizes for sizes in served if sizes.count(1) >= 8)
    assert any(sizes.count(1) >= 8 for sizes in served)
    assert all(sum(n for n in sizes if n > 1) <= CHUNK for sizes in served)
