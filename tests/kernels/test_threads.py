"""The number of threads of kernels and of torch: no more than cores are free, and no result of theirs depends on it."""

from collections.abc import Iterator

import numba
import pytest
import torch

from localctx.kernels.cpu import threads
from localctx.kernels.cpu.threads import set_threads, torch_threads, use_free_cores
from localctx.kernels.quant import rotate


@pytest.fixture(autouse=True)
def started_with(monkeypatch):
    """As if numba had started with eight threads; what is set is kept from the real numba."""
    monkeypatch.setattr(threads, "_STARTED_WITH", 8)
    monkeypatch.setattr(threads, "_most", 8)
    asked = list[int]()
    monkeypatch.setattr(numba, "set_num_threads", asked.append)
    return asked


@pytest.fixture
def two_of_torch() -> Iterator[None]:
    """torch has two threads meanwhile."""
    configured = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(configured)


def test_torch_leaves_cores_too_and_has_its_threads_back_after_a_failure(two_of_torch):
    with torch_threads(8):
        assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), torch_threads(1):
        1 / (torch.get_num_threads() - 1)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("dim", [64, 128])
def test_what_torch_computes_for_pages_is_the_same_with_any_number_of_threads(two_of_torch, dim):
    """Rotations, and scores of what is evicted: torch computes them for our kernels' models too."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(8, 8, 64, dim, generator=random)
    q, k = torch.randn(2, 224, dim, generator=random), torch.randn(2, 4096, dim, generator=random)

    def computed() -> list[torch.Tensor]:
        scores = q @ k.transpose(1, 2)
        return [rotate(x), scores, scores.exp().mean(1), scores.abs().mean(0).sum(0)]

    by_two = computed()
    with torch_threads(1):
        assert all(map(torch.equal, computed(), by_two))


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
