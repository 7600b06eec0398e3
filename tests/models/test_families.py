"""One contract for every family: prefill in odd chunks and decode equal the family's own eager attention."""

import pytest
import torch
import transformers as tf
from native_models import plain
from small_families import FAMILIES, HEAD, SIZE, build

from localctx.budget import TierLimits
from localctx.errors import ModelError, OutOfKVMemory
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.architecture.geometry import shape_of
from localctx.models.base import ForwardRequest
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.models.decoder.trial import refuse_unfit

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
PLAIN = [*(name for name in FAMILIES if name.startswith("llama")), "qwen2", "qwen3", "mistral-window"]
WAYS = [*((name, "modules") for name in FAMILIES), *((name, "plain") for name in PLAIN)]
QUICK = {"llama", "gemma4-shared", "gpt-oss", "mistral-window"}  # one of each kind of layer
WAYS = [pytest.param(*way, marks=[] if way[0] in QUICK else pytest.mark.slow) for way in WAYS]
STEPS = [1, 63, 64, 65, 100, 37, *[1] * 70]


def make(module, way):
    return plain(module) if way == "plain" else TransformersModel(module)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_odd_chunks_and_decode_equal_eager_attention(name, way):
    module, tokens = build(name), torch.randint(3, 199, (sum(STEPS),)).tolist()
    with torch.inference_mode():
        expected = module(torch.tensor([tokens]), use_cache=False).logits[0]
    model = make(module, way)
    cache = Cache(Pool(model.shape, "f32"), torch.float32)
    parts, at = [], 0
    for step in STEPS:
        parts.append(model.forward(tokens[at : at + step], cache, num_logits=step))
        at += step
    assert cache.length == len(tokens)
    torch.testing.assert_close(torch.cat(parts), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_several_sequences_in_one_step_equal_each_alone(name, way):
    model = make(build(name), way)
    texts = [torch.randint(3, 199, (n,)).tolist() for n in (150, 40, 211)]
    alone = [Cache(Pool(model.shape, "f32"), torch.float32) for _ in texts]
    expected = [model.forward(text, cache, num_logits=5) for text, cache in zip(texts, alone, strict=True)]
    caches = [Cache(Pool(model.shape, "f32"), torch.float32) for _ in texts]
    model.forward(texts[2][:80], caches[2])
    cuts = [(texts[0][:64], 1), (texts[1], 5), (texts[2][80:-1], 4)]
    first = model.forward_each(
        [ForwardRequest(tokens, c, keep) for (tokens, keep), c in zip(cuts, caches, strict=True)]
    )
    last = model.forward_each([ForwardRequest(texts[2][-1:], caches[2]), ForwardRequest(texts[0][64:], caches[0], 5)])
    got = [last[1], first[1], torch.cat([first[2], last[0]])]
    for logits, wanted in zip(got, expected, strict=True):
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("way", ["modules", "plain"])
def test_when_one_of_several_has_no_room_all_are_as_before(way):
    model = make(build("llama"), way)
    page = model.shape.page_bytes("f32")
    wide, narrow = (
        Cache(Pool(model.shape, "f32"), torch.float32),
        Cache(Pool(model.shape, "f32", limits=TierLimits(2 * page, 0, 0)), torch.float32),
    )
    for cache in (wide, narrow):
        model.forward(list(range(3, 103)), cache)
    with pytest.raises(OutOfKVMemory):
        model.forward_each([ForwardRequest(list(range(3, 103)), wide), ForwardRequest(list(range(3, 103)), narrow)])
    assert (wide.length, narrow.length) == (100, 100)
    model.forward_each([ForwardRequest([5], wide), ForwardRequest([5], narrow)])


def test_a_window_is_told_layer_by_layer():
    config = tf.Gemma2Config(**SIZE, **HEAD, sliding_window=70)
    assert [layer.window for layer in shape_of(config).layers] == [70, None, 70, None]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (tf.DeepseekV32Config(num_hidden_layers=2), "index"),
        (tf.T5Config(), "encoder"),
        (tf.LlamaConfig(**SIZE, rope_parameters=DYNAMIC), "frequencies"),
    ],
)
def test_a_family_that_would_be_wrong_is_refused_by_name_with_the_reason(config, reason):
    with pytest.raises(ModelError, match=rf"{config.model_type}.*{reason}"):
        refuse_unfit(config)
