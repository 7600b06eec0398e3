"""Says whether the machine has time to spare: it is on mains power, and other programs leave the processor alone."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

MAX_LOAD_TO_BEGIN = 0.25  # of all cores, that other programs take
MAX_LOAD_TO_GO_ON = 0.4  # more than to begin with: programs that want what we compute with look busier than before
MIN_SAMPLE = 1.0  # seconds over which the load is measured


@dataclass(frozen=True)
class MachineReading:
    """``mains``: False on battery power, True also where there is no battery; ``load``: of all cores, the share that
    other programs took lately.
    """

    mains: bool
    load: float

    def why_not(self, reading: bool) -> str:
        """Why nothing should be read ahead now, or go on if it is ``reading``; empty if it may."""
        if not self.mains:
            return "this machine runs on its battery"
        if self.load > (MAX_LOAD_TO_GO_ON if reading else MAX_LOAD_TO_BEGIN):
            return f"other programs use {self.load:.0%} of the processor"
        return ""


class MachineMonitor:
    """Reads power and load of this machine. The first reading of the load comes after MIN_SAMPLE seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sample = clock(), *_processor_seconds()
        self._load = 1.0

    def read(self) -> MachineReading:
        """Returns the state of the machine; its load is measured anew if the last measurement is MIN_SAMPLE old."""
        since, busy_before, own_before = self._sample
        if (passed := self._clock() - since) >= MIN_SAMPLE:
            busy, own = _processor_seconds()
            others = busy - busy_before - (own - own_before)
            self._load = min(1.0, max(0.0, others / passed / (psutil.cpu_count() or 1)))
            self._sample = self._clock(), busy, own
        return MachineReading(on_mains(), self._load)


def on_mains() -> bool:
    """Returns False on battery power; True where there is no battery, or nothing is known of it."""
    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError):  # not on this system, or it cannot be read
        return True
    return battery is None or battery.power_plugged is not False


def run_at_low_priority() -> None:
    """Let other programs have the processor first, for as long as this process runs."""
    psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else 10)


def _processor_seconds() -> tuple[float, float]:
    """Returns the seconds that cores have worked since the start of the machine, and those of this process."""
    times, own = psutil.cpu_times(), psutil.Process().cpu_times()
    waited = times.idle + getattr(times, "iowait", 0.0)
    guest = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted as user and nice, too
    return sum(times) - waited - guest, own.user + own.system + own.children_user + own.children_system
