"""Kernels are compiled in a thread, and who waits for it says so."""

from threading import Event

import pytest

from localctx.models.hub import preparation


@pytest.fixture
def compiling(monkeypatch):
    """Compiling that lasts until it is told to end."""
    ended = Event()
    monkeypatch.setattr(preparation, "compiled", lambda: False)
    monkeypatch.setattr(preparation, "warm", lambda: ended.wait(60))
    return ended


def test_the_wait_is_reported_until_it_ends(compiling):
    reports = []

    def report():
        reports.append("preparing")
        compiling.set()

    preparation.ProcessorPreparation().wait(report)
    assert reports == ["preparing"]


def test_what_is_compiled_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(preparation, "compiled", lambda: True)
    preparation.ProcessorPreparation().wait(lambda: pytest.fail("nothing is to be reported"))
