"""Detects whether the machine is idle: it runs on mains power, and other programs barely use the processor."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

MAX_LOAD_TO_BEGIN = 0.25  # share of all cores used by other programs
MAX_LOAD_TO_GO_ON = 0.4  # higher, because other programs look busier while they compete with us
MIN_SAMPLE = 1.0  # seconds over which the load is measured
MAX_SAMPLE = 120.0  # seconds; a longer sample says little about now. A forward pass is shorter


@dataclass(frozen=True)
class MachineReading:
    """The power source and the load of this machine. ``mains`` is True on mains power or if there is no battery, and
    False on battery power. ``load`` is the share of all cores that other programs used recently.
    """

    mains: bool
    load: float

    def why_not(self, reading: bool) -> str:
        """Returns why read-ahead must not start now, or must stop if it is already ``reading``; empty if it may run."""
        if not self.mains:
            return "this machine runs on its battery"
        if self.load > (MAX_LOAD_TO_GO_ON if reading else MAX_LOAD_TO_BEGIN):
            return f"other programs use {self.load:.0%} of the processor"
        return ""


class LoadMonitor:
    """Measures how many cores of this machine are free for this process, from one reading of ``free`` to the next, if
    that is at least ``sample`` seconds. If nothing recent was measured, ``unknown`` (a share of all cores) are free.
    """

    def __init__(self, sample: float, unknown: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least, self._clock = sample, clock
        self.cores = psutil.cpu_count() or 1
        self._free = self._unknown = unknown * self.cores
        self._sample = clock(), *_processor_seconds()

    @property
    def free(self) -> float:
        """The number of cores that other programs left free recently. A sample that became too long, because nothing
        was computed meanwhile, is dropped, and a new one begins.
        """
        since, busy_before, own_before = self._sample
        if (passed := self._clock() - since) >= self._least:
            busy, own = _processor_seconds()
            others = (busy - busy_before - (own - own_before)) / passed
            measured = self.cores - min(self.cores, max(0.0, others))
            self._free = measured if passed <= MAX_SAMPLE else self._unknown
            self._sample = self._clock(), busy, own
        return self._free


class MachineMonitor:
    """Measures the power source and the load of this machine. The first load is known after MIN_SAMPLE seconds; until
    then, the machine counts as busy.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._load = LoadMonitor(MIN_SAMPLE, 0.0, clock)

    def read(self) -> MachineReading:
        """Returns the power source and the load now. The load is measured again if the last measurement began at least
        MIN_SAMPLE seconds ago.
        """
        return MachineReading(on_mains(), 1.0 - self._load.free / self._load.cores)


def on_mains() -> bool:
    """Returns False on battery power, True on mains power, without a battery, or if the power source is unknown."""
    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError):  # unsupported on this system, or unreadable
        return True
    return battery is None or battery.power_plugged is not False


def run_at_low_priority() -> None:
    """Lower the priority of this process until it ends."""
    psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else 10)


def _processor_seconds() -> tuple[float, float]:
    """Returns two processor times in seconds: of all programs since boot, and of this process and
    its ended children.
    """
    times, own = psutil.cpu_times(), psutil.Process().cpu_times()
    waited = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # already counted in user and nice
    return sum(times) - waited - guest, own.user + own.system + own.children_user + own.children_system
