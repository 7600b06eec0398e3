"""Which pages a query chooses by sketches of their keys: those that torch chooses, step by step."""

import pytest
import torch
from small_families import build

from localctx.kernels import quant
from localctx.kernels.cpu.selection import FEW, BiasedKeys, choose, num_candidates
from localctx.kernels.sketch import BITS, LEAST, KeyRanges, Sketch, best_scores, make_sketch
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.shape import PAGE


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def scores_of_rounded(q: torch.Tensor, made: Sketch, extra: torch.Tensor | None) -> torch.Tensor:
    """``best_scores``, with queries rounded to int8 for every page, as the kernel rounds them."""
    whole = q.shape[2] // 8 * 8  # other channels are not rounded
    scaled = q[:, :, None] * made.scale[:, None].float()  # [H, Q, n, D]
    unit = scaled[..., :whole].abs().amax(-1, keepdim=True) / 127 if whole else 1
    scaled[..., :whole] = (scaled[..., :whole] / unit).round() * unit
    codes = quant.unpack(made.codes, BITS).float()  # [H, n, D, 64]
    scores = torch.einsum("hqnd,hndt->hqnt", scaled, codes)
    scores += torch.einsum("hqd,hnd->hqn", q, made.zero.float())[..., None]
    return (scores if extra is None else scores + extra.unflatten(2, (-1, PAGE))).amax(-1)


def bounds_of(q: torch.Tensor, made: Sketch) -> torch.Tensor:
    """The greatest product that a query can have with any key of a page, [H, Q, n]."""
    rising = torch.einsum("hqd,hnd->hqn", q.clamp_min(0), made.scale.float()) * (2**BITS - 1)
    return rising + torch.einsum("hqd,hnd->hqn", q, made.zero.float())


def best_of(scores: torch.Tensor, count: int, weighed: int, sinks: int) -> torch.Tensor:
    """The ``count`` pages that promise the most by ``scores`` [H, Q, n], whose weights are relative to the
    ``weighed``-th; the ``sinks`` and the last among them.
    """
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    each = (weights / weights.topk(weighed, -1).values[..., -1:].clamp_min(float(LEAST))).sum(1)
    each[:, :sinks] = each[:, -1] = float("inf")
    return each.sort(dim=-1, descending=True, stable=True).indices[:, :count].sort(-1).values


def chosen_by_torch(
    q: torch.Tensor, made: Sketch, count: int, sinks: int, extra: torch.Tensor | None = None, ranges=None
) -> torch.Tensor:
    """What ``choose`` returns on a processor."""
    scores = scores_of_rounded(q, made, extra)
    pages = scores.shape[2]
    if pages <= FEW:
        return best_of(scores, count, count, sinks)
    places = best_of(bounds_of(q, ranges or made), num_candidates(pages, count, q.shape[1]), count, sinks)
    found = scores.take_along_dim(places[:, None].expand(-1, q.shape[1], -1), 2)
    return places.take_along_dim(best_of(found, count, count, sinks), 1)


@pytest.mark.parametrize("dim", [3, 16, 20, 64, 128])
@pytest.mark.parametrize(("pages", "count"), [(1, 1), (20, 7), (41, 12), (129, 20), (300, 32), (301, 140)])
def test_a_processor_chooses_what_torch_does(dim, pages, count):
    q, made = rand(2, 3, dim), make_sketch(rand(pages, 2, dim, PAGE))
    assert torch.equal(choose(q, made, count, 1), chosen_by_torch(q, made, count, 1))


@pytest.fixture
def turner():
    module = build("qwen2", num_hidden_layers=1).float()
    torch.nn.init.normal_(module.model.layers[0].self_attn.k_proj.bias)
    return TransformersModel(module).rope


@pytest.mark.parametrize("pages", [40, 300])
def test_a_bias_that_keys_lack_counts_as_if_they_had_it(turner, pages):
    starts = torch.arange(pages) * PAGE
    bias = turner.key_bias([0], starts[None])
    heads, _, dim = bias.starts[0].shape
    keys, biases = rand(pages, heads, dim, PAGE), turner.bias_keys(0, torch.arange(pages * PAGE))
    q, made = rand(heads, 3, dim), make_sketch(keys)
    ranges = KeyRanges(*make_sketch(keys + biases.unflatten(1, (pages, PAGE)).permute(1, 0, 3, 2))[1:])
    extra = torch.einsum("hqd,htd->hqt", q, biases)
    biased = BiasedKeys(q, bias._replace(starts=bias.starts[0]), ranges)
    chosen = choose(q, made, 20, 1, biased=biased)
    assert torch.equal(chosen, chosen_by_torch(q, made, 20, 1, extra, ranges))
    assert not torch.equal(chosen, choose(q, made, 20, 1))


def test_no_key_scores_more_than_the_ranges_allow():
    q, keys = rand(2, 3, 16), rand(9, 2, 16, PAGE)
    scores = torch.einsum("hqd,nhdt->hqnt", q, keys).amax(-1)
    assert (scores <= bounds_of(q, make_sketch(keys))).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
@pytest.mark.parametrize("pages", [5, 20, 41, 203])
def test_only_pages_are_chosen_whatever_a_query_is(pages, value):
    """What a broken model computes leads to no address beyond the pages."""
    q, made = rand(3, 2, 16), make_sketch(rand(pages, 3, 16, PAGE))
    q[1, 0] = q[2] = value
    chosen = choose(q, made, 4, 1)
    assert ((chosen >= 0) & (chosen < pages)).all()
    assert (chosen.diff(dim=1) > 0).all()
    assert torch.equal(chosen[0], chosen_by_torch(q[:1], Sketch(*(x[:1] for x in made)), 4, 1, None)[0])


def test_the_pages_that_are_chosen_are_those_of_the_best_keys():
    q, keys = rand(3, 5, 24), rand(40, 3, 24, PAGE)
    chosen = choose(q, make_sketch(keys[:4]).with_more(make_sketch(keys[4:])), 20, 1)
    true = torch.einsum("hqd,nhdt->hqnt", q, keys).amax((1, 3))
    assert (true.gather(1, chosen).mean(1) > true.mean(1)).all(), "two bits tell much"


def test_pages_whose_bounds_promise_little_are_not_chosen():
    """A few pages have keys that matter, among many that do not: bounds alone find them, and the sketch ranks them."""
    keys = rand(200, 2, 16, PAGE) * 0.1
    keys[[50, 120, 199 - 30], :, :, 7] = rand(3, 2, 16) * 3
    q = keys[[50, 120, 169], :, :, 7].transpose(0, 1)  # each asks for one of them
    made = make_sketch(keys)
    chosen = choose(q, made, 8, 1)
    for place in (0, 50, 120, 169, 199):
        assert (chosen == place).any(-1).all()


@pytest.mark.parametrize("score", [None, best_scores])
def test_a_query_with_large_scores_does_not_choose_for_all(score):
    """Thirty pages have the same large score with the first query; the second query looks at one page alone."""
    keys = rand(200, 1, 16, PAGE) * 0.1
    keys[10:40, :, 0, 7] = keys[150, :, 1, 7] = 3
    q = torch.zeros(1, 2, 16)
    q[0, 0, 0], q[0, 1, 1] = 10, 2
    assert (choose(q, make_sketch(keys), 6, 1, None, score) == 150).any()


@pytest.mark.parametrize("score", [None, best_scores])
def test_the_first_choice_of_a_query_that_looks_everywhere_is_chosen(score):
    """Its part of the softmax over all pages is less than that of each of the thirty pages which another query likes
    equally. There are so few pages that all sketches are read.
    """
    keys = rand(FEW, 1, 16, PAGE) * 0.1
    keys[10:40, :, 0, 7] = keys[110, :, 1, 7] = 3
    q = torch.zeros(1, 2, 16)
    q[0, 0, 0], q[0, 1, 1] = 10, 0.5
    assert (choose(q, make_sketch(keys), 6, 1, None, score) == 110).any()


@pytest.mark.parametrize("score", [None, best_scores])
def test_a_query_may_have_one_page_far_above_all_others(score):
    keys = rand(200, 1, 16, PAGE) * 0.1
    keys[150, :, 1, 7] = 1000
    q = torch.eye(2, 16)[None] * 10
    chosen = choose(q, make_sketch(keys), 6, 1, None, score)
    assert (chosen == 150).any()
    assert len(chosen[0].unique()) == 6


def test_a_key_is_found_among_a_hundred_pages_with_larger_bounds():
    """Eighty pages have two large channels, but in different keys; one page has a key that is good in both."""
    keys = rand(100, 1, 16, PAGE) * 0.1
    keys[5:85, :, 0, 7] = keys[5:85, :, 1, 8] = 3
    keys[90, :, :2, 9] = 2.2
    q = torch.zeros(1, 1, 16)
    q[0, 0, :2] = 4
    assert (choose(q, make_sketch(keys), 6, 1) == 90).any()
