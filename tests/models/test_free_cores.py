"""A forward pass leaves cores to other programs; its result is the same to the bit with any number of threads."""

from types import SimpleNamespace

import numba
import pytest
import torch
from native_models import build, plain

from localctx.kernels.cpu.threads import set_threads
from localctx.kv.cache import Cache
from localctx.kv.pool import Pool
from localctx.models.decoder import local_model

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def all_threads():
    yield
    set_threads(numba.config.NUMBA_NUM_THREADS)


def answered(model, codec: str) -> list[torch.Tensor]:
    """The logits of a prompt of some pages, and of tokens decoded after it."""
    cache = Cache(Pool(model.shape, codec), model.dtype)
    logits = [model.forward([i * 7 % 100 for i in range(200)], cache)]
    return logits + [model.forward([5 + i], cache) for i in range(4)]


@pytest.mark.parametrize(
    ("family", "kept", "codec"), [("Llama", "full", "bf16"), ("Qwen2", "int8", "int8"), ("Qwen3", "int4", "int4")]
)
def test_logits_do_not_depend_on_other_programs(family, kept, codec, monkeypatch):
    model, most = plain(build(family), kept), numba.config.NUMBA_NUM_THREADS
    results = list[list[torch.Tensor]]()
    for free, used in ((float(most), most), (0.0, (most + 1) // 2)):
        monkeypatch.setattr(local_model, "_LOAD", SimpleNamespace(free=free))
        results.append(answered(model, codec))
        assert numba.get_num_threads() == used
    assert all(map(torch.equal, *results))
