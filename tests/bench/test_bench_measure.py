"""Measuring: engines take turns on one text, medians and spreads are right, and what takes long is kept."""

import json
import os
import statistics
from datetime import date
from typing import Any

import pytest
from bench_fakes import Fake, FakePeer, Fakes
from hypothesis import given
from hypothesis import strategies as st

from localctx.bench.measure import DECODE_TOKENS, spread
from localctx.bench.peer_state import SavedPeerStates
from localctx.bench.time_left import LONG, BenchStep, TimeLeft, reading

# Turns, medians, spreads


def test_engines_take_turns_on_the_same_tokens():
    fakes = Fakes()
    fakes.engines = [Fake(name, fakes, [1.0] * 3) for name in "ab"]
    fakes.measure("decode", repeat=3)
    assert [(who, what) for who, what, _ in fakes.log[:2]] == [("a", "read"), ("b", "read")]
    turns = fakes.log[2:]
    assert [who for who, _, _ in turns] == ["a", "b"] * 3
    assert [a[2] == b[2] and len(a[2]) == DECODE_TOKENS for a, b in zip(turns[::2], turns[1::2], strict=True)] == [
        True
    ] * 3
    assert len({tokens for _, _, tokens in turns}) == 3  # each round goes on in the text


seconds = st.floats(0.001, 1000)


@pytest.mark.slow
@given(st.integers(1, 7).flatmap(lambda n: st.tuples(*[st.lists(seconds, min_size=n, max_size=n)] * 2)))
def test_rows_are_medians_of_rounds_and_how_far_these_differ(times):
    fakes = Fakes()
    fakes.engines = [Fake(name, fakes, took) for name, took in zip("ab", times, strict=True)]
    rows = fakes.measure("decode", repeat=len(times[0])).samples.rows("decode")
    for row, name, took in zip(rows, "ab", times, strict=True):
        assert (row["engine"], row["kv"], row["context"]) == (name, "fake", 100)
        assert row["ms_per_token"] == pytest.approx(1000 * statistics.median(took) / DECODE_TOKENS, abs=0.002, rel=1e-4)
        wanted = (max(took) - min(took)) / statistics.median(took)
        assert (row["spread"] is None) if len(took) == 1 else row["spread"] == pytest.approx(wanted, abs=0.01, rel=0.01)


def test_the_spread_by_hand():
    assert spread([1, 2, 4]) == 1.5
    assert spread([1]) is None


def test_who_reads_for_long_reads_once():
    fakes = Fakes()
    fakes.engines = [Fake("quick", fakes, [], 2.0), Fake("slow", fakes, [], LONG + 1)]
    quick, slow = fakes.measure("prefill", repeat=3).samples.rows("prefill")
    assert [who for who, _, _ in fakes.log] == ["quick", "slow", "quick", "quick"]
    assert quick["tokens_per_second"] == 50
    assert quick["spread"] == 0
    assert slow["spread"] is None


def test_contexts_come_shortest_first_and_stopping_keeps_what_there_is():
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 99)]
    fakes.cancelled = lambda: sum(what == "decode" for _, what, _ in fakes.log) == 3
    rows = fakes.measure("decode", repeat=2, contexts=(200, 50, 100)).samples.rows("decode")
    assert [row["context"] for row in rows] == [50, 100]


def test_one_reading_goes_through_all_contexts():
    """What was decoded at one is part of the text, and is not read again; rates are of what was read."""
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 9, LONG)]
    rows = fakes.measure("decode,prefill", repeat=2, contexts=(200, 100)).samples.rows("prefill")
    lengths = [len(what) if of == "decode" else what for _, of, what in fakes.log]
    assert lengths == [
        100,
        DECODE_TOKENS,
        DECODE_TOKENS,
        200 - 100 - 2 * (DECODE_TOKENS + 1),
        DECODE_TOKENS,
        DECODE_TOKENS,
    ]
    assert [of for _, of, _ in fakes.log] == ["read", "decode", "decode"] * 2
    assert [row["tokens_per_second"] for row in rows] == [round(100 / LONG, 3), round(182 / (2 * LONG), 3)]


def test_a_context_that_decoding_has_passed_is_read_from_the_beginning():
    fakes = Fakes()
    fakes.engines = [Fake("a", fakes, [1.0] * 9)]
    fakes.measure("decode", repeat=2, contexts=(100, 110))
    assert [what for _, of, what in fakes.log if of == "read"] == [100, 110]
    assert fakes.forgotten == 1


# What a run keeps for the next


def kept_run(
    kept: SavedPeerStates, reading: float = LONG + 1, contexts: tuple[int, ...] = (100, 200), full: bool = False
) -> Any:
    """What was done, but for decoding, and the rows of prefill, of a run with a peer that reads for so long."""
    fakes = Fakes()
    fakes.engines = [FakePeer("peer", fakes, [1.0] * 99, reading)]
    fakes.engines[0].full = full  # type: ignore[attr-defined]
    rows = fakes.measure("decode,prefill", 2, contexts, kept).samples.rows("prefill")
    return [what for _, *what in fakes.log if what[0] != "decode"], rows


def test_what_was_read_for_long_is_not_read_by_the_next_run(tmp_path):
    done, fresh = kept_run(SavedPeerStates(tmp_path))
    assert done == [["read", 100], ["read", 82]]
    again, kept = kept_run(SavedPeerStates(tmp_path), contexts=(50, 200))
    assert again == [["read", 50], ["load", 200]]
    assert "day" not in fresh[1]
    assert kept[1] == {**fresh[1], "day": date.today().isoformat()}
    assert not list(tmp_path.glob("*.part"))


def test_what_is_read_quickly_is_not_kept(tmp_path):
    kept_run(SavedPeerStates(tmp_path), reading=1.0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("harm", ["state", "facts", "none"])
def test_a_damaged_reading_is_told_and_read_anew(tmp_path, harm):
    said = list[str]()
    kept_run(SavedPeerStates(tmp_path), contexts=(100,))
    state, facts = (next(tmp_path.glob(f"*.{suffix}")) for suffix in ("state", "json"))
    for path in {"state": [state], "facts": [facts], "none": []}[harm]:
        path.write_text("[]")
    if harm == "none":
        state.unlink()
    done, rows = kept_run(SavedPeerStates(tmp_path, said.append), contexts=(100,))
    assert done == [["read", 100]]
    assert "day" not in rows[0]
    assert said == ["what peer had read to 100 tokens is damaged: it is read anew"]
    assert kept_run(SavedPeerStates(tmp_path), contexts=(100,))[0] == [["load", 100]], "and kept again"


def test_a_reading_that_an_older_version_kept_is_used(tmp_path):
    kept_run(SavedPeerStates(tmp_path), contexts=(100,))
    (facts,) = tmp_path.glob("*.json")
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "joules": 3.5}))
    assert kept_run(SavedPeerStates(tmp_path), contexts=(100,))[0] == [["load", 100]]


def test_what_cannot_be_kept_is_told(tmp_path):
    said = list[str]()
    kept_run(SavedPeerStates(tmp_path, said.append), contexts=(100,), full=True)
    assert not list(tmp_path.iterdir())
    assert len(said) == 1
    assert "cannot be kept" in said[0]


def test_the_reading_used_longest_ago_goes_first(tmp_path):
    kept_run(SavedPeerStates(tmp_path))
    first, second = sorted(tmp_path.glob("*.state"), key=lambda path: path.stat().st_size)
    os.utime(first, (0, 0))
    os.utime(second, (1, 1))
    (tmp_path / "killed.part").write_bytes(bytes(99))
    os.utime(tmp_path / "killed.part", (0, 0))
    kept_run(SavedPeerStates(tmp_path, limit=first.stat().st_size + second.stat().st_size), contexts=(90,))
    left = {path.stem for path in tmp_path.iterdir()}
    assert {first.stem, "killed"}.isdisjoint(left)
    assert second.stem in left
    assert len(left) == 2


def test_all_that_was_kept_is_forgotten(tmp_path):
    kept_run(SavedPeerStates(tmp_path))
    nbytes = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert SavedPeerStates(tmp_path).delete_all() == nbytes
    assert not list(tmp_path.iterdir())
    assert SavedPeerStates(tmp_path / "nowhere").delete_all() == 0


# How long it still takes


def test_what_is_left_goes_at_the_pace_of_each():
    ahead = TimeLeft()
    for who in ("quick", "slow"):
        ahead.add(BenchStep(who, 10), 2)
    assert ahead.seconds is None
    ahead.done(BenchStep("quick", 10), 1.0)
    assert ahead.seconds == pytest.approx(3.0), "the other is taken for as quick"
    ahead.done(BenchStep("slow", 10), 9.0)
    assert ahead.seconds == pytest.approx(10.0)


def test_who_reads_for_long_is_not_expected_to_read_again():
    ahead = TimeLeft()
    ahead.add(reading("a", 100, repeated=True), 3)
    ahead.done(reading("a", 50), 1.0)
    assert 5 < ahead.seconds < 8
    ahead.done(reading("a", 50), 2 * LONG)
    assert ahead.seconds == 0


def test_a_run_says_what_is_left_and_that_a_kept_reading_takes_nothing(tmp_path):
    heard = list[float | None]()
    fakes = Fakes()
    fakes.engines = [FakePeer("peer", fakes, [1.0] * 99, 100.0)]
    hear = lambda text, left: heard.append(left)  # noqa: E731
    fakes.measure("decode", 2, (100, 200), SavedPeerStates(tmp_path), on_progress=hear)
    first, heard[:] = list(heard), []
    fakes.measure("decode", 2, (100, 200), SavedPeerStates(tmp_path), on_progress=hear)
    assert first[0] is None
    assert first[1] > 100, "the second reading is yet to come"
    assert heard[1] < 10
