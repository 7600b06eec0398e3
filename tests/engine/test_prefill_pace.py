"""The time that is left of a prefill, of which each token takes longer than the one before."""

import pytest

from localctx.engine.decoding.prefill_pace import PrefillPace

TOKEN, ATTENTION = 1e-3, 2e-7  # seconds of a token, and more for each token before it


def took(position: int) -> float:
    """The seconds of the first ``position`` tokens."""
    return TOKEN * position + ATTENTION * position**2 / 2


def after(positions: list[int], seconds=took) -> PrefillPace:
    now = [seconds(positions[0])]
    pace = PrefillPace(positions[0], lambda: now[0])
    for position in positions[1:]:
        now[0] = seconds(position)
        pace.note(position)
    return pace


@pytest.mark.parametrize("positions", [[0, 512, 1024], [0, 512, 1024, 1300, 4096], [2048, 2560, 3072]])
def test_growth_is_seen_from_the_second_chunk_on(positions):
    left = after(positions).seconds_to(8192)
    assert left == pytest.approx(took(8192) - took(positions[-1]), rel=0.01)


def test_a_first_chunk_that_took_longer_does_not_make_the_rest_shorter():
    pace = after([0, 512, 1024], lambda position: 2.0 * (position > 0) + position * TOKEN)
    assert pace.seconds_to(2048) >= 1024 * TOKEN


def test_one_chunk_promises_nothing_and_the_end_is_the_end():
    assert after([0, 512]).seconds_to(8192) is None
    assert after([0, 512]).seconds_to(512) == 0.0
