"""Clients that hang up at random: nobody gets another's answer, and nothing is left of who left."""

import threading
import time

import pytest
from clock import seconds_since
from measure_disconnects import hang_up_at_random, served

pytestmark = pytest.mark.slow


def test_chats_at_once_with_random_disconnects_never_cross(home, sharp_model):
    """``python tests/measure/measure_disconnects.py`` has more clients, for longer."""
    with served(home, sharp_model) as address:
        counts = hang_up_at_random(address, 12, 0, 1, least=3)
        before = threading.active_count()
        assert counts["answered"] > 5
        assert counts["left"] > 5
        counts = hang_up_at_random(address, 12, 0, 2, least=2)
        start = time.monotonic()
        while threading.active_count() > before + 2:
            assert seconds_since(start) < 60
            time.sleep(0.1)
