"""Writers that are killed, alone and in pairs: nothing that was acknowledged is lost, nothing is left over."""

import shutil

import pytest
from killed_store import kill, wrong
from measure_crashes import together

from localctx.store.deletions import Deletions

pytestmark = pytest.mark.process


@pytest.mark.parametrize("seed", range(4))
def test_writers_that_are_killed_lose_nothing(home, seed):
    """Forty kills in all; measure_crashes.py makes thousands."""
    for i in range(10):
        assert wrong(home, kill(home, 100 * seed + i, 1 + i % 2)) == []
        if i % 4 == 3:
            shutil.rmtree(home)


def test_two_processes_write_one_store_and_neither_is_refused(home):
    assert together(home, 7, 3.0) == []


def test_without_the_trash_what_was_deleted_is_lost(home, monkeypatch):
    """What the tests before rely on."""
    expected = kill(home, 5, 1, 0.0)
    monkeypatch.setattr(Deletions, "all", lambda self: [])
    expected.documents["never written"] = "trash"
    assert wrong(home, expected) == ["never written is gone, not trash"]
