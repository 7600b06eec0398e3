"""The contract of every tier: a page is given back as it was put, whatever was put and dropped around it."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from localctx.kv.tiers import DiskTier, MemoryTier, Tier
from localctx.shape import SLOT_ALIGN

TIERS: dict[str, Callable[[], Tier]] = {
    "memory": lambda: MemoryTier("ram", torch.device("cpu")),
    "disk": DiskTier,
}
SIZES = (SLOT_ALIGN, 3 * SLOT_ALIGN)  # bytes of a page; the layers of a model may have pages of two sizes
STEPS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(SIZES), st.integers(0, 2**32 - 1)), max_size=40)


def payload(nbytes: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", TIERS)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_a_page_is_given_back_as_it_was_put(name, steps):
    tier, pages = TIERS[name](), dict[int, torch.Tensor]()
    for page, nbytes, seed in steps:
        if page in pages:
            tier.drop(page)
            del pages[page]
        else:
            pages[page] = payload(nbytes, seed)
            tier.put(page, pages[page])
        assert set(tier) == set(pages)
        assert len(tier) == len(pages)
        assert tier.nbytes == sum(map(len, pages.values()))
        assert all(torch.equal(tier.get(other), kept) for other, kept in pages.items())
        assert page in tier or page not in pages


@pytest.mark.parametrize("name", TIERS)
def test_a_tier_keeps_a_copy(name):
    tier, given_ = TIERS[name](), payload(SLOT_ALIGN, 1)
    before = given_.clone()
    tier.put(3, given_)
    given_.zero_()
    assert torch.equal(tier.get(3), before)
