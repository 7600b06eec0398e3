"""The states of a sequence: steps that are committed or not, forks, cuts, and snapshots as bytes."""

import pytest
import torch

from localctx.kv.sequence_states import SequenceStates, page_ends
from localctx.shape import PAGE, KVShape, LayerShape, StateShape

SHAPES = (StateShape(0, "convolution", 0, (3, 4)), StateShape(0, "recurrent", 0, (2, 5), 32))
CONV, RECURRENT = (0, "convolution", 0), (0, "recurrent", 0)


def states_after(*lengths: int) -> SequenceStates:
    """States of a sequence after steps that ended at ``lengths``; each state has its length as its numbers."""
    states = SequenceStates(SHAPES, torch.bfloat16, torch.device("cpu"))
    for length in lengths:
        states.put(CONV, torch.full((1, 3, 4), length, dtype=torch.bfloat16))
        states.put(RECURRENT, torch.full((1, 2, 5), float(length)))
        states.commit(length)
    return states


def number(states: SequenceStates) -> float:
    return float(states.now[RECURRENT][0, 0, 0])


def test_a_step_gets_clones_and_what_it_writes_counts_once_it_is_committed():
    states = states_after(10)
    states.get(RECURRENT).zero_()
    assert number(states) == 10
    states.rollback()
    states.get(RECURRENT).fill_(11)
    states.get(CONV)
    assert states.put_keys == {CONV, RECURRENT}
    states.commit(11)
    assert number(states) == 11


def test_the_first_step_gets_nothing():
    assert states_after().get(CONV) is None


def test_forks_share_what_is_there_and_nothing_else():
    one = states_after(10)
    other = one.fork()
    assert other.now[RECURRENT] is one.now[RECURRENT]
    other.get(RECURRENT).fill_(20)
    other.get(CONV)
    other.commit(11)
    assert (number(one), number(other)) == (10, 20)


def test_a_sequence_can_be_cut_where_a_page_ended_and_states_were_known():
    states = states_after(50, PAGE, PAGE + 10)
    wanted = {PAGE + 10: PAGE + 10, PAGE + 9: PAGE, PAGE: PAGE, PAGE - 1: 0, 0: 0}
    assert {length: states.restorable(length, PAGE + 10) for length in wanted} == wanted
    states.restore(PAGE, PAGE + 10)
    assert number(states) == PAGE
    states.restore(0, PAGE)
    assert (states.now, states.ends) == (None, {})


def test_the_last_end_is_kept_however_large_and_earlier_ones_as_far_as_there_is_room(monkeypatch):
    monkeypatch.setattr("localctx.kv.sequence_states.KEPT_BYTES", 200)  # of 64 bytes each
    assert [*states_after(*range(PAGE, 9 * PAGE, PAGE)).ends] == [6 * PAGE, 7 * PAGE, 8 * PAGE]
    monkeypatch.setattr("localctx.kv.sequence_states.KEPT_BYTES", 1)
    assert [*states_after(PAGE, 2 * PAGE).ends] == [2 * PAGE]


@pytest.mark.parametrize("length", [PAGE, PAGE + 1])
def test_a_snapshot_is_as_long_as_the_shape_says_and_comes_back_to_the_bit(length):
    states, again = states_after(length), states_after()
    payload = states.snapshot(states.now)
    assert len(payload) == KVShape((LayerShape(1, 8, 8),), SHAPES).state_bytes(2) == 3 * 4 * 2 + 2 * 5 * 4
    again.adopt(payload, length)
    assert all(torch.equal(again.now[key], states.now[key]) for key in (CONV, RECURRENT))
    assert again.now[CONV].dtype == torch.bfloat16
    assert [*again.ends] == ([PAGE] if length == PAGE else [])


def test_bytes_count_what_ends_share_once():
    assert states_after(PAGE).nbytes == 64
    assert states_after(PAGE, PAGE + 1).nbytes == 128


@pytest.mark.parametrize(("length", "tokens"), [(0, 200), (0, 64), (30, 64), (64, 128), (63, 2)])
def test_inputs_at_the_ends_of_pages_are_those_of_the_tokens_before(length, tokens):
    inputs = torch.arange(1.0, length + tokens + 1)[None, None].expand(1, 2, -1)  # token i has input i + 1
    seen = inputs[..., max(0, length - 4) :]
    for end, state in page_ends(seen, 4, length, tokens).items():
        assert end % PAGE == 0
        assert length < end < length + tokens
        assert state[0, 0].tolist() == [end - 3, end - 2, end - 1, end]


def test_steps_between_snapshots():
    small = KVShape((LayerShape(8, 64, 64),), (StateShape(0, "convolution", 0, (2048, 3)),))
    large = KVShape((LayerShape(4, 256, 256),) * 8, (StateShape(1, "recurrent", 0, (32, 128, 128), 32),) * 24)
    assert small.snapshot_step("int8") == PAGE
    assert 4096 <= large.snapshot_step("int8") <= 16384
    assert large.snapshot_step("int8") % PAGE == 0
    assert large.snapshot_step("int2") >= large.snapshot_step("bf16")
