"""KVShape arithmetic: what a token costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localctx.shape import ALIGN, FORMATS, PAGE, SLOT_ALIGN, KVShape, LayerShape, record_layout

SMOLLM2 = KVShape((LayerShape(3, 64, 64),) * 30)
shapes = st.builds(LayerShape, st.integers(1, 16), st.integers(1, 32).map(lambda n: 8 * n), st.just(64))


def test_a_token_costs_two_times_layers_times_heads_times_width_times_bytes():
    assert SMOLLM2.bytes_per_token("bf16") == 2 * 30 * 3 * 64 * 2 == 23_040
    assert SMOLLM2.bytes_per_token("f32") == 46_080
    assert KVShape((LayerShape(8, 128, 128),) * 80).bytes_per_token("bf16") == 327_680


def test_int8_adds_a_float16_scale_and_zero_per_channel_and_per_token():
    codes, scales = 2 * 3 * 64 * 64, 2 * 2 * 3 * (64 + 64)
    assert SMOLLM2.record_bytes("int8")[0] == codes + scales
    assert SMOLLM2.bytes_per_token("int8") == 12_240


@given(shapes, st.sampled_from(sorted(FORMATS)))
def test_the_parts_of_a_record_are_aligned_in_order_and_large_enough(layer, codec):
    y, f = record_layout(layer, codec), FORMATS[codec]
    starts = (y.k_codes, y.k_scale, y.k_zero, y.v_codes, y.v_scale, y.v_zero, y.total)
    assert list(starts) == sorted(starts)
    assert all(start % ALIGN == 0 for start in starts)
    assert y.k_scale - y.k_codes >= layer.kv_heads * layer.k_dim * PAGE * f.k_bits // 8
    assert y.v_scale - y.v_codes >= layer.kv_heads * layer.v_dim * PAGE * f.v_bits // 8
    assert (y.k_zero > y.k_scale) == (f.k_bits < 16)


@pytest.mark.parametrize("codec", FORMATS)
def test_a_slot_is_whole_disk_blocks(codec):
    assert SMOLLM2.slot_bytes(codec) % SLOT_ALIGN == 0
    assert 0 <= SMOLLM2.slot_bytes(codec) - SMOLLM2.page_bytes(codec) < SLOT_ALIGN
