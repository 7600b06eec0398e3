"""The number of threads of kernels and of torch: no more than cores are free, and no result of theirs depends on it."""

import numba
import pytest
import torch

from localctx.kernels.cpu import threads
from localctx.kernels.cpu.threads import set_threads, torch_threads, use_free_cores


@pytest.fixture(autouse=True)
def started_with(monkeypatch):
    """As if numba had started with eight threads; what is set is kept from the real numba."""
    monkeypatch.setattr(threads, "_STARTED_WITH", 8)
    monkeypatch.setattr(threads, "_most", 8)
    asked = list[int]()
    monkeypatch.setattr(numba, "set_num_threads", asked.append)
    return asked


def test_torch_leaves_cores_too_and_has_its_threads_back_after_a_failure():
    configured = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch_threads(8):
            assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError), torch_threads(1):
            1 / (torch.get_num_threads() - 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(configured)


@pytest.mark.parametrize(
    ("free", "used"), [(8.0, 8), (16.0, 8), (7.6, 8), (7.5, 7), (6.9, 7), (5.0, 5), (3.0, 4), (0.0, 4)]
)
def test_other_programs_keep_their_cores_but_half_of_the_threads_stay(free, used, started_with):
    assert use_free_cores(free) == used
    assert started_with == [used]


def test_there_is_always_a_thread_and_never_more_than_was_asked_for(started_with):
    set_threads(3)
    assert use_free_cores(64.0) == 3
    assert use_free_cores(0.0) == 2
    set_threads(1)
    assert use_free_cores(0.0) == 1
    set_threads(0)
    assert started_with[-1] == 1
