"""When the machine has time to spare: on mains power, with its processor left alone by other programs."""

from types import SimpleNamespace

import psutil
import pytest

from localctx import idle
from localctx.idle import LoadMonitor, MachineMonitor, MachineReading


@pytest.fixture
def machine(monkeypatch) -> SimpleNamespace:
    """A machine of four cores, whose clock and seconds of work tests set."""
    machine = SimpleNamespace(now=100.0, busy=50.0, own=5.0)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(idle, "_processor_seconds", lambda: (machine.busy, machine.own))
    machine.monitor = MachineMonitor(lambda: machine.now)
    return machine


def advance(machine: SimpleNamespace, seconds: float, busy: float, own: float) -> float:
    """The load after a time in which cores worked ``busy`` seconds, ``own`` of them for this process."""
    machine.now, machine.busy, machine.own = machine.now + seconds, machine.busy + busy, machine.own + own
    return machine.monitor.read().load


def test_the_load_is_that_of_other_programs(machine):
    assert advance(machine, 2, busy=8, own=8) == 0
    assert advance(machine, 2, busy=6, own=4) == 0.25
    assert advance(machine, 2, busy=0, own=1) == 0


def test_cores_are_free_until_others_are_seen_to_use_them(machine):
    monitor = LoadMonitor(0.5, 1.0, lambda: machine.now)
    assert monitor.free == 4
    machine.now, machine.busy, machine.own = machine.now + 0.4, machine.busy + 1.6, machine.own + 0.4
    assert monitor.free == 4
    machine.now, machine.busy, machine.own = machine.now + 0.4, machine.busy + 1.6, machine.own + 0.4
    assert monitor.free == pytest.approx(1)
    machine.now, machine.busy, machine.own = machine.now + 1, machine.busy + 2, machine.own + 3
    assert monitor.free == 4
    machine.now, machine.busy = machine.now + 30, machine.busy + 30  # a long forward pass
    assert monitor.free == 3
    machine.now, machine.busy = machine.now + 300, machine.busy + 900  # nothing was computed for minutes
    assert monitor.free == 4


def test_nothing_is_known_before_the_first_sample_so_it_counts_as_busy(machine):
    assert advance(machine, 0.1, busy=0, own=0) == 1
    assert advance(machine, 1, busy=0, own=0) == 0


@pytest.mark.parametrize(
    ("battery", "mains"),
    [
        (None, True),
        (SimpleNamespace(power_plugged=None), True),
        (SimpleNamespace(power_plugged=True), True),
        (SimpleNamespace(power_plugged=False), False),
    ],
)
def test_no_reading_of_a_battery_counts_as_mains(monkeypatch, battery, mains):
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert idle.on_mains() is mains


def test_a_system_without_readings_of_batteries_is_on_mains(monkeypatch):
    monkeypatch.delattr(psutil, "sensors_battery", raising=False)
    assert idle.on_mains()


def test_reading_begins_on_an_idler_machine_than_it_goes_on():
    between = MachineReading(mains=True, load=0.3)
    assert between.why_not(reading=False) == "other programs use 30% of the processor"
    assert between.why_not(reading=True) == ""
    assert MachineReading(mains=False, load=0.0).why_not(reading=True) == "this machine runs on its battery"


def test_this_machine_is_measured():
    assert MachineMonitor(iter(range(0, 100, 2)).__next__).read().load <= 1
