"""The kernels for GPUs against torch: on a GPU, else by Triton's interpreter. They compile for two generations."""

import os
import subprocess
import sys
from contextlib import nullcontext

import measure_gpu
import numpy as np
import pytest
import torch
from repository import ROOT
from triton_device import DEVICE, GPU, triton

from localctx.budget import TierLimits
from localctx.kernels import quant, sketch
from localctx.kernels import reference as A
from localctx.kernels.cpu import selection as selection_cpu
from localctx.kernels.cpu.key_bias import KeyBias
from localctx.kernels.device import has_triton
from localctx.kernels.triton import attention as attention_triton
from localctx.kernels.triton import pages as pages_triton
from localctx.kernels.triton import record_copy as record_copy_triton
from localctx.kernels.triton import records as records_triton
from localctx.kernels.triton import rotation as rotation_triton
from localctx.kernels.triton import selection as selection_triton
from localctx.kernels.triton import sketch as sketch_triton
from localctx.kernels.triton import word_attention
from localctx.kv.attention import attend_cache
from localctx.kv.backends import triton_backend, triton_check
from localctx.kv.batches.decode_batch import DecodeBatch
from localctx.kv.cache import Cache
from localctx.kv.codecs import make_codec
from localctx.kv.dispatch import AttentionCase, Path, attention_path, joins_batch
from localctx.kv.keepers import make_keeper
from localctx.kv.keepers.select import DENSE_LAYERS
from localctx.kv.pool import Pool
from localctx.kv.prefetch import Prefetcher
from localctx.kv.selection import choose_pages
from localctx.models.decoder.forward_batch import make_decode_batch
from localctx.shape import PAGE, KVShape, LayerShape

pytestmark = pytest.mark.slow

BF16 = torch.bfloat16
NOWHERE = np.empty(0, np.int64)  # no channels rotate
CODECS = ["bf16", "int8", "k8v4", "int4", "int2"]
SHAPES = {"gqa": (LayerShape(2, 32, 32), 6), "uneven": (LayerShape(1, 24, 40), 2)}
WIDE = {"wide": (LayerShape(2, 128, 128), 6)}  # as ``word_attention`` attends to, in Gluon


assert triton


def rand(*shape, device=DEVICE):
    """The same numbers on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(device)


def on_device(*numbers, dtype=torch.int64):
    return torch.tensor([*numbers], dtype=dtype, device=DEVICE)


def addresses_of(records):
    return on_device(*(r.data_ptr() for r in records))


def kinds_of(*kinds):
    return on_device(*kinds, dtype=torch.uint8)


def layout_of(shape, *names):
    codecs = [make_codec(name, shape, rotated=False) for name in names]
    y = [c.layout for c in codecs]
    offsets = [[x.k_codes, x.k_scale, x.k_zero, x.v_codes, x.v_scale, x.v_zero] for x in y]
    bits = tuple((c.format.k_bits, c.format.v_bits) for c in codecs)
    return records_triton.TritonLayerLayout(shape.kv_heads, shape.k_dim, shape.v_dim, bits, on_device(*offsets))


def stored(name, shape, pages, rotated=False):
    """Records of random keys (offset, as real ones are) and values, their addresses, and what they decode to."""
    codec = make_codec(name, shape, rotated)
    k = rand(shape.kv_heads, pages * PAGE, shape.k_dim) + 3 * rand(shape.kv_heads, 1, shape.k_dim)
    records = codec.encode(k, rand(shape.kv_heads, pages * PAGE, shape.v_dim))
    return records, addresses_of(records), codec.decode(records, torch.float32)


def near(found, expected, atol=4e-3):
    torch.testing.assert_close(found.float(), expected.float(), atol=atol, rtol=4e-3)


# --- Kernels


@pytest.mark.parametrize("case", [*SHAPES, *WIDE])
@pytest.mark.parametrize("name", CODECS)
def test_pages_are_attended_as_what_they_decode_to(name, case):
    """Two rows, the first of three parts; the second begins within a page. A zero part after them is nothing."""
    shape, heads = (SHAPES | WIDE)[case]
    _records, at, (k, v) = stored(name, shape, 11)
    parts = np.array([[0, 0, 4, 0], [0, 4, 8, 0], [0, 8, 9, 0], [1, 9, 11, 63]])
    pages = measure_gpu.pages_in_parts(parts, 2, at, kinds_of(*[0] * 11))
    pages = pages._replace(parts=torch.cat((pages.parts, torch.zeros_like(pages.parts[:1]))))
    q = rand(2, heads, shape.k_dim)
    out, lse, masses = attention_triton.attend_pages(q, pages, layout_of(shape, name, "bf16"), 0.2, masses=True)
    for row, seen in enumerate((slice(0, 9 * PAGE), slice(9 * PAGE + 63, None))):
        expected, expected_lse = A.attend_reference(q[row][:, None], k[:, seen], v[:, seen], 0.2)
        near(out[row], expected[:, 0])
        near(lse[row], expected_lse[:, 0])
        near(masses[:, 9 * row : 9 + 2 * row].logsumexp(1), expected_lse[:, 0])


@pytest.mark.parametrize("case", ["gqa", *WIDE])
def test_each_head_has_pages_of_its_own_of_two_kinds_with_extra_scores_and_a_cap(case):
    shape, heads = (SHAPES | WIDE)[case]
    kept, at, (k, v) = stored("int4", shape, 6)
    sinks, sinks_at, (sink_k, sink_v) = stored("bf16", shape, 1)
    assert len(kept) + len(sinks) == 7
    chosen = on_device([0, 2, 5], [1, 2, 3])
    addresses = torch.cat((sinks_at.expand(2, 1), at[chosen]), 1)
    kinds = kinds_of(1, 0, 0, 0).expand(2, 4).contiguous()
    pages = measure_gpu.pages_in_parts(np.array([[0, 0, 1, 0], [0, 1, 3, 0], [0, 3, 4, 0]]), 1, addresses, kinds)
    q, extra = rand(1, heads, shape.k_dim), rand(heads, 4 * PAGE)
    out, lse, masses = attention_triton.attend_pages(
        q, pages, layout_of(shape, "int4", "bf16"), 0.2, softcap=3, extra=extra, masses=True
    )
    near(masses.logsumexp(1), lse[0])
    for head in range(2):
        mine = slice(head * 3, head * 3 + 3)
        keys, values = (
            torch.cat([sink[head], *(x[head].unflatten(0, (6, PAGE))[i] for i in chosen[head])])
            for sink, x in ((sink_k, k), (sink_v, v))
        )
        scores = 3 * torch.tanh((q[0, mine] @ keys.T * 0.2 + extra[mine]) / 3)
        near(out[0, mine], scores.softmax(-1) @ values)
        near(lse[0, mine], scores.logsumexp(-1))


@pytest.mark.parametrize("case", ["gqa", *WIDE])
@pytest.mark.parametrize("rotated", [False, True])
def test_rows_see_their_pages_their_open_page_and_themselves(rotated, case):
    """The second row has no page and hides 21 tokens; both write what is new."""
    shape, heads = (SHAPES | WIDE)[case]
    width = shape.k_dim
    k, v = rand(2, 3 * PAGE, width), rand(2, 3 * PAGE, width)
    codec = make_codec("int8+hadamard" if rotated else "int8", shape)
    records = codec.encode(k, v)
    k, v = codec.decode(records, torch.float32)
    pages = measure_gpu.pages_in_parts(np.array([[0, 0, 3, 5]]), 2, addresses_of(records), kinds_of(0, 0, 0))
    open_k, open_v = (rand(2, 2, PAGE, width + i)[..., :width].contiguous().to(BF16) for i in range(2))
    at = on_device(*([open_k[i].data_ptr(), open_v[i].data_ptr()] for i in range(2)))
    tails = attention_triton.TritonOpenPages(at, on_device(0, 41), on_device(0, 21))
    q, new_k, new_v = (rand(n, 2, width).to(BF16).transpose(0, 1) for n in (heads, 2, 2))
    before, sinks = (open_k.clone(), open_v.clone()), rand(heads)
    out, masses = attention_triton.attend_rows(
        q, new_k, new_v, pages, tails, layout_of(shape, "int8", "bf16"), 0.2, sinks=sinks, rotated=rotated, masses=True
    )
    for row, (first, stop) in enumerate(((0, 0), (21, 41))):
        parts = [A.attend_reference(q[row][:, None].float(), k[:, 5:], v[:, 5:], 0.2)] if row == 0 else []
        keys, values = (
            torch.cat((was[row][:, first:stop], new[row][:, None]), 1).float()
            for was, new in zip(before, (new_k, new_v), strict=True)
        )
        parts.append(A.attend_reference(q[row][:, None].float(), keys, values, 0.2))
        expected, lse = A.merge(parts, sinks)
        near(out[row], expected[:, 0], atol=2e-2)
        assert torch.equal(open_k[row][:, stop], new_k[row])
        assert torch.equal(open_v[row][:, stop], new_v[row])
        if row == 0:
            near(masses.sum(1), (parts[0][1] - lse).exp()[:, 0])
    assert torch.equal(open_k[1][:, :41], before[0][1][:, :41])


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", CODECS[1:])
def test_sealing_writes_the_bytes_that_torch_writes(name, case):
    shape, _ = SHAPES[case]
    k, v = (rand(shape.kv_heads, 2 * PAGE, d) for d in (shape.k_dim, shape.v_dim))
    k[:, :, 0], v[:, 0] = 7e4, 0.5  # clipped; constant
    expected = make_codec(name, shape, rotated=False).encode(k, v)
    records = torch.zeros_like(expected)
    pages_triton.seal(k, v, addresses_of(records), layout_of(shape, "bf16", name), 1)
    assert torch.equal(records, expected)


def test_sealing_in_bf16_keeps_what_is_bf16():
    shape, _ = SHAPES["uneven"]
    k, v = (rand(shape.kv_heads, PAGE, d).to(BF16) for d in (shape.k_dim, shape.v_dim))
    expected = make_codec("bf16", shape).encode(k, v)
    records = torch.zeros_like(expected)
    pages_triton.seal(k, v, addresses_of(records), layout_of(shape, "bf16"), 0)
    assert torch.equal(records, expected)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("name", [*CODECS, "int8+hadamard"])
def test_what_is_unsealed_is_what_records_decode_to(name, case, monkeypatch):
    """Pages of both kinds, in any order, in the model's precision and in full; what is rotated is so by three pages."""
    monkeypatch.setattr(pages_triton, "_ROTATED_PAGES", 3)
    shape, _ = SHAPES[case]
    rotated = name.endswith("hadamard")
    kept, at, numbers = stored(name, shape, 3, rotated)
    kept_sinks, sinks_at, sinks = stored("bf16", shape, 1, rotated)
    assert (len(kept), len(kept_sinks)) == (3, 1)
    order = on_device(2, 0, 1)
    addresses, kinds = torch.cat((sinks_at, at[order])), kinds_of(1, 0, 0, 0)
    for dtype in (torch.float32, BF16):
        made = pages_triton.unseal(addresses, kinds, layout_of(shape, name, "bf16"), dtype, rotated)
        for found, some, first in zip(made, numbers, sinks, strict=True):
            pages = some.unflatten(1, (3, PAGE))[:, order].flatten(1, 2)
            assert found.dtype == dtype
            near(found, torch.cat((first, pages), 1), atol=2e-5 if dtype == torch.float32 else 4e-2)


@pytest.mark.parametrize("n", [8, 24, 64, 80])
def test_rotation_is_that_of_torch(n):
    x, more = rand(20, 3, n).transpose(0, 1) * 50, rand(3, 20, n)
    torch.testing.assert_close(rotation_triton.rotate(x), quant.rotate(x), atol=1e-4, rtol=1e-6)
    torch.testing.assert_close(rotation_triton.rotate(x, more), quant.rotate(x) + more, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize("name", ["bf16", "int8", "int4"])
def test_a_sketch_of_records_is_that_of_their_keys(name):
    shape, _ = SHAPES["uneven"]
    records, at, _ = stored(name, shape, 3)
    made = sketch_triton.make_sketch(at, kinds_of(0, 0, 0), layout_of(shape, name, "bf16"))
    expected = sketch.make_sketch(make_codec(name, shape, rotated=False).stored_keys(records))
    assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.parametrize("with_extra", [False, True])
def test_the_best_scores_of_a_sketch_are_those_of_torch(with_extra):
    q, made = rand(2, 17, 24), sketch.make_sketch(rand(3, 2, 24, PAGE))
    extra = rand(2, 17, 3 * PAGE) if with_extra else None
    near(sketch_triton.best_scores(q, made, extra), sketch.best_scores(q, made, extra), atol=2e-2)


def placed(made, pages, count, room):
    """A sketch of so many ``pages``, of which ``count`` are chosen, as the kernels that choose take it. It begins a
    larger one.
    """
    whole = [torch.cat((part, part[:, :1].expand(-1, room - pages, *part.shape[2:])), 1).contiguous() for part in made]
    sketch_at = on_device(*(part.data_ptr() for part in whole), room)
    return selection_triton.TritonSketch(sketch_at, on_device(pages, count)), whole


@pytest.mark.parametrize(
    ("heads", "queries", "dim", "pages", "count"),
    [(2, 3, 24, 40, 17), (1, 1, 16, 5, 4), (1, 9, 16, 32, 31)],
)
def test_pages_are_chosen_as_by_torch(heads, queries, dim, pages, count):
    """Tables have room for more pages than there are, and than are chosen."""
    q, made = rand(heads, queries, dim).to(BF16), sketch.make_sketch(rand(pages, heads, dim, PAGE))
    most, room = triton.next_power_of_2(pages), count + 5
    sketch_at, whole = placed(made, pages, count, most)
    at, kinds = 7 * torch.arange(most, device=DEVICE), (torch.arange(most, device=DEVICE) % 2).to(torch.uint8)
    found = selection_triton.choose(q, 0.3, sketch_at, at, kinds, 1, room)
    first = sketch.Sketch(*(part[:, :pages] for part in whole))
    expected = selection_cpu.choose(q.float() * 0.3, first, count, 1, None, sketch_triton.best_scores)
    assert torch.equal(found.indices[:, :count], expected)
    assert not found.indices[:, count:].any()
    assert torch.equal(found.addresses[:, :count], 7 * expected)
    assert torch.equal(found.formats[:, :count], (expected % 2).to(torch.uint8))


@pytest.mark.parametrize(("queries", "pages", "count"), [(2, 1030, 300), (3, 2048, 12), (4, 2100, 525), (2, 8000, 99)])
def test_many_pages_are_chosen_by_the_same_scores(queries, pages, count, monkeypatch):
    """A program has other widths for them, and ranks a few queries at a time."""
    most = triton.next_power_of_2(pages)
    scores = 9 * rand(2, queries, most)
    monkeypatch.setattr(selection_triton, "best_scores", lambda *_: scores)
    q, made = rand(2, queries, 16), sketch.make_sketch(rand(1, 2, 16, PAGE))
    sketch_at = selection_triton.TritonSketch(on_device(0, 0, 0, 0), on_device(pages, count))
    at, kinds = torch.arange(most, device=DEVICE), torch.zeros(most, dtype=torch.uint8, device=DEVICE)
    found = selection_triton.choose(q, 1.0, sketch_at, at, kinds, 1, count)
    assert torch.equal(found.indices, selection_cpu.choose(q, made, count, 1, None, lambda *_: scores[..., :pages]))


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("scale", [0.0, 0.3, 300.0, float("nan")])
def test_of_pages_that_promise_the_same_the_first_are_chosen(scale):
    """All do, or all after the fifth; or a few are so far above the others that these are worth nothing; and numbers
    that are none let no page be chosen twice.
    """
    keys = rand(30, 1, 16, PAGE)
    keys[5:] = keys[5]
    q, made = rand(1, 2, 16), sketch.make_sketch(keys)
    sketch_at, _whole = placed(made, 30, 12, 32)
    at, kinds = torch.zeros(32, dtype=torch.int64, device=DEVICE), kinds_of(*[0] * 32)
    found = selection_triton.choose(q, scale, sketch_at, at, kinds, 1, 12).indices
    if scale == scale:
        expected = selection_cpu.choose(q * scale, made, 12, 1, None, sketch_triton.best_scores)
        assert torch.equal(found, expected)
    assert len(found.unique()) == 12
    assert {0, 29} <= {*found[0].tolist()}


# --- A kernel that is wrong on a device


class Launched:
    """``word_attention``'s kernel, which notes that it was launched; then its output is multiplied or it fails."""

    def __init__(self, factor=1.0, error=None):
        self.kernel, self.factor, self.error, self.times = word_attention.attend_parts, factor, error, 0

    def __getitem__(self, grid):
        def launch(*given, **how):
            self.times += 1
            if self.error:
                raise self.error
            self.kernel[grid](*given, **how)
            given[12].mul_(self.factor)  # out

        return launch


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (Launched(), "by the faster kernel, which agrees with the slower one here"),
        (Launched(1.1), "it is off by 1e-01 of the largest number with int8 pages; is off by 1e-01"),
        (Launched(float("nan")), "it is off by inf of the largest number with int8 pages"),
        (Launched(error=RuntimeError("no such layout")), "it does not run (RuntimeError) with int8 pages"),
    ],
)
def test_a_kernel_that_is_wrong_on_this_device_is_noticed_and_not_used(kernel, told, monkeypatch, caplog):
    monkeypatch.setattr(word_attention, "attend_parts", kernel)
    monkeypatch.setattr(triton_backend, "_layouts", {})
    triton_check.doubt_about.cache_clear()
    right = kernel.factor == 1 and not kernel.error
    try:
        pool = Pool(KVShape((WIDE["wide"][0],)), "int8", DEVICE, in_place=False, triton=True)
        assert kernel.times == (1 if kernel.error else 2), "once as most tokens are decoded, once with all options"
        assert pool.backend.layouts[0].by_words == right
        assert told in triton_check.describe(DEVICE)
        assert [record.levelname for record in caplog.records] == ([] if right else ["WARNING"] * 2)
        before = kernel.times
        cache = Cache(pool, BF16)
        cache.begin(2 * PAGE)
        k, v = (rand(2, 2 * PAGE, 127 + i)[..., :128].to(BF16) for i in (1, 2))
        cache.extend(0, k, v)
        cache.commit()
        q = rand(6, 1, 128).to(BF16)
        cache.begin(1)
        out = attend_cache(cache, 0, q, k[:, :1], v[:, :1], 0.1)
        assert kernel.times - before == right
        expected = A.attend_reference(q.float(), *(torch.cat((x, x[:, :1]), 1).float() for x in (k, v)), 0.1)
        near(out, expected[0], atol=2e-2)
    finally:
        triton_check.doubt_about.cache_clear()


# --- What calls them


class Biased:
    """A model whose k_proj adds the same to every key, and does not rotate."""

    bias = 20 * rand(2, 32, device="cpu").to(BF16).float()

    def has_bias(self, layer):
        return True

    def bias_keys(self, layer, positions):
        return self.bias.to(positions.device)[:, None].expand(-1, len(positions), -1)

    def key_bias(self, layers, starts):
        keys = self.bias[None, :, None].expand(len(layers), -1, starts.shape[1], -1).clone()
        return KeyBias(keys.numpy(), np.empty((0, PAGE), np.float32), NOWHERE, NOWHERE, np.arange(32))

    def bias_scores(self, layer, q, positions):
        return (
            (q.unflatten(0, (2, -1)) * self.bias.to(q.device)[:, None])
            .sum(-1)
            .flatten()[:, None]
            .expand(-1, len(positions))
        )


def pools(codec, layers=1, window=None, rope=None, **how):
    """The same pool for a processor's kernels and for a GPU's, in the processor's memory where there is none."""
    shape = KVShape((LayerShape(2, 32, 32, window=window),) * layers)
    return Pool(shape, codec, rope=rope), Pool(shape, codec, DEVICE, rope, in_place=False, triton=True, **how)


def filled(pool, length, keep="full"):
    cache = Cache(pool, BF16, make_keeper(keep, length))
    cache.begin(length)
    for layer in range(len(pool.shape.layers)):
        k, v = rand(2, length, 32, device=pool.device), rand(2, length, 33, device=pool.device)[..., :32]
        cache.extend(layer, k.to(BF16), v.to(BF16))
    cache.commit()
    return cache


def step(caches, tokens, attend):
    """One more step of every cache: what came out, layer by layer, and what was looked at."""
    for cache in caches:
        cache.record_attention()
        cache.begin(tokens)
    device = caches[0].pool.device
    q, k, v = (rand(heads, len(caches) * tokens, 32, device=device).to(BF16) for heads in (4, 2, 2))
    outs = [attend(caches, layer, q, k, v) for layer in range(len(caches[0].pool.shape.layers))]
    for cache in caches:
        cache.commit()
    return torch.stack(outs).cpu(), torch.from_numpy(np.concatenate([cache.attention_mass for cache in caches]))


@pytest.mark.parametrize(
    ("codec", "how", "rope"),
    [
        ("bf16", {"sinks": rand(4, device="cpu")}, None),
        ("int8", {"window": 150, "softcap": 3.0}, None),
        ("int4+hadamard", {}, None),
        ("k8v4", {}, Biased()),
    ],
)
def test_rows_on_a_gpu_are_those_on_a_processor(codec, how, rope):
    """Among them one that seals a page in this step."""

    def attend(caches, layer, q, k, v):
        if layer == 0:
            rows.append(make_decode_batch([(cache, 1) for cache in caches]))
        moved = {name: x.to(q.device) if name == "sinks" else x for name, x in how.items()}
        out = rows[-1].attend(layer, q, k, v, 0.2, **moved)
        if layer:
            rows[-1].report_attention()
        return out

    rows, seen, sealed = list[DecodeBatch](), [], []
    for pool in pools(codec, 2, how.get("window"), rope):
        caches = [filled(pool, n) for n in (5, PAGE - 1, 6 * PAGE + 7)]
        assert all(joins_batch(cache, 1) for cache in caches)
        seen.append(step(caches, 1, attend))
        sealed.append([x.cpu() for x in caches[1].read(1, 0, 1, torch.float32)])
        for cache in caches:
            cache.drop()
    assert type(rows[0]) is DecodeBatch
    assert type(rows[1]) is not DecodeBatch
    for found, expected in zip((*seen[1], *sealed[1]), (*seen[0], *sealed[0]), strict=True):
        torch.testing.assert_close(found, expected.to(found.dtype), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(("keep", "tokens"), [("h2o:640", 1), ("select:1/2", 1), ("select:1/2", 3)])
@pytest.mark.parametrize("rope", [None, Biased()], ids=["plain", "biased"])
def test_keepers_choose_and_weigh_on_a_gpu_as_on_a_processor(keep, tokens, rope):
    def attend(caches, layer, q, k, v):
        out = attend_cache(caches[0], layer, q, k, v, 0.2)
        caches[0].extend(layer, k, v)
        return out

    seen = []
    for pool in pools("int8", 3, rope=rope):
        cache = filled(pool, 7 * PAGE, keep)
        cache.enter_phase("answering")
        seen.append(step([cache], tokens, attend))
        seen[-1] += (torch.from_numpy(cache.history.page_mass),)
    for found, expected in zip(seen[1], seen[0], strict=True):
        torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(("codec", "length"), [("int8", 9 * PAGE + 5), ("int4+hadamard", 12 * PAGE - 1)])
def test_a_row_selects_the_same_pages_in_a_batch_and_on_every_device(codec, length, monkeypatch):
    """The second seals a page in this step. The batch of a GPU tells the processor nothing of what it chose."""

    def in_batch(caches, layer, q, k, v):
        if layer == 0:
            rows.append(make_decode_batch([(caches[0], 1)]))
        expected.append(choose_pages(caches[0], layer, q[:, 0] * 0.2).cpu())
        out = rows[-1].attend(layer, q, k, v, 0.2)
        if layer == 3:
            rows[-1].report_attention()
        return out

    def alone(caches, layer, q, k, v):
        out = attend_cache(caches[0], layer, q, k, v, 0.2)
        caches[0].extend(layer, k, v)
        return out

    def noted(*given, choose=selection_triton.choose):
        chosen.append(choose(*given))
        return chosen[-1]

    monkeypatch.setattr(selection_triton, "choose", noted)
    rows, seen, chosen, expected = list[DecodeBatch](), [], [], []
    cpu_pool, pool = pools(codec, 4)
    for where, attend in ((cpu_pool, in_batch), (pool, in_batch), (pool, alone)):
        cache = filled(where, length, "select:1/2")
        cache.enter_phase("answering")
        assert joins_batch(cache, 1)
        seen.append(step([cache], 1, attend))
    assert len(chosen) == 2, "the first layers see all"
    for found, mine, its in zip(chosen, expected[6:8], expected[2:4], strict=True):
        assert torch.equal(found.indices[:, : mine.shape[1]].cpu(), mine)
        assert torch.equal(mine, its)
    for found, other in ((seen[1], seen[0]), (seen[1], seen[2])):
        for mine, its in zip(found, other, strict=True):
            torch.testing.assert_close(mine, its.to(mine.dtype), atol=2e-2, rtol=2e-2)


def test_forks_that_select_go_on_with_sketches_of_their_own():
    """They have those of their past in common; each has its own of the page that it seals."""
    cache = filled(pools("int8", 3)[1], 6 * PAGE, "select:1/2")
    before = [part.clone() for part in cache.sketches.of_layer(2)]
    twin = cache.fork()
    for one, seed in ((cache, 1), (twin, 2)):
        one.begin(PAGE)
        for layer in range(3):
            k = rand(2, PAGE, 32 + seed)[..., :32].to(BF16)
            one.extend(layer, k, k)
        one.commit()
    made = [one.sketches.of_layer(2) for one in (cache, twin)]
    assert not torch.equal(made[0].codes, made[1].codes)
    for one, found in zip((cache, twin), made, strict=True):
        keys = one.pool.codec_of(2, 0).stored_keys(one.table.records(2, 6, 7))
        expected = sketch.make_sketch(keys)
        for part, old, new in zip(found, before, expected, strict=True):
            assert torch.equal(part, torch.cat((old, new), 1))
    assert cache.sketches.places([2])[0, 3] == 8, "there is room for more"
    assert cache.sketch_bytes() > sum(part.nbytes for part in made[0])


def test_a_bias_of_keys_and_pages_elsewhere_are_left_to_torch():
    for rope, limits in ((Biased(), None), (None, TierLimits(20_000, None, 0))):
        cache = filled(pools("int8", 3, rope=rope, limits=limits)[1], 9 * PAGE, "select:1/2")
        cache.enter_phase("answering")
        assert not joins_batch(cache, 1)


class OneStream:
    """Streams of a device without any: everything is done at once."""

    def mark(self):
        return True

    def wait(self, mark):
        assert mark

    def aside(self):
        return nullcontext()

    def empty(self, nbytes):
        return torch.full((nbytes,), 255, dtype=torch.uint8)


@pytest.mark.parametrize(("codec", "keep", "rope"), [("int8", "full", None), ("int4", "select:1/2", Biased())])
def test_what_left_the_gpus_memory_is_fetched_as_ever(codec, keep, rope):
    """From RAM and from disk, by the kernel that copies, a layer ahead; several steps, the last with another version
    of the pages' places.
    """
    kept = pools(codec, 3, rope=rope)[1]
    page = kept.page_bytes(1)
    moved = pools(codec, 3, rope=rope, limits=TierLimits(3 * page, 3 * page, None))[1]
    if DEVICE.type == "cpu":
        moved._prefetcher = Prefetcher(moved, moved.shape.parts, OneStream())
    seen = []
    for pool in (kept, moved):
        cache = filled(pool, 9 * PAGE, keep)
        cache.enter_phase("answering")
        assert cache.table.readable() == (pool is kept)
        for _ in range(3):
            cache.begin(1)
            for layer in range(3):
                q, k, v = (rand(heads, 1, 32, device=pool.device).to(BF16) for heads in (4, 2, 2))
                assert (attention_path(AttentionCase(cache, layer, 1, None, BF16)) is Path.FETCHED_PAGES) == (
                    pool is moved and (keep == "full" or layer < DENSE_LAYERS)
                )
                seen.append(attend_cache(cache, layer, q, k, v, 0.2).cpu())
                cache.extend(layer, k, v)
            cache.commit()
    assert all(moved.counts().values())
    for before, after in zip(seen[: len(seen) // 2], seen[len(seen) // 2 :], strict=True):
        near(after, before, atol=2e-2)


def test_records_are_copied_to_their_rows_by_one_launch():
    records = torch.randint(0, 255, (5, 40_000), dtype=torch.uint8, device=DEVICE)
    out = torch.zeros(7, 40_000, dtype=torch.uint8, device=DEVICE)
    rows = on_device(6, 0, 2, 3, 5)
    record_copy_triton.gather(out, addresses_of(records), rows)
    assert torch.equal(out[rows], records)
    assert not out[[1, 4]].any()


def test_in_full_precision_torch_attends():
    cpu_pool, pool = pools("int8")
    assert cpu_pool.backend.name == "numba"
    assert pool.backend.name == "triton"
    assert pools("f32")[1].backend.name == "torch"
    cache = Cache(pool, torch.float32)
    cache.begin(PAGE)
    cache.extend(0, rand(2, PAGE, 32), rand(2, PAGE, 32))
    cache.commit()
    assert not cache.table.readable()
    assert not has_triton(torch.device("cpu"))


# --- On a GPU, and for one


def test_what_is_measured_on_a_gpu_is_what_torch_computes():
    """The script's own checks, here in the interpreter; what they find wrong there is wrong."""
    for name, codec, nbytes, _run, error in measure_gpu.kernels(2, LayerShape(1, 16, 16), 2, DEVICE):
        assert error() < measure_gpu.NEAR, (name, codec)
        assert nbytes > 0


def test_the_script_says_what_it_needs():
    if GPU:
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit, match="needs an NVIDIA GPU"):
        measure_gpu.main([64])


def test_every_kernel_compiles_for_two_generations_within_their_limits(tmp_path):
    """What ``compile_gpu.py`` prints: a row a kernel. Shared memory fits sm_86's 99 KiB too; little spills."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = ROOT / "tests" / "measure" / "compile_gpu.py"
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    print(done.stdout)
    assert {row[0] for row in rows} == {
        "attend",
        "merge",
        "attend pages",
        "merge pages",
        "seal k",
        "seal v",
        "rotate",
        "sketch",
        "best scores",
        "best scores by address",
        "choose of 512",
        "choose of 2048",
        "choose of 4096",
        "choose of 8192",
        "gather",
    }
    assert {row[1] for row in rows if row[0] == "attend"} == {"bf16", "int8", "k8v4", "int4"}
    assert {row[2] for row in rows} == {"sm_80", "sm_90"}
    for name, *_, shared, registers, spilled in rows:
        assert int(shared) <= 99 << 10
        assert int(registers) <= 255
        assert int(spilled) <= (300 if name.startswith("attend") else 0), name  # it was measured: attention_triton
