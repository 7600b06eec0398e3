"""Whether a model fits: where its bytes are placed, and how many find no place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.budget import TierLimits
from localctx.models.memory_fit import MemoryNeed, largest_context

BYTES = st.integers(0, 1 << 40)


@pytest.mark.parametrize(
    ("free", "by_tier", "shortage"),
    [
        (TierLimits(100, 0, 0), {"device": 60, "host": 0, "disk": 0}, 0),
        (TierLimits(50, 7, 100), {"device": 50, "host": 7, "disk": 3}, 0),
        (TierLimits(50, 7, 1), {"device": 50, "host": 7, "disk": 1}, 2),
        (TierLimits(None, 0, 0), {"device": 60, "host": 0, "disk": 0}, 0),
        (TierLimits(1, None, 0), {"device": 1, "host": 59, "disk": 0}, 0),
    ],
)
def test_bytes_go_to_the_device_first_and_what_is_short_is_counted(free, by_tier, shortage):
    fit = MemoryNeed(weights=30, working=10, kv=20).fit(free)
    assert (fit.by_tier, fit.shortage, fit.fits) == (by_tier, shortage, not shortage)


@given(BYTES, BYTES, BYTES)
def test_every_byte_is_placed_or_short(need, device, disk):
    fit = MemoryNeed(kv=need).fit(TierLimits(device, 0, disk))
    assert sum(fit.by_tier.values()) + fit.shortage == need
    assert fit.fits == (need <= device + disk)


@given(st.integers(0, 1 << 20), st.integers(0, 1 << 20), st.sampled_from([64, 256]))
def test_the_largest_context_is_the_last_block_that_fits(free, fixed, block):
    need = lambda tokens: MemoryNeed(working=fixed, kv=3 * tokens)  # noqa: E731
    tokens = largest_context(lambda n: need(n).fit_device(free), block)
    assert tokens % block == 0
    assert tokens == 0 or need(tokens).total <= free
    assert need(tokens + block).total > free


def test_a_cache_that_never_grows_ends_at_the_most_tokens():
    assert largest_context(lambda n: MemoryNeed(1).fit_device(2), 64, most=1 << 20) == (1 << 20) - 64
