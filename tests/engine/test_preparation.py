"""Kernels are compiled in a thread, and who waits for it says so."""

from threading import Event

import pytest
import torch

from localctx.engine import model_loader
from localctx.models import load


@pytest.fixture
def compiling(monkeypatch):
    """Compiling that lasts until it is told to end."""
    ended = Event()
    monkeypatch.setattr(model_loader, "compiled", lambda: False)
    monkeypatch.setattr(model_loader, "warm", lambda: ended.wait(60))
    return ended


def test_the_wait_is_reported_until_it_ends(compiling):
    reports = []

    def report():
        reports.append("preparing")
        compiling.set()

    model_loader.ProcessorPreparation().wait(report)
    assert reports == ["preparing"]


def test_what_is_compiled_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(model_loader, "compiled", lambda: True)
    model_loader.ProcessorPreparation().wait(lambda: pytest.fail("nothing is to be reported"))


def test_where_a_gpu_computes_nothing_is_compiled(compiling):
    model_loader.ProcessorPreparation(needed=False).wait(lambda: pytest.fail("nothing is to be reported"))


@pytest.mark.slow
def test_a_model_off_the_processor_loads_without_compiling(tiny_model, monkeypatch):
    monkeypatch.setattr(load, "pick_device", lambda name: torch.device("meta"))  # what stands in for a GPU
    monkeypatch.setattr(load, "warm", lambda: pytest.fail("nothing computes on a processor"))
    assert load.load_model(tiny_model, "tiny").device.type == "meta"
