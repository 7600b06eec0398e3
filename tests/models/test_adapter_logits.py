"""Adapters: what they make of a prompt is what PEFT computes, whatever else is computed in the same pass."""

from pathlib import Path

import pytest
import torch
from tiny_adapters import LAYERS, peft_logits, save_adapter
from tiny_models import make_tokenizer

from localctx.kv.cache import Cache
from localctx.kv.pages import Activation
from localctx.kv.pool import Pool
from localctx.models.adapter import load_adapter
from localctx.models.base import ForwardRequest
from localctx.models.decoder.local_model import LocalModel
from localctx.models.decoder.transformers_model import TransformersModel, load_module
from localctx.models.load import load_model
from localctx.models.quantized.blocked_linear import block_linears

pytestmark = pytest.mark.slow

TEXT = "The river Quell is 196 km long, and it ends in the sea. " * 3
TOKENS = make_tokenizer().encode(f"{TEXT}\n\nQuestion: How long is the Quell?")
START = len(TEXT) + 2


def load_with_transformers(folder: Path) -> TransformersModel:
    module, tokenizer = load_module(folder, torch.device("cpu"), torch.float32, "full")
    return TransformersModel(module, tokenizer, row_by_row=block_linears(module))


@pytest.fixture(params=["native", "transformers"])
def model(request, tiny_model) -> LocalModel:
    """The tiny model in f32, as each of the two ways computes it."""
    return (
        load_model(tiny_model, "tiny", dtype="f32") if request.param == "native" else load_with_transformers(tiny_model)
    )


@pytest.fixture(scope="module")
def adapters(tiny_model, tmp_path_factory) -> list[Path]:
    """Folders of an adapter for every linear layer, and one of another rank for two kinds of them."""
    folder = tmp_path_factory.mktemp("adapters")
    save_adapter(folder / "all", tiny_model, targets=LAYERS)
    save_adapter(folder / "some", tiny_model, targets=("q_proj", "down_proj"), rank=3, seed=1, use_rslora=True)
    return [folder / "all", folder / "some"]


def cache_for(model: LocalModel, folder: Path | None, start: int = START) -> Cache:
    """An empty cache of a sequence that the adapter in a folder computes from token ``start`` on."""
    cache = Cache(Pool(model.shape, "f32", model.device, model.rope), model.dtype)
    if folder:
        adapter = load_adapter(folder)
        model.add_adapter(adapter)
        cache.activation = Activation(adapter.fingerprint, start)
    return cache


@pytest.mark.parametrize("which", [0, 1])
def test_logits_are_those_of_peft_in_one_pass_in_chunks_and_token_by_token(model, tiny_model, adapters, which):
    wanted = peft_logits(tiny_model, adapters[which], TOKENS)
    plain = model.forward(TOKENS, cache_for(model, None), len(TOKENS))
    assert (plain[START:] - wanted[START:]).abs().max() > 0.05, "an adapter that does nothing tests nothing"
    for chunk in (len(TOKENS), 50, 7, 1):  # 50: a chunk straddles the invocation
        cache = cache_for(model, adapters[which])
        parts = [TOKENS[i : i + chunk] for i in range(0, len(TOKENS), chunk)]
        logits = torch.cat([model.forward(part, cache, len(part)) for part in parts])
        assert torch.allclose(logits, wanted, atol=1e-4)
        assert torch.equal(logits[:START], plain[:START]) or chunk != len(TOKENS)


def test_sequences_with_different_adapters_and_none_side_by_side_are_what_they_are_alone(model, adapters):
    def sequences():
        return [
            cache_for(model, folder, start)
            for folder, start in zip([None, *adapters, adapters[0]], (0, START, 20, 90), strict=True)
        ]

    alone, together = sequences(), sequences()
    first = [TOKENS[:120], TOKENS, TOKENS[:30], TOKENS[:88]]
    for tokens in (first, [[5], [9, 8, 7], [4], [1, 2, 3, 4]], [[7], [7], [7], [7]]):
        wanted = [model.forward(own, cache, len(own)) for own, cache in zip(tokens, alone, strict=True)]
        requests = [ForwardRequest(own, cache, len(own)) for own, cache in zip(tokens, together, strict=True)]
        for result, same in zip(model.forward_each(requests), wanted, strict=True):
            assert torch.equal(result, same)
