"""Every model type that transformers builds as a causal LM is equal to eager attention, or refused in a sentence."""

import re

import pytest
import torch
import transformers as tf
from measure_families import GOOD, measure
from tiny_family_configs import LAYERS, TYPES, tiny_config

from localctx.errors import ModelError
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.architecture.geometry import LayerMap
from localctx.models.architecture.unsupported import UnsupportedModel
from localctx.models.decoder.attention_pass import AttentionPass, current_pass
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.decoder.trial import refuse_unfit
from localctx.shape import KVShape, LayerShape

WRONG = {  # what a family does that would give wrong answers
    "diffllama": r"do not attend once each, in order \(layer 0 at 1 of 4\)",
    "hrm_text": "do not attend once each, in order",
    "doge": "a mask of its own",
    "bart": "it has an encoder",
    "jamba": "its layers forget their state where several tokens follow it",
    "roberta": "counts positions by itself",
    "mllama": r"do not attend once each, in order \(3 of 4 did\)",
}
UNUSUAL = {
    "bloom": "attention in code of its own",
    "mpt": "attention in code of its own",
    "gptj": "attention in code of its own",
    "mamba2": "it has no keys and values, and remembers in states alone",
    "moshi": "token 100 sees token 0",
    "mimo_v2_flash": "its keys and values are 2 x 16 and 12, and its config tells 2 x 16",
    "musicgen": "it has an encoder",
    "t5": "it has an encoder",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TYPES)
def test_a_type_is_equal_or_refused_in_a_sentence(kind):
    outcome, told = measure(kind)
    assert outcome in GOOD, told
    if outcome == "refused":
        assert re.fullmatch(
            rf"{kind} models are not supported: (it|its|transformers) [^\n]+", told.replace("gpt2", kind)
        )


@pytest.mark.parametrize(("kind", "reason"), [*WRONG.items(), *UNUSUAL.items()])
def test_a_refusal_names_the_family_and_the_reason(kind, reason):
    with pytest.raises(ModelError, match=f"^{kind} models are not supported: .*{reason}"):
        refuse_unfit(tiny_config(kind))


@pytest.mark.parametrize("kind", ["diffllama", "doge", "hrm_text"])
def test_a_module_that_was_not_tried_is_refused_before_it_answers(kind):
    module = tf.AutoModelForCausalLM.from_config(tiny_config(kind)).eval().float()
    model = TransformersModel(module)
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    with pytest.raises(ModelError, match=f"^{kind} models are not supported: its"):
        model.forward([5, 6, 7], cache)
    assert cache.length == 0


@pytest.mark.parametrize("kind", ["bert", "electra"])
def test_a_module_that_sees_later_tokens_is_refused(kind):
    config = tiny_config(kind)
    config.is_decoder = False
    with pytest.raises(ModelError, match=f"^{kind} models are not supported: its tokens attend to later ones"):
        refuse_unfit(config)


def test_a_config_that_transformers_builds_nothing_from_is_refused():
    config = tiny_config("llama")
    config.hidden_act = "unknown"
    with pytest.raises(
        ModelError, match="llama models are not supported: transformers builds no layers from its config"
    ):
        refuse_unfit(config)


def test_layers_that_share_what_none_makes_are_refused():
    config = tiny_config("gemma3n_text")
    config.num_kv_shared_layers = 4
    with pytest.raises(ModelError, match="gemma3n_text models are not supported: its layers share"):
        refuse_unfit(config)


def test_a_trial_leaves_the_config_as_it_was():
    config = tiny_config("llama")
    before = config.to_dict(), config._attn_implementation
    refuse_unfit(config)
    assert (config.to_dict(), config._attn_implementation) == before


def test_experts_are_tried_without_numbers():
    refuse_unfit(tiny_config("qwen3_moe"))
    refuse_unfit(tiny_config("mixtral"))


# The guard

SHAPE = KVShape((LayerShape(2, 16, 16),) * LAYERS)
LATENT = KVShape((LayerShape(1, 24, 8, "latent"),))
OWN = LayerMap({layer: layer for layer in range(LAYERS)})
ONE = LayerMap({0: 0})


def attend(guard, layer, heads=2, k_dim=16, v_dim=16, expand=None):
    return guard.enter_layer(layer, torch.zeros(heads, 3, k_dim), torch.zeros(heads, 3, v_dim), expand)


@pytest.mark.parametrize("layers", [[0, 0], [1], [0, 2], [0, 1, 2, 3, 4], [0, 1, 2, 3, 0], [0, 1, 2], []])
def test_layers_attend_once_each_in_order(layers):
    with pytest.raises(UnsupportedModel, match="once each, in order" if layers else "code of its own"):
        attend_all(layers)


def attend_all(layers):
    guard = AttentionPass(SHAPE, OWN)
    with guard.complete():
        for layer in layers:
            attend(guard, layer)


def test_a_pass_may_begin_again():
    guard = AttentionPass(SHAPE, OWN)
    for _ in range(2):
        with guard.complete():
            assert current_pass() is guard
            for layer in range(LAYERS):
                attend(guard, layer)
    assert current_pass() is None


@pytest.mark.parametrize("wrong", [{"heads": 4}, {"k_dim": 8}, {"v_dim": 12}])
def test_heads_and_widths_are_those_of_the_shape(wrong):
    with pytest.raises(UnsupportedModel, match="its config tells 2 x 16"):
        attend(AttentionPass(SHAPE, OWN), 0, **wrong)


SHARED = LayerMap({0: 0, 1: 1, 2: 0, 3: 1})
TWO = KVShape((LayerShape(2, 16, 16),) * 2)


def test_a_shared_layer_attends_over_what_an_earlier_one_made():
    guard = AttentionPass(TWO, SHARED)
    made = [(torch.zeros(2, 3, 16), torch.zeros(2, 3, 16)) for _ in range(2)]
    with guard.complete():
        entered = [guard.enter_layer(layer, *made[layer % 2], None) for layer in range(4)]
    assert [(layer.cached, layer.shared) for layer in entered] == [(0, False), (1, False), (0, True), (1, True)]


def test_a_shared_layer_with_keys_of_its_own_is_refused():
    guard = AttentionPass(TWO, SHARED)
    attend(guard, 0), attend(guard, 1)
    with pytest.raises(UnsupportedModel, match="share keys and values in a way of its own"):
        attend(guard, 2)


def test_shared_layers_attend_once_each_too():
    guard = AttentionPass(TWO, SHARED)
    with pytest.raises(UnsupportedModel, match="2 of 4 did"), guard.complete():
        attend(guard, 0), attend(guard, 1)


def test_latents_are_where_the_shape_has_them():
    with pytest.raises(UnsupportedModel, match="latents"):
        attend(AttentionPass(LATENT, ONE), 0)
    with pytest.raises(UnsupportedModel, match="latents"):  # none were given to update
        attend(AttentionPass(LATENT, ONE), 0, expand=lambda k, v: (k, v))
    with pytest.raises(UnsupportedModel, match="latents"):
        attend(AttentionPass(SHAPE, OWN), 0, expand=lambda k, v: (k, v))
