"""Gathering: coroutines that run side by side as one, each with the result it has alone."""

import pytest
import torch
from native_models import SIZES, build, plain

from localctx.budget import TierLimits
from localctx.engine.coroutine import compute_alone, drive, map_events, requests_of, run_to_end
from localctx.engine.decoding.prefill_decode import decode, prefill
from localctx.engine.events import Token
from localctx.engine.gather import gather
from localctx.engine.scheduler import Scheduler
from localctx.errors import Cancelled, OutOfKVMemory
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.sampling import Sampler

pytestmark = pytest.mark.slow

ANSWER = 12
LENGTHS = (130, 5, 64, 65, 200, 40, 33)


class Speech:
    """What decode asks of a tokenizer."""

    stop_ids = frozenset({0})

    def stream(self):
        return str


@pytest.fixture(scope="module")
def model():
    return plain(build("Llama", initializer_range=0.3))


def prompt(length: int) -> list[int]:
    return torch.randint(1, SIZES["vocab_size"], (length,), generator=torch.Generator().manual_seed(length)).tolist()


def answered(model, length, pool=None):
    """Read a prompt and answer it; returns the answer."""
    cache, said = Cache(pool or Pool(model.shape, "int8", rope=model.rope), torch.float32), []
    try:
        logits = yield from prefill(cache, prompt(length), chunk=64)
        for_token = decode(cache, logits, tokenizer=Speech(), sampler=Sampler(), limit=ANSWER)
        yield from map_events(for_token, lambda event: said.append(event.id) or event)
    finally:
        cache.drop()
    return said


def alone(model) -> list[list[int]]:
    return [run_to_end(answered(model, length), compute_alone(model)) for length in LENGTHS]


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_each_has_the_result_it_has_alone_in_order(model, limit):
    passes, running, most = [], set(), []

    def start(length):
        running.add(length)
        most.append(len(running))
        result = yield from answered(model, length)
        running.remove(length)
        return result

    def compute(forward):
        passes.append(len(requests_of(forward)))
        return compute_alone(model)(forward)

    assert run_to_end(gather(start, LENGTHS, limit), compute) == alone(model)
    assert max(most) == min(limit, len(LENGTHS)) == max(passes)


def test_events_come_from_all_and_nothing_gathered_is_nothing(model):
    events = list(drive(gather(lambda n: answered(model, n), LENGTHS, 4), compute_alone(model)))
    assert len([e for e in events if isinstance(e, Token)]) == sum(map(len, alone(model)))
    assert run_to_end(gather(lambda n: answered(model, n), [], 4), compute_alone(model)) == []


def test_what_is_gathered_shares_passes_with_other_sequences(model):
    sizes = []

    def compute(requests, cancelled):
        sizes.append(len(requests))
        return model.forward_each(requests, cancelled)

    scheduler = Scheduler(compute)
    many = scheduler.add(gather(lambda n: answered(model, n), LENGTHS, 4))
    one = scheduler.add(answered(model, 300))
    list(scheduler.run())
    assert many.result == alone(model)
    assert one.result == run_to_end(answered(model, 300), compute_alone(model))
    assert max(sizes) == 5


def test_an_error_ends_all_and_leaves_no_pages(model):
    pool = Pool(model.shape, "int8", rope=model.rope)

    def start(length):
        yield from answered(model, length, pool)
        if length == 64:
            raise ValueError("of one")

    with pytest.raises(ValueError, match="of one"):
        run_to_end(gather(start, LENGTHS, 3), compute_alone(model))
    assert sum(pool.counts().values()) == 0


def test_a_cancel_ends_all(model):
    pool, passes = Pool(model.shape, "int8", rope=model.rope), []

    def compute(forward):
        passes.append(1)
        if len(passes) > 5:
            raise Cancelled
        return compute_alone(model)(forward)

    with pytest.raises(Cancelled):
        run_to_end(gather(lambda n: answered(model, n, pool), LENGTHS, 3), compute)
    assert len(passes) == 6
    assert sum(pool.counts().values()) == 0


def test_one_without_room_beside_others_starts_again_and_fails_alone_if_it_must(model):
    tried = []

    def start(length):
        tried.append(length)
        if length == 65 and tried.count(65) < 3:
            raise OutOfKVMemory({}, 1)
        return (yield from answered(model, length))

    assert run_to_end(gather(start, LENGTHS, 4), compute_alone(model)) == alone(model)
    assert tried.count(65) == 3

    def never(length):
        raise OutOfKVMemory({}, 1)
        yield

    with pytest.raises(OutOfKVMemory):
        run_to_end(gather(never, LENGTHS, 4), compute_alone(model))


def test_memory_that_holds_few_is_not_filled_by_many(model):
    limits = TierLimits(3 * model.shape.page_bytes("int8"), 0, 0)
    pool = Pool(model.shape, "int8", rope=model.rope, limits=limits)
    start = lambda n: answered(model, n, pool)  # noqa: E731
    assert run_to_end(gather(start, LENGTHS[:4], 4), compute_alone(model)) == alone(model)[:4]
