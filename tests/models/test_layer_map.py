"""Which cached layer each layer of a model attends over, and the shape of the cached layers."""

from transformers import Gemma3nTextConfig, Gemma4TextConfig, LlamaConfig

from localctx.models.architecture.geometry import geometry_of, layer_map, multihead_shape_of, shape_of
from localctx.shape import LayerShape

SLIDING, FULL = "sliding_attention", "full_attention"


def test_each_layer_has_its_own_where_none_is_shared():
    layers = layer_map(LlamaConfig(num_hidden_layers=3))
    assert layers.cached_layer == {0: 0, 1: 1, 2: 2}
    assert layers.makers == [0, 1, 2]


def test_last_layers_share_with_the_last_earlier_layer_of_their_kind():
    config = Gemma3nTextConfig(
        num_hidden_layers=7,
        layer_types=[SLIDING, FULL, SLIDING, SLIDING, FULL, SLIDING, FULL],
        num_kv_shared_layers=3,
        intermediate_size=[8] * 7,
        activation_sparsity_pattern=[0.0] * 7,
    )
    layers = layer_map(config)
    assert layers.cached_layer == {0: 0, 1: 1, 2: 2, 3: 3, 4: 1, 5: 3, 6: 1}
    assert layers.makers == [0, 1, 2, 3]
    assert [layer.kind for layer in shape_of(config).layers] == ["sliding", "full", "sliding", "sliding"]


def test_heads_and_widths_are_those_of_each_layer():
    config = Gemma4TextConfig(
        num_hidden_layers=3,
        layer_types=[SLIDING, SLIDING, FULL],
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=16,
        attention_k_eq_v=True,
        num_global_key_value_heads=2,
        global_head_dim=32,
        sliding_window=70,
    )
    sliding, full = LayerShape(4, 16, 16, "sliding", 70), LayerShape(2, 32, 32)
    assert shape_of(config).layers == (sliding, sliding, full)
    assert [layer.k_dim for layer in multihead_shape_of(config).layers] == [16, 16, 32]
    assert geometry_of(config).queries == 8 * 32
