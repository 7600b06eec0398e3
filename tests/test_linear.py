"""Linear layers in blocks, and the decoder layers made of them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from localctx.kernels.linear import GROUP, dense, exact_blocks, int8_blocks, joined, multiply
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.base import Feed
from localctx.models.hf import TransformersModel
from localctx.models.lean import lean
from localctx.models.linear import BlockedLinear, block_linears, weight_bytes

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def weight(outputs: int, inputs: int, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(outputs * inputs)
    return torch.randn(outputs, inputs).to(dtype).float()


@pytest.mark.parametrize("dtype", DTYPES)
@given(outputs=st.integers(1, 100), inputs=st.integers(1, 200), rows=st.integers(1, 70))
@settings(max_examples=20, deadline=None)
def test_products_are_those_of_the_weight(dtype, outputs, inputs, rows):
    w, x = weight(outputs, inputs, dtype), torch.randn(rows, inputs)
    blocks = exact_blocks(w)
    assert torch.equal(dense(blocks), w), "nothing is lost"
    assert torch.allclose(multiply(x, blocks), x @ w.T, atol=1e-4)
    small = int8_blocks(w)
    assert torch.allclose(multiply(x, small), x @ dense(small).T, atol=1e-4)
    bound = torch.nn.functional.pad(w, (0, -inputs % GROUP)).unflatten(1, (-1, GROUP)).abs().amax(-1) / 254
    assert ((dense(small) - w).abs() <= bound.repeat_interleave(GROUP, 1)[:, :inputs] * 1.001).all()


def test_sixteen_bits_where_they_suffice():
    assert [exact_blocks(weight(64, 64, dtype)).nbytes // (64 * 64) for dtype in DTYPES] == [4, 2, 2]


@pytest.mark.parametrize("make", [exact_blocks, int8_blocks])
def test_a_row_does_not_depend_on_the_others(make):
    blocks, x = make(weight(96, 576, torch.bfloat16)), torch.randn(200, 576)
    whole = multiply(x, blocks)
    for rows in (1, 2, 3, 4, 17, 49, 100):
        assert torch.equal(multiply(x[:rows], blocks), whole[:rows]), f"{rows} rows, to the last bit"


def test_joined_weights_share_memory():
    parts = [exact_blocks(weight(n, 64)) for n in (32, 96)]
    whole, shares = joined(parts)
    x = torch.randn(3, 64)
    assert torch.equal(multiply(x, whole), torch.cat([multiply(x, part) for part in parts], 1))
    for share, part in zip(shares, parts, strict=True):
        assert share.codes.base is whole.codes
        assert torch.equal(dense(share), dense(part))


def test_a_module_keeps_no_other_copy():
    module = torch.nn.Sequential(torch.nn.Linear(64, 70), torch.nn.Linear(70, 32, bias=False))
    x = torch.randn(2, 3, 64)
    expected = module(x)
    block_linears(module)
    assert all(isinstance(child, BlockedLinear) for child in module)
    assert torch.allclose(module(x), expected, atol=1e-5)
    assert weight_bytes(module) == sum(child.blocks.nbytes for child in module) + 70 * 4
    assert [len(parameter) for parameter in module.parameters()] == [70], "a bias"


def plain(family: str, **more) -> torch.nn.Module:
    import transformers

    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "vocab_size": 100}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512}
    config = getattr(transformers, f"{family}Config")(**sizes, **heads, **more)
    torch.manual_seed(1)
    module = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)  # norms and biases are trivial as they are made
    return module


FAMILIES = [
    ("Llama", {}),
    ("Llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "yarn", "factor": 2, "rope_theta": 1e4}}),
    ("Mistral", {"sliding_window": 40}),
    ("Qwen2", {}),
    ("Qwen3", {}),
]


@pytest.mark.parametrize("weights", ["full", "int8"])
@pytest.mark.parametrize(("family", "more"), FAMILIES)
def test_few_rows_are_computed_as_by_the_modules(family, more, weights):
    module = plain(family, **more)
    block_linears(module, weights)
    model = TransformersModel(module)
    assert lean(module), f"{family} is a plain decoder"
    read, first, others = list(range(1, 100)), [[5, 6, 7], [8], [9] * 12], [[1], [2], [3]]

    def logits(model):
        pool = Pool(model.shape, "f32", rope=model.rope)
        caches = [Cache(pool, model.dtype) for _ in first]
        for i, cache in enumerate(caches):
            model.forward(read[: 60 + 17 * i], cache)
        found = []
        for tokens in (first, others):
            feeds = [Feed(some, cache, len(some)) for some, cache in zip(tokens, caches, strict=True)]
            found += model.forward_each(feeds)
        return torch.cat(found)

    with_it = logits(model)
    model._lean = None
    assert torch.allclose(with_it, logits(model), atol=2e-4)


def test_what_is_no_plain_decoder_is_left_to_the_modules():
    with_bias = plain("Llama", mlp_bias=True)
    block_linears(with_bias)
    assert lean(with_bias) is None
    assert lean(plain("Llama")) is None, "its weights are in no blocks"
    mixed = plain("Llama")
    with torch.no_grad():
        mixed.model.layers[1].self_attn.k_proj.weight.zero_()  # 16 bits hold that, and not the queries beside it
    block_linears(mixed)
    assert lean(mixed) is None
    gelu = plain("Llama", hidden_act="gelu")
    block_linears(gelu)
    assert lean(gelu) is None
