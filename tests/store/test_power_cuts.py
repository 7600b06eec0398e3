"""Power cuts: what was acknowledged is there, nothing is damaged, wherever the writes after the last fsync ended."""

import shutil

import pytest
from power_cuts import failures, record

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler is installed")]


def test_fifty_power_cuts_lose_nothing_and_damage_nothing(tmp_path):
    assert failures(tmp_path, record(tmp_path, 6), range(50)) == []


@pytest.mark.parametrize("broken", ["fsync", "synchronous", "folder"])
def test_without_syncing_they_do(tmp_path, broken):
    """What the test before relies on."""
    assert failures(tmp_path, record(tmp_path, 6, broken), range(30))
