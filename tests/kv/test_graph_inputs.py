"""Captured steps: replayed with other numbers they give what is computed anew, and what cannot be captured is not.

On a GPU by its graphs; without one by a recorder that does what they do.
"""

from dataclasses import dataclass

import measure_gpu
import numpy as np
import pytest
import torch
from torch import Tensor

from triton_device import DEVICE, triton  # isort: skip  # which skips where there is no Triton
from graph_recorder import record
from small_families import build

from localctx.errors import Cancelled
from localctx.kv import dispatch
from localctx.kv.batches import decode_batch
from localctx.kv.batches.graph_inputs import GraphInputs, pad_to_power_of_two
from localctx.kv.cache import Cache
from localctx.kv.keepers import make_keeper
from localctx.kv.pool import Pool
from localctx.models.base import ForwardRequest
from localctx.models.decoder import cuda_graphs as G
from localctx.models.decoder.transformers_model import TransformersModel
from localctx.shape import PAGE, KVShape, LayerShape

from localctx.kv.backends.triton_backend import TritonBackend  # isort: skip

assert triton

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
LENGTHS = (PAGE - 2, 2 * PAGE + 20)  # the second step fills a page; the tables have room for more
STEPS = 5


def answered(model, codec, lengths=LENGTHS, keep="full"):
    """Logits of steps of sequences side by side, what they looked at, and their open pages."""
    pool = Pool(model.shape, codec, model.device, in_place=False, triton=True, rope=model.rope)
    caches = [Cache(pool, torch.bfloat16, make_keeper(keep, n)) for n in lengths]
    for n, cache in zip(lengths, caches, strict=True):
        model.forward([3 + i * i % 190 for i in range(n)], cache)
        cache.enter_phase("answering")
        cache.record_attention()
    out = []
    for i in range(STEPS):
        feeds = [ForwardRequest([5 + 7 * i + 31 * j], cache) for j, cache in enumerate(caches)]
        out.append(torch.cat(model.forward_each(feeds)))
    looks = [torch.from_numpy(cache.attention_mass.copy()) for cache in caches]
    tails = [x for cache in caches for layer in range(len(model.shape.layers)) for x in cache.open_tail(layer)]
    return [torch.stack(out), *looks, *tails]


@dataclass
class Alike:
    """A step with one array."""

    graph_key: str
    x: np.ndarray
    graph_inputs: GraphInputs | None = None

    @property
    def arrays(self):
        return {"x": self.x}


def run(graphs, likeness, x, work):
    return graphs.run(Alike(likeness, np.array(x)), {}, CPU, work)


class Counted:
    """A capture that counts captures and replays."""

    def __init__(self, device=CPU):
        self._capture = record if device.type == "cpu" else G.CudaCapture(device)
        self.captures = self.replays = 0

    def __call__(self, work):
        replay, result = self._capture(work)
        self.captures += 1

        def counted():
            self.replays += 1
            replay()

        return counted, result


TWO_SHARE = {"layer_types": ["full_attention"] * 2, "num_kv_shared_layers": 1}


@pytest.mark.parametrize(
    ("family", "codec", "more"),
    [("gemma2", "int4+hadamard", {}), ("gpt-oss", "int8", {}), ("gemma4-shared", "int8", TWO_SHARE)],
)
def test_replayed_steps_give_what_is_computed_anew(family, codec, more):
    model = TransformersModel(build(family, num_hidden_layers=2, **more).to(DEVICE, torch.bfloat16))
    assert DEVICE.type == "cuda" or model.graphs is None, "there is no GPU to capture on"
    model.graphs = None
    expected = answered(model, codec)
    model.graphs = G.GraphCache(count := Counted(DEVICE))
    found = answered(model, codec)
    assert not model.graphs.refused
    assert (count.captures, count.replays) == (1, 3)
    for mine, its in zip(found, expected, strict=True):
        assert torch.equal(mine, its)


@pytest.fixture
def one_dense_layer(monkeypatch):
    """The first layer alone sees everything, so that two layers are enough: the interpreter takes seconds for each."""
    for module in (dispatch, decode_batch):
        monkeypatch.setattr(module, "DENSE_LAYERS", 1)


def test_replayed_steps_select_what_is_selected_anew(monkeypatch, one_dense_layer):
    """The second step fills a page: the third, captured, chooses four of seven pages, not three of six."""
    model = TransformersModel(build("llama", num_hidden_layers=2).to(DEVICE, torch.bfloat16))
    model.graphs = None
    codec, lengths, keep = "int4+hadamard", (7 * PAGE - 2,), "select:1/2"
    expected = answered(model, codec, lengths, keep)
    model.graphs = G.GraphCache(count := Counted(DEVICE))
    found = answered(model, codec, lengths, keep)
    assert not model.graphs.refused
    assert (count.captures, count.replays) == (1, 3)
    for mine, its in zip(found, expected, strict=True):
        assert torch.equal(mine, its)
    monkeypatch.setattr(TritonBackend, "selects_in_batch", lambda *_: False)
    for mine, its in zip(found, answered(model, codec, lengths, keep), strict=True):
        torch.testing.assert_close(mine.float(), its.float(), atol=2e-2, rtol=2e-2)


def test_one_graph_serves_until_what_is_padded_doubles(one_dense_layer):
    """Replayed over two pages more, of which it chooses more, though sketches were moved meanwhile."""
    model = TransformersModel(build("llama", num_hidden_layers=2).to(DEVICE, torch.bfloat16))
    pool = Pool(model.shape, "int8", model.device, in_place=False, triton=True, rope=model.rope)
    seen = []
    for graphs in (None, G.GraphCache(count := Counted(DEVICE))):
        model.graphs = graphs
        cache = Cache(pool, torch.bfloat16, make_keeper("select:1/2", 5 * PAGE))
        model.forward([3 + i * i % 190 for i in range(5 * PAGE + 1)], cache)
        out = []
        for at in range(3):
            cache.enter_phase("answering")
            for token in (5 + at, 6 + at):
                out.append(model.forward([token], cache)[-1])
            cache.enter_phase("reading")
            model.forward([7 + i * i % 180 for i in range(PAGE)], cache)
            cache.sketches.clear()
        seen.append(torch.stack(out))
    assert (count.captures, count.replays) == (1, 5)
    assert torch.equal(*seen)


def test_what_graphs_look_at_stays_when_their_pool_has_gone():
    shape = KVShape((LayerShape(1, 16, 16),) * 2)
    pools = [Pool(shape, "int8", DEVICE, in_place=False, triton=True) for _ in range(2)]
    for one, other in zip(*(pool.backend.layouts for pool in pools), strict=True):
        assert one.offsets is other.offsets


def test_positions_of_another_kind_are_captured_anew():
    model = TransformersModel(build("llama"))
    model.graphs = graphs = G.GraphCache(count := Counted())

    def step():
        run(graphs, "a", [1.0], doubled)

    view = model.view()
    step(), step(), step()
    assert (count.captures, count.replays) == (1, 2)
    view.scale_rope("linear:2")
    assert view.rope
    step(), step()
    assert (count.captures, count.replays) == (2, 3)


def test_the_script_for_a_gpu_compares_steps_with_graphs_and_without():
    size = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 8}
    model = measure_gpu.made_model(DEVICE, size)
    model.graphs = G.GraphCache(count := Counted(DEVICE))
    (expected, _), (found, _) = measure_gpu.decoded(model, PAGE + 3, 3)
    assert torch.equal(found, expected)
    assert (count.captures, count.replays) == (1, 2)


def doubled(tables):
    return tables["x"] * 2


def test_what_is_asked_alike_is_captured_once_and_its_results_stay():
    graphs, found = G.GraphCache(count := Counted()), []
    for i in range(4):
        found.append(run(graphs, "a", [i, i + 1.5], doubled))
    assert [x.tolist() for x in found] == [[2 * i, 2 * i + 3] for i in range(4)]
    assert (count.captures, count.replays) == (1, 3)
    run(graphs, "b", [1.0, 2.0], doubled)
    run(graphs, "a", [1.0], doubled)
    assert count.captures == 1


def test_the_graph_that_was_not_used_for_longest_goes_first(monkeypatch):
    monkeypatch.setattr(G, "MAX_GRAPHS", 2)
    graphs = G.GraphCache(count := Counted())
    for likeness in "aabbacccc":  # a is younger than b when c comes
        run(graphs, likeness, [1.0], doubled)
    run(graphs, "a", [1.0], doubled)
    assert count.captures == 3
    run(graphs, "b", [1.0], doubled)
    run(graphs, "b", [1.0], doubled)
    assert count.captures == 4


@pytest.mark.parametrize(
    "look", [Tensor.item, Tensor.tolist, int, bool, lambda x: x.cpu().numpy(), lambda x: len(x.nonzero()), torch.where]
)
def test_where_nothing_can_be_captured_all_is_computed(look):
    def waits(tables):
        look(tables["x"].max())
        return tables["x"] * 2

    graphs = G.GraphCache(record)
    with torch.inference_mode():
        found = [run(graphs, "a", [float(i)], waits).tolist() for i in range(3)]
    assert found == [[0], [2], [4]]
    assert "not permitted" in graphs.refused


def test_what_failed_is_computed_before_it_is_captured():
    """Memory that ran out is no reason to capture never again; who was cancelled has compiled nothing."""
    fails = [Cancelled(), None, torch.OutOfMemoryError("full"), None, None, None]

    def work(tables):
        if e := fails.pop(0):
            raise e
        return tables["x"] * 2

    graphs = G.GraphCache(count := Counted())
    with pytest.raises(Cancelled):
        run(graphs, "a", [1.0], work)
    for captures in (0, 0, 1):
        assert run(graphs, "a", [1.0], work).tolist() == [2]
        assert count.captures == captures
    assert not graphs.refused


def test_tables_lie_where_they_lay_with_zeros_behind():
    arrays = {
        "a": np.arange(3, dtype=np.uint8),
        "b": pad_to_power_of_two(np.arange(10).reshape(5, 2)),
        "c": pad_to_power_of_two(np.zeros((0, 4))),
    }
    tables = GraphInputs(arrays, CPU)
    places = [tables[name].data_ptr() for name in arrays]
    assert not any(place % 16 for place in places)
    assert [tuple(tables[name].shape) for name in arrays] == [(3,), (8, 2), (4, 4)]
    assert tables["b"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [0, 0], [0, 0], [0, 0]]
    tables.write({**arrays, "a": np.array([7, 8, 9], np.uint8)})
    assert tables["a"].tolist() == [7, 8, 9]
    assert [tables[name].data_ptr() for name in arrays] == places
