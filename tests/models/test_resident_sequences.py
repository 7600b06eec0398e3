"""Sequences of one context of llama.cpp: a chunk of a prompt is computed without the cells of others."""

import gc
import weakref
from contextlib import suppress

import pytest
from required_extras import needs_llama
from tiny_ggufs import FAMILIES, write_tiny_gguf

from localctx.errors import Cancelled
from localctx.models.base import ForwardRequest
from localctx.models.llama_cpp.model import LlamaModel, load_llama_model

pytestmark = [pytest.mark.slow, needs_llama]
ONE, OTHER = list(range(40, 140)), list(range(60, 200))


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tmp_path_factory) -> LlamaModel:
    folder = tmp_path_factory.mktemp("model")
    return load_llama_model(
        write_tiny_gguf(folder / "tiny.gguf", request.param), "tiny", folder / "tried", threads=1, device="cpu"
    )


def opened(model: LlamaModel):
    cache = model.new_cache("f16", 400)
    cache.memory.allow(4096)
    return cache


def alone(model: LlamaModel, *chunks: list[int]) -> list[int]:
    cache = opened(model)
    try:
        return [int(model.forward(chunk, cache)[-1].argmax()) for chunk in chunks]
    finally:
        cache.drop()


def test_prompts_that_take_turns_are_computed_as_alone(model):
    first, second = opened(model), opened(model)
    said = [], []
    for part in range(2):
        half = slice(50 * part, 50 * part + 50)
        requests = [ForwardRequest(ONE[half], first, 1), ForwardRequest(OTHER[half], second, 1)]
        for own, logits in zip(said, model.forward_each(requests), strict=True):
            own.append(int(logits[-1].argmax()))
    both = model.forward_each([ForwardRequest([7], first, 1), ForwardRequest([7], second, 1)])
    for own, logits in zip(said, both, strict=True):
        own.append(int(logits[-1].argmax()))
    assert said[0] == alone(model, ONE[:50], ONE[50:], [7])
    assert said[1] == alone(model, OTHER[:50], OTHER[50:100], [7])
    first.drop()
    second.drop()


def test_a_chunk_preempts_strangers_and_not_forks(model):
    stranger, text = opened(model), opened(model)
    model.forward(ONE, stranger)
    model.forward(OTHER[:50], text)
    assert stranger.sequence.id is None, "its cells are out of the way"
    assert stranger.sequence.preempted is not None
    fork = text.fork()
    model.forward(OTHER[50:], fork)
    assert text.sequence.id is not None, "its cells are the fork's too"
    model.forward_each([ForwardRequest([7], stranger, 1), ForwardRequest([7], text, 1), ForwardRequest([7], fork, 1)])
    assert all(cache.sequence.id is not None for cache in (stranger, text, fork)), "what decodes is together"
    for cache in (stranger, text, fork):
        cache.drop()


def test_shared_cells_count_once_and_the_limit_follows_the_weights(model):
    text = opened(model)
    model.forward(ONE, text)
    fork, other = text.fork(), opened(model)
    need = lambda *caches: model.memory("f16").bytes_needed([(cache, 64) for cache in caches])  # noqa: E731
    per_token = need(other) // 64
    assert need(text) == (len(ONE) + 64) * per_token
    assert need(text, fork) == (len(ONE) + 128) * per_token
    assert need(text, other) == (len(ONE) + 128) * per_token
    assert 0 < model.memory("f16").device_limit < model.nbytes
    for cache in (text, fork, other):
        cache.drop()


def test_a_cancel_of_one_request_costs_no_other_its_past(model):
    first, second = opened(model), opened(model)
    model.forward(ONE[:50], first)
    model.forward(OTHER[:50], second)
    asked = iter([False])  # the cancel comes when the first of them was computed
    with suppress(Cancelled):
        requests = [ForwardRequest(ONE[50:], first, 1), ForwardRequest([7], second, 1)]
        model.forward_each(requests, lambda: next(asked, True))
    assert first.exact
    assert second.exact
    if first.length == 50:
        model.forward(ONE[50:], first)
    assert int(model.forward([7], first)[-1].argmax()) == alone(model, ONE[:50], ONE[50:], [7])[-1]
    first.drop()
    second.drop()


def test_a_long_sequence_is_resumed_where_several_others_have_to_make_room(tmp_path):
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    model = load_llama_model(path, "tiny", tmp_path / "tried", threads=1, device="cpu")
    text, long, others = [40 + i % 100 for i in range(1500)], model.new_cache("f16"), list[object]()
    long.memory.allow(1792)
    model.forward(text, long)
    for _ in range(5):
        others.append(model.new_cache("f16"))
        model.forward(ONE, others[-1])
    model.forward_each([ForwardRequest([7], other, 1) for other in others])  # all are resident
    assert int(model.forward([7], long)[-1].argmax()) == alone(model, text, [7])[-1]


def test_the_weights_go_with_the_model_though_what_was_loaded_is_not_scanned(tmp_path):
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    model = load_llama_model(path, "tiny", tmp_path / "tried", threads=1, device="cpu")
    gc.disable()
    try:
        weights = weakref.ref(model._weights)
        assert model.tokenizer.encode_chat([{"role": "user", "content": "Who?"}])
        del model
        assert weights() is None
    finally:
        gc.enable()
